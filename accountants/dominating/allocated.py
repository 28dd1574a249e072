r"""Random allocation of each record, or of all records of a group, to one of several steps. proofs/allocation.md."""

from __future__ import annotations

import math

from zetadp.accountants.allocation.density import Allocated
from zetadp.accountants.allocation.groups import LARGEST_ALLOCATED_GROUP, squared_moves
from zetadp.accountants.densities import Density
from zetadp.accountants.densities.mixtures import Mixture, moved_up
from zetadp.accountants.dominating.shapes import NULL, at
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair
from zetadp.accountants.shared_sample import GaussianWithLaplace
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.loss import GaussianLoss, IntegerLoss, JointLoss, LaplaceLoss, ResponseLoss


def allocated(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """A mean over the steps, or over blocks of them; where a unit is replaced, one whole release: proofs/allocation.md, (R1)."""
    if leaf.group > 1 and (reason := _group_reason(leaf)) is not None:
        return reason
    if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        return Pair(family, at(leaf.group * move), NULL)
    if leaf.group == 1:
        # One step is left of bins of which any two have a row in common.
        return Pair(Allocated(family, leaf.steps) if leaf.steps > 1 else family, at(move), NULL)
    # A mean over blocks of as many steps as the group has records: proofs/allocation.md, Groups.
    far, squares = leaf.group * move, squared_moves(leaf.group, leaf.steps)
    lowest, kept = moved_up(list(squares.values()))
    shares = tuple(math.sqrt(square) / leaf.group for square in list(squares)[lowest:])
    if family.norm == "l1" or isinstance(leaf.mechanism, GaussianWithLaplace):
        kept, shares = (1.0,), (1.0,)
    if (blocks := leaf.steps // leaf.group) > 1:
        return Pair(Allocated(family, blocks, Mixture(kept, shares)), at(far), NULL)
    # The frame's origin is the lowest component, as that of a sampled group.
    return Pair(family, Mixture(kept, tuple(far * (share - shares[0]) for share in shares)), at(-far * shares[0]))


def _group_reason(leaf: Leaf) -> str | None:
    """Why groups have no pair, or None."""
    loss = leaf.mechanism.privacy_loss()
    if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        if isinstance(loss, GaussianLoss | LaplaceLoss | JointLoss | ResponseLoss):
            return None
        return (
            "groups in random allocations under replace_one have no dominating pair that is proved here, but for Gaussian and Laplace "
            "noise, GDP and pure epsilon-DP"
        )
    if isinstance(loss, IntegerLoss):
        return "groups in random allocations of noise on whole numbers have no dominating pair that is proved here"
    if leaf.group > LARGEST_ALLOCATED_GROUP:
        return (
            f"groups of more than {LARGEST_ALLOCATED_GROUP} with random allocation aren't supported here: a whole release bounds each epoch"
        )
    return None
