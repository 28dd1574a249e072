r"""Samples of what only a guarantee is declared of. proofs/pairs.md, row 10."""

from __future__ import annotations

import math

from zetadp.accountants.densities import density_of
from zetadp.accountants.dominating.shapes import NULL, at
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.declared.correlated import CorrelatedNoise
from zetadp.mechanisms.loss import GaussianLoss, IntegerLoss, ResponseLoss

_LARGE = 700.0
"""Epsilons from which on e^epsilon is not computed."""


def is_guarantee(leaf: Leaf) -> bool:
    """Whether nothing but a guarantee is known of what was released."""
    known = isinstance(leaf.mechanism, CorrelatedNoise) or isinstance(leaf.mechanism.privacy_loss(), IntegerLoss)
    return isinstance(leaf.mechanism, Declared) and not known


def is_epoch(leaf: Leaf) -> bool:
    """Whether it is bounded as one whole release, which nobody is left out of: proofs/allocation.md, (R1)."""
    return leaf.scheme == "random_allocation" and leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE


def guarantee_reason(leaf: Leaf) -> str | None:
    """Why no pair is known here of this sample of a guarantee, or None."""
    if is_epoch(leaf):
        return None
    loss, adjacency, is_fixed = leaf.mechanism.privacy_loss(), leaf.mechanism.neighbours[0], leaf.scheme == "fixed_size"
    if not is_fixed and adjacency is not Adjacency.ADD_REMOVE:
        return (
            f"such a sample may leave the unit out, and a guarantee under {adjacency.value} says nothing of data without it: declare it "
            "under add_remove, or sample a fixed size"
        )
    if not isinstance(loss, GaussianLoss) and (leaf.scheme not in ("poisson", "fixed_size") or (is_fixed and leaf.group > 1)):
        return f"{leaf.scheme} samples of pure epsilon-DP, or groups with a fixed size, have no dominating pair that is proved here"
    return None


def correlated_reason(leaf: Leaf, noise: CorrelatedNoise) -> str | None:
    """Why no pair is known here of samples of correlated noise, or None. proofs/correlated.md."""
    if leaf.is_whole:
        return None
    if not noise.is_banded:
        given = "a BLT" if noise.buffers else "the inverse of a band" if noise.inverse_coefficients else "more of them"
        return (
            f"samples of correlated_noise are proved for bands alone, of at most min_separation coefficients: with {given} a unit's turns "
            "share rows, and are no releases of their own"
        )
    if leaf.scheme not in ("poisson", "random_allocation"):
        return f"{leaf.scheme} samples of correlated_noise aren't proved here: only poisson_sampled and randomly_allocated are"
    if leaf.scheme == "poisson" and noise.adjacency is Adjacency.REPLACE_ONE:
        return "Poisson samples of correlated_noise under replace_one aren't supported here: nothing says what one unit alone contributes"
    return None


def amplified(leaf: Leaf) -> Pair:
    """The pair of a sample of what is epsilon-DP, which ``guarantee_reason`` has nothing against."""
    adjacency, is_fixed, epsilon = leaf.mechanism.neighbours[0], leaf.scheme == "fixed_size", leaf.mechanism.privacy_loss().pure_epsilon
    assert epsilon is not None  # nothing else that is declared can be sampled
    is_zeroed = adjacency is Adjacency.ZERO_OUT
    displaces = is_fixed and (adjacency is Adjacency.ADD_REMOVE or is_zeroed)
    distance = leaf.group * _amplified(2.0 * epsilon if displaces else epsilon, leaf.probability)
    if is_fixed and is_zeroed:
        distance = min(distance, epsilon)
    response = density_of(ResponseLoss(distance))
    assert response is not None  # it has one at every distance
    return Pair(response, at(distance), NULL)


def _amplified(epsilon: float, q: float) -> float:
    """log(1 + q (e^epsilon - 1)), to a few units in the last place."""
    return math.log1p(q * math.expm1(epsilon)) if epsilon < _LARGE else epsilon + math.log(q + (1.0 - q) * math.exp(-epsilon))
