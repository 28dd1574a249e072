"""The largest privacy loss of a pair that has one: pure epsilon-DP, and the bounded direction of a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.pairs import Pair

_LOST = 1e-12
"""Relative allowance for a sum of weights times exponentials; that of a weight which stands for 1 minus the others is absolute, 8 units."""

_LARGEST_SHIFT = 700.0


def pure_epsilon(pair: Pair) -> float:
    """The largest privacy loss of a pair in either direction, rounded up; infinite for a Gaussian.

    >>> from zetadp.accountants.densities import LAPLACE
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> half = Mixture((0.5, 0.5), (0.0, 1.0))
    >>> round(pure_epsilon(Pair(LAPLACE, half, Mixture((1.0,), (0.0,)))), 6)
    0.620115
    """
    # Where a pair isn't shown its loss is 0.
    own = pair.family.largest_loss(pair.upper, pair.lower)
    return own if pair.crowded is None else max(own, pure_epsilon(pair.crowded.pair))


def largest_loss(pair: Pair) -> float:
    """The largest log dP/dQ in this order, rounded up: finite for any noise where Q has every copy that P has.

    >>> from zetadp.accountants.densities import GAUSSIAN
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> sampled = Mixture((0.75, 0.25), (-1.0, 0.0))
    >>> round(largest_loss(Pair(GAUSSIAN, Mixture((1.0,), (0.0,)), sampled)), 6), largest_loss(Pair(GAUSSIAN, sampled.mirrored, sampled))
    (1.386294, inf)
    """
    if pair.crowded is not None:
        return max(largest_loss(pair.uncrowded), largest_loss(pair.crowded.pair))
    below = dict(zip(pair.lower.shifts, pair.lower.weights, strict=True))
    if pair.worst_of_both:
        return pure_epsilon(pair)
    # The log ratio never decreases along the line.
    end = _right_end(pair)
    known = pure_epsilon(pair) if end is None else min(max(end[0] + end[1], 0.0), pure_epsilon(pair))
    if not all(shift in below for shift in pair.upper.shifts):
        return known
    # P is at most the largest ratio of a copy's two weights times those copies of Q. A weight that stands for 1 minus the others is off by
    # up to a unit of 1, not of itself.
    pairs = [(weight, below[shift]) for weight, shift in zip(pair.upper.weights, pair.upper.shifts, strict=True)]
    largest = max(math.log(p / q) + 4.0 * UNIT * (1.0 / p + 1.0 / q) for p, q in pairs)
    return min(largest + 4.0 * UNIT * (1.0 + abs(largest)), known)


def least_loss(pair: Pair) -> float:
    """The smallest log dP/dQ, rounded down: the negative of the largest in the other order."""
    if pair.crowded is not None:
        return min(least_loss(pair.uncrowded), least_loss(pair.crowded.pair))
    return -largest_loss(Pair(pair.family, pair.lower.mirrored, pair.upper.mirrored, pair.worst_of_both, pair.shown))


def epsilon_from_largest(pairs: Sequence[tuple[Pair, int]], log_delta: float) -> float:
    """An epsilon up to which delta is above e^log_delta, as all releases together show their largest losses; 0 if that says nothing.

    delta(eps) >= p (1 - e^{eps - l}) where l is the sum of the largest losses and p the probability of all of them. proofs/fft.md, 0
    """
    found = _all_largest(pairs)
    if found is None:
        return 0.0
    loss, log_probability = found
    share = log_delta - log_probability
    return max(0.0, (loss + math.log1p(-math.exp(share)) * (1.0 + 1e-12)) * (1.0 - 8.0 * UNIT)) if share < -1.0 else 0.0


def log_delta_from_largest(pairs: Sequence[tuple[Pair, int]], epsilon: float) -> float:
    """Lower bound on log delta(epsilon), as all releases together show their largest losses; -inf if that says nothing."""
    found = _all_largest(pairs)
    # What an epsilon is below the loss is rounded once.
    if found is None or not (gap := (found[0] - epsilon) * (1.0 - 4.0 * UNIT)) > 0.0:
        return -math.inf
    value = math.log(-math.expm1(-gap))
    return found[1] + value - 1e-14 * (1.0 + abs(value) + abs(found[1]))


def _all_largest(pairs: Sequence[tuple[Pair, int]]) -> tuple[float, float] | None:
    """(the sum of all largest losses, log of the probability of all), rounded down; None where a pair has no atom there."""
    found = [(largest_atom(pair), count) for pair, count in pairs]
    atoms = [(atom, count) for atom, count in found if atom is not None]
    if len(atoms) < len(found):
        return None
    loss = math.fsum(count * atom[0] for atom, count in atoms) * (1.0 - 8.0 * UNIT)
    return loss, math.fsum(count * atom[1] for atom, count in atoms) * (1.0 + 8.0 * UNIT)


def largest_atom(pair: Pair) -> tuple[float, float] | None:
    """(the loss at the right end of the line, rounded down, and the logarithm of its probability under P, rounded down), of Laplace noise.

    >>> from zetadp.accountants.densities import LAPLACE
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> loss, log_probability = largest_atom(Pair(LAPLACE, Mixture((0.5, 0.5), (0.0, 1.0)), Mixture((1.0,), (0.0,))))
    >>> round(loss, 6), round(math.exp(log_probability), 6)
    (0.620115, 0.34197)
    """
    end, tail = _right_end(pair), pair.family.exponential_tail
    if end is None or tail is None or pair.shown < 1.0:
        return None
    loss, top = end[0] - end[1], pair.upper.shifts[-1]
    probability = tail * math.fsum(w * math.exp(a - top) for w, a in zip(pair.upper.weights, pair.upper.shifts, strict=True))
    # The weight that stands for 1 minus the others, at 0, is off by some units of 1: as much of 1 as that copy has there.
    probability = probability * (1.0 - _LOST) - 8.0 * UNIT * tail * math.exp(-top)
    return (loss, math.log(probability) - 8.0 * UNIT) if loss > 0.0 and probability > 0.0 else None


def _right_end(pair: Pair) -> tuple[float, float] | None:
    """(log dP/dQ beyond the last shift, by how much it may be off) of Laplace noise, in this order."""
    if pair.family.exponential_tail is None or pair.worst_of_both or pair.crowded is not None:
        return None
    shifts = *pair.upper.shifts, *pair.lower.shifts
    if max(shifts) - min(shifts) > _LARGEST_SHIFT or any(
        len(side.shifts) > 1 and 0.0 not in side.shifts for side in (pair.upper, pair.lower)
    ):
        return None
    # From the last shift on every copy is e^{a - x} times one number.
    own, other = _gain(pair.upper), _gain(pair.lower)
    return own - other, 1e-13 * (abs(own) + abs(other)) + 16.0 * UNIT * (2.0 + math.exp(-own) + math.exp(-other))


def _gain(mixture: Mixture) -> float:
    """log sum of w e^a; of several copies the one that didn't move stands for 1 minus the others, which loses no digits near 0."""
    if len(mixture.weights) == 1:
        return mixture.shifts[0]
    return math.log1p(math.fsum(w * math.expm1(a) for w, a in zip(mixture.weights, mixture.shifts, strict=True)))
