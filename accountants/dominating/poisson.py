r"""Poisson samples, of one unit or of a group: mixtures around what nobody of it moves. proofs/pairs.md, rows 2 and 3."""

from __future__ import annotations

from zetadp.accountants.densities import Density
from zetadp.accountants.dominating.shapes import NULL, moved_both_ways, moved_one_way, multiples, two
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair
from zetadp.accountants.shared_sample import GaussianWithLaplace
from zetadp.mechanisms.base import Adjacency, Mechanism
from zetadp.mechanisms.declared.integers import IntegerNoise
from zetadp.mechanisms.numerics.binomial import binomial_weights

Contributing = Mechanism | GaussianWithLaplace | IntegerNoise
"""What may state how far one unit alone moves the value."""

LARGEST_SAMPLED_GROUP = 1000
"""The mixture of a Poisson-sampled group has one component more than the group has members; beyond this no route is fast."""


def poisson(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Rows 2 and 3: as many move the output as the sample holds of the group's units."""
    q = leaf.probability
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"a sample with groups of more than {LARGEST_SAMPLED_GROUP} units has too large a mixture"
    if leaf.mechanism.neighbours[0] is not Adjacency.REPLACE_ONE:
        if leaf.group == 1:
            return Pair(family, two(q, move), NULL)
        weights = binomial_weights(leaf.group, q)
        return moved_one_way(family, weights, multiples(move, weights))
    assert isinstance(leaf.mechanism, Contributing)  # nothing else that is only declared is sampled under this adjacency
    c, norm = contribution(leaf.mechanism, family), family.norm
    if c is None:
        move = "moves" if isinstance(leaf.mechanism, IntegerNoise) else norm
        return (
            f"Poisson sampling under replace_one needs {needed(leaf.mechanism, norm)}, a bound on what one unit alone adds to the query: "
            f"{move} bounds only the difference of two units, and a sample can leave both out"
        )
    if leaf.group == 1:
        return Pair(family, two(q, c), two(q, c).mirrored)
    weights = binomial_weights(leaf.group, q)
    return moved_both_ways(family, weights, multiples(c, weights), multiples(c, weights))


def contribution(mechanism: Contributing, family: Density) -> float | None:
    """The shift of what one unit contributes; None if that isn't bounded in the norm that the noise needs."""
    if isinstance(mechanism, GaussianWithLaplace):
        return mechanism.contribution()
    if isinstance(mechanism, IntegerNoise):
        return None if mechanism.contribution is None else mechanism.contribution / mechanism.law.scale
    given = mechanism.sensitivity
    if (given.l1_contribution if family.norm == "l1" else given.l2_contribution) is None:
        return None
    alone = mechanism.alone()
    assert alone is not None
    return alone.privacy_loss().distance


def needed(mechanism: Contributing, norm: str) -> str:
    """The fields that ``contribution`` needs."""
    if isinstance(mechanism, GaussianWithLaplace):
        return "sensitivity.l2_contribution and l1_contribution"
    if isinstance(mechanism, IntegerNoise):
        return "contribution"
    return f"sensitivity.{norm}_contribution"
