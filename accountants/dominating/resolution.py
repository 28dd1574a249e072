r"""Finds a leaf's row in the table of dominating pairs."""

from __future__ import annotations

import math
from functools import lru_cache

from zetadp.accountants.densities import DENSITIES, Density, density_of
from zetadp.accountants.densities.mixtures import SMALLEST_WEIGHT, Mixture
from zetadp.accountants.dominating.allocated import allocated
from zetadp.accountants.dominating.fixed_size import fixed_size, fixed_size_group
from zetadp.accountants.dominating.guarantees import amplified, correlated_reason, guarantee_reason, is_epoch, is_guarantee
from zetadp.accountants.dominating.poisson import poisson
from zetadp.accountants.dominating.shapes import NULL, at
from zetadp.accountants.dominating.truncated import truncated
from zetadp.accountants.dominating.weighted import weighted
from zetadp.accountants.leaf import Leaf, Selection, unshuffled
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.declared.correlated import CorrelatedNoise
from zetadp.mechanisms.declared.integers import IntegerNoise
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import (
    ConcentratedLoss,
    FailingLoss,
    GaussianLoss,
    IntegerLoss,
    JointLoss,
    LaplaceLoss,
    PrivacyLoss,
    ResponseLoss,
)

LARGEST_INTEGER_GROUP = 20
"""The table of a group's mixture on whole numbers has as many sums as the group has members."""

LARGEST_JOINT_LAPLACE = 100.0
"""Scales of Laplace noise, whose exponentials then are floats."""

LARGEST_INTEGER_TABLE = 2**18
"""Whole numbers in a table beyond those that the noise itself reaches."""


def unsupported_reason(leaf: Leaf) -> str | None:
    """Why no dominating pair of this leaf is known here, or None."""
    found = _resolved(leaf)
    return found if isinstance(found, str) else None


def pair_of(leaf: Leaf) -> Pair:
    """The dominating pair of one leaf, from the table in the module's docstring.

    Raises:
      UnsupportedEvent: ``unsupported_reason`` gives a reason.

    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> pair_of(Leaf(0.25, noise, "fixed_size")).upper
    Mixture(weights=(0.75, 0.25), shifts=(0.0, 1.0))
    """
    found = _resolved(leaf)
    if isinstance(found, str):
        raise UnsupportedEvent("dominating pair", found)
    return found


@lru_cache(maxsize=2**14)
def _resolved(leaf: Leaf) -> Pair | str:
    """The pair, or the reason why there is none."""
    return _shuffled(leaf) if leaf.scheme == "shuffled" else _drawn(leaf)


def _drawn(leaf: Leaf) -> Pair | str:
    loss = leaf.mechanism.privacy_loss()
    family = density_of(loss)
    if (reason := _reason(leaf, loss)) is not None:
        return reason
    if family is None:
        known = " nor ".join(density.name for density in DENSITIES.values() if density.mixes and not density.is_discrete)
        return f"{leaf.mechanism.kind} noise is neither {known}, and no dominating pair of it is known here"
    if isinstance(leaf.mechanism, LocalRelease):
        return _local(family, loss.distance, leaf)
    if leaf.is_whole:
        return Pair(family, at(leaf.group * loss.distance), NULL)
    is_amplified = is_guarantee(leaf) and not isinstance(loss, GaussianLoss) and not is_epoch(leaf)
    return amplified(leaf) if is_amplified else _sampled(family, leaf, loss.distance)


def _reason(leaf: Leaf, loss: PrivacyLoss) -> str | None:
    """Why no pair is known here of what is only declared, or of noise on whole numbers, or None."""
    if not leaf.mechanism.CAN_BE_SAMPLED or isinstance(loss, ConcentratedLoss):
        return _declared_reason(leaf, loss)
    if isinstance(leaf.mechanism, CorrelatedNoise):
        return correlated_reason(leaf, leaf.mechanism)
    if isinstance(loss, IntegerLoss):
        return _integer_reason(leaf, loss)
    if isinstance(loss, JointLoss) and leaf.group * loss.epsilon > LARGEST_JOINT_LAPLACE:
        return f"with Gaussian noise of the same sample, Laplace noise may be moved by at most {LARGEST_JOINT_LAPLACE:g} of its scales here"
    return guarantee_reason(leaf) if is_guarantee(leaf) and not leaf.is_whole else None


