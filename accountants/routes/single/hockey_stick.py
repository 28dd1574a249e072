r"""delta of one release: H_{e^eps}(P || Q) of a dominating pair at any real epsilon, with a proved error. Vectorised.

With x the point where log dP/dQ = eps, b the largest shift of Q and S the upper tail of f,

    H = sum_j p_j (S(x - a_j) - e^{z_j} S(x - b)) + e^eps sum_j q_j (e^{y_j} S(x - b) - S(x - b_j)),

z_j and y_j the log densities of the components relative to f(x - b): every term is >= 0 and components at b cancel, so sparse samples
keep their digits. Whatever x comes out, l = log dP/dQ(x) is computed anew: the formula is H at l, a bound on the error of l makes it a
bound at eps. proofs/fft.md, section 1.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray

from accountants.pairs import Family, Mixture, Pair

Floats = NDArray[np.float64]

UNIT = 2.0**-53
"""Rounding unit of float64; all constants in units of it below are twice or more what proofs/fft.md derives."""

TINY = 1e-300
"""Added to every error: products that underflow lose at most this."""

_REACH = 38.0
"""Beyond it from every shift the normal tail underflows."""

_LAPLACE_REACH = 700.0
_TABLE_NODES = 512
_NEWTON_STEPS = 4


@final
@dataclass(frozen=True)
class Calls:
    r"""Values at several epsilons, all of one shape.

    Attributes:
      lower: at most H_{e^eps}(P || Q).
      upper: at least H_{e^eps}(P || Q).
      tail: about e^eps Q(L > eps): H(eps') >= lower + tail (1 - e^{eps' - eps}) for every eps' ...
      doubt: ... but for the rounding of ``tail``, of which this is a bound.
    """

    lower: Floats
    upper: Floats
    tail: Floats
    doubt: Floats


def reverse(pair: Pair) -> Pair:
    """(Q, P), mirrored so that its log ratio increases again."""
    if pair.worst_of_both:
        return pair
    return Pair(pair.family, pair.lower.mirrored, pair.upper.mirrored, shown=pair.shown)


def calls(pair: Pair, epsilons: Floats) -> Calls:
    r"""H_{e^eps}(P || Q) at each epsilon >= 0; for ``worst_of_both`` the larger of both orders.

    >>> pair = Pair(Family.GAUSSIAN, Mixture((1.0,), (1.0,)), Mixture((1.0,), (0.0,)))
    >>> round(float(calls(pair, np.array([1.0])).upper[0]), 12)
    0.126936737507
    """
    if pair.shown < 1.0:
        return _shown(calls(Pair(pair.family, pair.upper, pair.lower), epsilons), pair.shown, epsilons)
    if pair.family is Family.RESPONSE:
        return _response(pair.distance, epsilons)
    if not pair.worst_of_both:
        return _calls(pair, epsilons)
    one = Pair(pair.family, pair.upper, pair.lower)
    first, second = _calls(one, epsilons), _calls(reverse(one), epsilons)
    larger = first.lower >= second.lower
    return Calls(
        np.maximum(first.lower, second.lower),
        np.maximum(first.upper, second.upper),
        np.where(larger, first.tail, second.tail),
        np.where(larger, first.doubt, second.doubt),
    )


def puts(pair: Pair, epsilons: Floats) -> Calls:
    r"""H_{e^eps}(P || Q) - 1 + e^eps = E[(e^{eps - L} - 1)_+] at each epsilon < 0: small where calls are near 1.

    They are the calls of (Q, P) at -eps, times e^eps; ``tail`` is about e^eps Q(L < eps), and the tangent rises with it.
    """
    there = calls(reverse(pair), -epsilons)
    factor = np.exp(epsilons)
    up, down = 1.0 + 4.0 * UNIT, 1.0 - 4.0 * UNIT
    return Calls(
        there.lower * factor * down, there.upper * factor * up + TINY, (there.lower + there.tail) * factor, 2.0 * there.doubt * factor
    )


def _response(distance: float, epsilons: Floats) -> Calls:
    """Randomized response: (1 - e^{eps - distance}) / (1 + e^-distance) between -distance and distance, 0 and 1 - e^eps outside. (1.5)"""
    likely = 1.0 / (1.0 + math.exp(-distance))
    low, high = epsilons < -distance, epsilons >= distance
    ahead = np.clip(epsilons - distance, -2.0 * distance, 0.0)
    value = np.where(low, -np.expm1(np.minimum(epsilons, 0.0)), -np.expm1(ahead) * likely)
    tail = np.where(high, 0.0, np.where(low, np.exp(np.minimum(epsilons, 0.0)), np.exp(ahead) * likely))
    rounding = 8.0 * UNIT * value
    return Calls(np.where(high, 0.0, value - rounding), np.where(high, 0.0, value + rounding + TINY), tail, 16.0 * UNIT * tail)


def _shown(base: Calls, shown: float, epsilons: Floats) -> Calls:
    """(1 - shown) (1 - e^eps)_+ + shown H: calls of a pair that is shown with this probability. (1.6)"""
    rest = (1.0 - shown) * np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
    slope = np.where(epsilons < 0.0, (1.0 - shown) * np.exp(np.minimum(epsilons, 0.0)), 0.0)
    lower, upper = rest + shown * base.lower, rest + shown * base.upper
    tail = slope + shown * base.tail
    some = np.where(upper > 0.0, TINY, 0.0)
    return Calls(lower * (1.0 - 8.0 * UNIT), upper * (1.0 + 8.0 * UNIT) + some, tail, shown * base.doubt + 8.0 * UNIT * tail)


def _calls(pair: Pair, epsilons: Floats) -> Calls:
    x = thresholds(pair, epsilons)
    loss, error = log_ratio(pair, x)
    value, rounding, tail = _value(pair, x, loss, error)
    # (1.3) a threshold that is off by any amount makes the formula too small, never too large.
    # (capped where it is beyond any value anyway)
    beyond = np.expm1(np.minimum(epsilons - loss + error, 700.0)) * tail
    lower = value - beyond - 1e-12 * np.abs(beyond) - rounding
    # (1.2) H at the certified loss l - error <= eps is an upper bound; where l isn't certified to be below eps, (1.4) adds the slope.
    excess = np.maximum(loss + error - epsilons, 0.0)
    upper = value + rounding + 2.0 * error * tail
    late = excess > 0.0
    if late.any():
        upper[late] += excess[late] * (1.0 + 1e-9) * _tail_before(pair, x[late], epsilons[late])
    # A line that is 0 or less at eps says no more than that H >= 0 does.
    tail = np.where(lower > 0.0, tail * np.exp(np.minimum(epsilons - loss, 600.0)), 0.0)
    upper = np.where(epsilons >= _largest_loss(pair), 0.0, np.minimum(upper, 1.0))
    doubt = UNIT * tail * (16.0 + 4.0 * np.abs(loss) + 4.0 * np.square(x - pair.lower.shifts[0]))
    return Calls(np.minimum(np.maximum(lower, 0.0), upper), upper, tail, doubt)


@lru_cache(maxsize=256)
def _largest_loss(pair: Pair) -> float:
    """Certified to be at or above every loss; infinite for Gaussian noise, whose losses approach theirs too slowly to matter."""
    if pair.family is not Family.LAPLACE:
        return math.inf
    loss, error = log_ratio(pair, np.array([pair.upper.shifts[-1] + 1.0]))
    return float(loss[0] + error[0])


def _value(pair: Pair, x: Floats, loss: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """(the formula above, bound on its rounding, e^loss Q(X > x))."""
    family, upper, lower = pair.family, pair.upper, pair.lower
    base = lower.shifts[-1]
    _, relative = _tail(family, x - base, np.zeros_like(x))
    total, rounding = np.zeros_like(x), np.full_like(x, TINY)
    for weight, shift in zip(upper.weights, upper.shifts, strict=True):
        if shift == base:
            continue
        z, spread = _relative(family, x - base, shift - base)
        near, own = _tail(family, x - shift, np.zeros_like(x))
        total += weight * np.maximum(near - _tail(family, x - base, z)[0], 0.0)
        rounding += weight * near * (own + relative + UNIT * (4.0 + spread + 2.0 * np.abs(z)))
        rounding += _remainder_error(upper, shift) * near
    tail = _weight_at_top(lower) * _tail(family, x - base, loss)[0]
    for weight, shift in zip(lower.weights[:-1], lower.shifts[:-1], strict=True):
        z, spread = _relative(family, x - base, shift - base)
        far, own = _tail(family, x - shift, loss)
        near = _tail(family, x - base, loss + z)[0]
        total += weight * np.maximum(near - far, 0.0)
        rounding += weight * near * (own + relative + 2.0 * error + UNIT * (4.0 + spread + 2.0 * np.abs(z) + 2.0 * np.abs(loss)))
        rounding += _remainder_error(lower, shift) * near
        tail += weight * far
    return total, rounding, tail


def _remainder_error(mixture: Mixture, shift: float) -> float:
    """Absolute error of a weight that stands for 1 minus the others."""
    return 4.0 * UNIT if shift == 0.0 and len(mixture.weights) > 1 else 0.0


def _weight_at_top(mixture: Mixture) -> float:
    return mixture.weights[-1]


def _tail(family: Family, x: Floats, log_factor: Floats) -> tuple[Floats, Floats]:
    """(e^log_factor S(x), bound on the relative error of S): scipy's ndtr is off by up to 1.5 x^2 units as measured; allowed are 3 x^2.

    A factor or a tail that leaves the range of floats is joined with the other before the exponential is taken.
    """
    if family is Family.GAUSSIAN:
        error = UNIT * (8.0 + 3.0 * np.square(np.maximum(x, 0.0)))
        result = np.exp(np.minimum(log_factor, 600.0)) * scipy.special.ndtr(-x)
        wide = (log_factor > 300.0) | (x > 30.0)
        if wide.any():
            result[wide] = np.exp(np.minimum(log_factor[wide] + scipy.special.log_ndtr(-x[wide]), 600.0))
        return result, error
    far = 0.5 * np.exp(np.minimum(log_factor, 600.0) - np.abs(x))
    whole = np.exp(np.minimum(log_factor, 600.0))
    return np.where(x > 0.0, far, whole - far), UNIT * (4.0 + np.maximum(x, 0.0))


def _relative(family: Family, x: Floats, shift: float) -> tuple[Floats, Floats]:
    """(log f(x - shift) - log f(x), bound on its error in units of ``UNIT``)."""
    if family is Family.GAUSSIAN:
        return shift * (x - 0.5 * shift), 4.0 * abs(shift) * (np.abs(x) + abs(shift))
    size = abs(shift)
    z = np.clip(2.0 * x - shift if shift > 0.0 else shift - 2.0 * x, -size, size)
    return z, np.full_like(x, 8.0 * size)


def log_ratio(pair: Pair, x: Floats) -> tuple[Floats, Floats]:
    """(log dP/dQ at x, bound on its absolute error)."""
    top, top_error = _log_mixture(pair.family, pair.upper, x)
    bottom, bottom_error = _log_mixture(pair.family, pair.lower, x)
    loss = top - bottom
    return loss, top_error + bottom_error + 2.0 * UNIT * np.abs(loss)


def _log_mixture(family: Family, mixture: Mixture, x: Floats) -> tuple[Floats, Floats]:
    """(log of a mixture's density relative to f(x), bound on its absolute error).

    The weight at shift 0 stands for 1 minus the others: log(1 + sum of w_j (e^{z_j} - 1)), unless that weight is small itself.
    """
    terms = [(w, s, *_relative(family, x, s)) for w, s in zip(mixture.weights, mixture.shifts, strict=True) if s != 0.0]
    if not terms:
        return np.zeros_like(x), np.zeros_like(x)
    if len(mixture.weights) == 1:
        return terms[0][2], UNIT * terms[0][3]
    rest = next((w for w, s in zip(mixture.weights, mixture.shifts, strict=True) if s == 0.0), 0.0)
    peak = np.maximum(0.0, np.max([z for _, _, z, _ in terms], axis=0))
    shares = [w * np.exp(z - peak) for w, _, z, _ in terms]
    total = np.sum(shares, axis=0) + rest * np.exp(-peak)
    spread: Floats = (
        sum((share * (extra + np.abs(z)) for share, (_, _, z, extra) in zip(shares, terms, strict=True)), np.zeros_like(x)) / total
    )
    value = peak + np.log(total)
    # The last term: 1 minus the others, as a float, may have lost digits next to a small weight.
    error: Floats = UNIT * (spread + 8.0 + 2.0 * np.abs(peak) + 4.0 * np.exp(-peak) / total)
    if rest >= 0.5:
        minus_one = sum((w * np.expm1(np.minimum(z, 600.0)) for w, _, z, _ in terms), np.zeros_like(x))
        exact = peak < 30.0
        value = np.where(exact, np.log1p(np.where(exact, minus_one, 0.0)), value)
        # d log(1 + m) = dm / (1 + m), with m off by its own roundings and by those of z.
        own = sum((w * np.abs(np.expm1(np.minimum(z, 30.0))) for w, _, z, _ in terms), np.zeros_like(x))
        precise = UNIT * (spread + (4.0 + len(terms)) * own * np.exp(-np.minimum(value, 30.0)) + 4.0 * np.abs(value))
        error = np.where(exact, precise, error)
    return value, error


def _tail_before(pair: Pair, x: Floats, epsilons: Floats) -> Floats:
    """Upper bound on e^eps Q(L > eps): of Q beyond a point where the loss is certified to be below eps."""
    # e^eps Q(L > eps) <= P(L > eps) <= 1.
    result = np.exp(np.minimum(epsilons, 0.0))
    left = np.arange(len(x))
    for back in (1e-6, 1e-2, 1.0, 10.0):
        before = x[left] - back
        loss, error = log_ratio(pair, before)
        good = loss + error <= epsilons[left]
        if good.any():
            _, _, tail = _value(pair, before[good], loss[good], error[good])
            found = left[good]
            ahead = epsilons[found] - loss[good]
            moved = np.where(ahead < 700.0, tail * np.exp(np.minimum(ahead, 700.0)) * (1.0 + 1e-9), math.inf)
            result[found] = np.minimum(result[found], moved)
        left = left[~good]
        if len(left) == 0:
            break
    return result


def thresholds(pair: Pair, epsilons: Floats) -> Floats:
    """Points x with log dP/dQ(x) about eps, clipped to where the tails end; nothing rests on their accuracy."""
    x = _closed_form(pair, epsilons)
    if x is None:
        x = _by_table(pair, epsilons)
    low, high = _window(pair)
    return np.clip(x, low, high)


def _window(pair: Pair) -> tuple[float, float]:
    reach = _REACH if pair.family is Family.GAUSSIAN else _LAPLACE_REACH
    return pair.lower.shifts[0] - reach, pair.upper.shifts[-1] + reach


def _closed_form(pair: Pair, epsilons: Floats) -> Floats | None:
    """One component against one, or against two of which one is the same."""
    if pair.family is not Family.GAUSSIAN:
        return None
    upper, lower = pair.upper, pair.lower
    if pair.is_whole:
        distance = upper.shifts[0] - lower.shifts[0]
        return epsilons / distance + 0.5 * (upper.shifts[0] + lower.shifts[0])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if len(upper.weights) == 2 and lower.shifts == (upper.shifts[0],):
            q, distance = upper.weights[1], upper.span
            # e^z = (e^eps - 1 + q) / q; beyond e^30 the logarithm of the ratio is eps - log q.
            z = np.where(epsilons < 30.0, np.log1p(np.expm1(np.minimum(epsilons, 30.0)) / q), epsilons - np.log(q))
            return upper.shifts[0] + np.nan_to_num(z, nan=-np.inf) / distance + 0.5 * distance
        if len(lower.weights) == 2 and upper.shifts == (lower.shifts[1],):
            q, distance = lower.weights[0], lower.span
            z = -np.log1p(np.expm1(-epsilons) / q)
            return upper.shifts[0] + np.nan_to_num(z, nan=np.inf) / distance - 0.5 * distance
    return None


def _by_table(pair: Pair, epsilons: Floats) -> Floats:
    """Interpolation of the log ratio in a table, then Newton steps that may not leave their interval."""
    nodes, losses = _table(pair)
    place = np.clip(np.searchsorted(losses, epsilons), 1, len(nodes) - 1)
    left, right = nodes[place - 1], nodes[place]
    rise = losses[place] - losses[place - 1]
    share = np.divide(epsilons - losses[place - 1], rise, out=np.full_like(epsilons, 0.5), where=rise > 0.0)
    x = left + np.clip(share, 0.0, 1.0) * (right - left)
    for _ in range(_NEWTON_STEPS):
        step = 1e-4 * (right - left)
        here, ahead = log_ratio(pair, x)[0], log_ratio(pair, x + step)[0]
        slope = (ahead - here) / step
        move = np.divide(epsilons - here, slope, out=np.zeros_like(x), where=slope > 0.0)
        x = np.clip(x + move, left, right)
    return x


@lru_cache(maxsize=64)
def _table(pair: Pair) -> tuple[Floats, Floats]:
    shifts = sorted({*pair.upper.shifts, *pair.lower.shifts})
    if pair.family is Family.GAUSSIAN:
        nodes = np.linspace(shifts[0] - _REACH, shifts[-1] + _REACH, _TABLE_NODES * min(len(shifts), 8))
    else:
        # The log ratio is constant outside of the shifts and has kinks at them.
        parts = [np.linspace(a, b, _TABLE_NODES) for a, b in itertools.pairwise(shifts)]
        nodes = np.unique(np.concatenate(parts))
    return nodes, np.maximum.accumulate(log_ratio(pair, nodes)[0])