def _declared_reason(leaf: Leaf, loss: PrivacyLoss) -> str | None:
    """Why what is only declared has no dominating pair here, or None."""
    if isinstance(leaf.mechanism, Selection):
        return "the best of several runs has no dominating pair that is known here: only its Renyi divergences compose"
    if not leaf.is_whole:
        return f"what a sample of {leaf.mechanism.kind} guarantees isn't known here: declare the guarantee of what was run on the sample"
    if isinstance(loss, ConcentratedLoss):
        return "zCDP bounds only Renyi divergences, and no dominating pair of it is known here"
    if isinstance(loss, FailingLoss):
        return "an (epsilon, delta) guarantee may fail, and has a dominating pair only where it doesn't"
    return None


def _integer_reason(leaf: Leaf, loss: IntegerLoss) -> str | None:
    """Why noise on whole numbers has no pair here in this leaf, or None."""
    stated = leaf.mechanism.contribution if isinstance(leaf.mechanism, IntegerNoise) and not leaf.is_whole else None
    if leaf.group > LARGEST_INTEGER_GROUP or 4 * leaf.group * max(loss.moves, stated or 0) > LARGEST_INTEGER_TABLE:
        return (
            f"a unit that moves whole numbers this far, or groups of more than {LARGEST_INTEGER_GROUP} units, have too large a table: "
            f"units times moves must be at most {LARGEST_INTEGER_TABLE // 4}"
        )
    return None


def _sampled(family: Density, leaf: Leaf, move: float) -> Pair | str:
    if leaf.scheme == "poisson":
        return poisson(family, leaf, move)
    if leaf.group > 1 and leaf.scheme == "fixed_size":
        return fixed_size_group(family, leaf, move)
    if leaf.scheme == "truncated_poisson":
        return truncated(family, leaf, move)
    if leaf.scheme == "random_allocation":
        return allocated(family, leaf, move)
    if leaf.scheme == "randomly_weighted":
        return weighted(family, leaf, move)
    return fixed_size(family, leaf.probability, move, leaf.mechanism.neighbours[0])


def _local(family: Density, move: float, leaf: Leaf) -> Pair | str:
    """Row 7: the record's own pair, shown with the probability that it is in the sample (and that its output reveals anything)."""
    if leaf.group > 1:
        # A group of whole or Poisson-sampled local releases is that many releases; ``events.leaves`` returns it as such.
        return "groups of local releases with samples of a fixed or a largest size have no dominating pair that is proved here"
    shown = leaf.mechanism.privacy_loss().shown
    if leaf.probability < 1.0:
        shown = max(math.nextafter(shown * leaf.probability, math.inf), SMALLEST_WEIGHT)
    return Pair(family, Mixture((1.0,), (move,)), NULL, shown=min(shown, 1.0))


def _shuffled(leaf: Leaf) -> Pair | str:
    """That of one whole release an epoch: given the order, every other batch is the same. proofs/shuffled.md, 1."""
    loss = leaf.mechanism.privacy_loss()
    reason = None if leaf.mechanism.CAN_BE_SAMPLED else _declared_reason(leaf, loss)
    if isinstance(leaf.mechanism, CorrelatedNoise):
        reason = correlated_reason(leaf, leaf.mechanism)
    if reason is not None:
        return reason
    if leaf.mechanism.neighbours[0] is Adjacency.ADD_REMOVE:
        return (
            "shuffled batches under add_remove have no guarantee that is proved here: one record more moves others to the next batches, or "
            "changes the batches' sizes. Under zero_out and replace_one they have that of one whole release an epoch"
        )
    if leaf.group > 1 and not isinstance(loss, GaussianLoss | LaplaceLoss | JointLoss | ResponseLoss):
        return (
            "groups with shuffled batches have no dominating pair that is proved here, but for Gaussian and Laplace noise, "
            "GDP and pure epsilon-DP"
        )
    (whole,) = unshuffled({leaf: 1})
    return _resolved(whole)
