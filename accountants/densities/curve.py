r"""delta of one release of noise on the line: H_{e^eps}(P || Q) at any real epsilon, with a proved error. Vectorised.

With x the point where log dP/dQ = eps, b the largest shift of Q and S the upper tail of f,

    H = sum_j p_j (S(x - a_j) - e^{z_j} S(x - b)) + e^eps sum_j q_j (e^{y_j} S(x - b) - S(x - b_j)),

z_j and y_j the log densities of the components relative to f(x - b): every term is >= 0 and components at b cancel, so sparse samples
keep their digits. Whatever x results, l = log dP/dQ(x) is computed again: the formula is H at l, and a bound on the error of l makes it a
bound at eps. proofs/fft.md, section 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.base import TINY, Calls, Floats
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.noise import Noise

_NEWTON_STEPS = 4

_LARGEST_EXPONENT = 600.0
"""Exponentials up to this one's, and sums of them, are floats."""


def calls(noise: Noise, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
    r"""H_{e^eps}(P || Q) at each epsilon, for P = ``upper`` and Q = ``lower``, mixtures of this noise."""
    x = _thresholds(noise, upper, lower, epsilons)
    loss, error = log_ratio(noise, upper, lower, x)
    value, rounding, tail = _value(noise, upper, lower, x, loss, error)
    # (1.3) a threshold that is off by any amount makes the formula too small, never too large.
    # (capped where it exceeds every possible value anyway)
    beyond = np.expm1(np.minimum(epsilons - loss + error, 700.0)) * tail
    low = value - beyond - 1e-12 * np.abs(beyond) - rounding
    # (1.2) H at the certified loss l - error <= eps is an upper bound; where l isn't certified to be below eps, (1.4) adds the slope.
    excess = np.maximum(loss + error - epsilons, 0.0)
    high = value + rounding + 2.0 * error * tail
    late = excess > 0.0
    if late.any():
        high[late] += np.expm1(np.minimum(excess[late], 700.0)) * (1.0 + 1e-9) * _tail_before(noise, upper, lower, x[late], epsilons[late])
    # A line that is 0 or less at eps says no more than H >= 0.
    tail = np.where(low > 0.0, tail * np.exp(np.minimum(epsilons - loss, 600.0)), 0.0)
    high = np.where(epsilons >= _largest_loss(noise, upper, lower), 0.0, np.minimum(high, 1.0))
    doubt = UNIT * tail * (16.0 + 4.0 * np.abs(loss) + 4.0 * np.square(x - lower.shifts[0]))
    return Calls(np.minimum(np.maximum(low, 0.0), high), high, tail, doubt)


@lru_cache(maxsize=256)
def _largest_loss(noise: Noise, upper: Mixture, lower: Mixture) -> float:
    """Certified to be at or above every loss; infinite if there is no plateau: losses then approach their limit too slowly to matter."""
    ends = noise.plateaus(upper, lower)
    if ends is None:
        return math.inf
    loss, error = log_ratio(noise, upper, lower, np.array([ends[1]]))
    return float(loss[0] + error[0])


def _value(noise: Noise, upper: Mixture, lower: Mixture, x: Floats, loss: Floats, error: Floats) -> tuple[Floats, Floats, Floats]:
    """(the formula above, bound on its rounding, e^loss Q(X > x))."""
    base = lower.shifts[-1]
    _, relative = noise.tail(x - base, np.zeros_like(x))
    total, rounding = np.zeros_like(x), np.full_like(x, TINY)
    for weight, shift in zip(upper.weights, upper.shifts, strict=True):
        if shift == base:
            continue
        z, spread = noise.relative(x - base, shift - base)
        near, own = noise.tail(x - shift, np.zeros_like(x))
        total += weight * np.maximum(near - noise.tail(x - base, z)[0], 0.0)
        rounding += weight * near * (own + relative + UNIT * (4.0 + spread + 2.0 * np.abs(z)))
        rounding += _remainder_error(upper, shift) * near
    tail = _weight_at_top(lower) * noise.tail(x - base, loss)[0]
    for weight, shift in zip(lower.weights[:-1], lower.shifts[:-1], strict=True):
        z, spread = noise.relative(x - base, shift - base)
        far, own = noise.tail(x - shift, loss)
        near = noise.tail(x - base, loss + z)[0]
        total += weight * np.maximum(near - far, 0.0)
        rounding += weight * near * (own + relative + 2.0 * error + UNIT * (4.0 + spread + 2.0 * np.abs(z) + 2.0 * np.abs(loss)))
        rounding += _remainder_error(lower, shift) * near
        tail += weight * far
    return total, rounding, tail


def _remainder_error(mixture: Mixture, shift: float) -> float:
    """Absolute error of a weight that represents 1 minus the others."""
    return 4.0 * UNIT if shift == 0.0 and len(mixture.weights) > 1 else 0.0


def _weight_at_top(mixture: Mixture) -> float:
    return mixture.weights[-1]


def log_ratio(noise: Noise, upper: Mixture, lower: Mixture, x: Floats) -> tuple[Floats, Floats]:
    """(log dP/dQ at x, bound on its absolute error)."""
    top, top_error = _log_mixture(noise, upper, x)
    bottom, bottom_error = _log_mixture(noise, lower, x)
    loss = top - bottom
    return loss, top_error + bottom_error + 2.0 * UNIT * np.abs(loss)


def _log_mixture(noise: Noise, mixture: Mixture, x: Floats) -> tuple[Floats, Floats]:
    """(log of a mixture's density relative to f(x), bound on its absolute error).

    The weight at shift 0 represents 1 minus the others: log(1 + sum of w_j (e^{z_j} - 1)), unless that weight is itself small.
    """
    terms = [(w, s, *noise.relative(x, s)) for w, s in zip(mixture.weights, mixture.shifts, strict=True) if s != 0.0]
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
        # As far as floats reach: where w is tiny, log(1 + w e^z) is tiny too, and as the log of a sum near 1 it would have no digits.
        minus_one = sum((w * np.expm1(np.minimum(z, _LARGEST_EXPONENT)) for w, _, z, _ in terms), np.zeros_like(x))
        exact = peak < _LARGEST_EXPONENT
        value = np.where(exact, np.log1p(np.where(exact, minus_one, 0.0)), value)
        # d log(1 + m) = dm / (1 + m), with m off by its own roundings and by those of z.
        own = sum((w * np.abs(np.expm1(np.minimum(z, _LARGEST_EXPONENT))) for w, _, z, _ in terms), np.zeros_like(x))
        precise = UNIT * (spread + (4.0 + len(terms)) * own * np.exp(-np.minimum(value, _LARGEST_EXPONENT)) + 4.0 * np.abs(value))
        error = np.where(exact, precise, error)
    return value, error


def _tail_before(noise: Noise, upper: Mixture, lower: Mixture, x: Floats, epsilons: Floats) -> Floats:
    """Upper bound on e^eps Q(L > eps), from the mass of Q beyond a point where the loss is certified to be below eps."""
    # e^eps Q(L > eps) <= P(L > eps) <= 1.
    result = np.exp(np.minimum(epsilons, 0.0))
    left = np.arange(len(x))
    for back in (1e-6, 1e-2, 1.0, 10.0):
        before = x[left] - back
        loss, error = log_ratio(noise, upper, lower, before)
        good = loss + error <= epsilons[left]
        if good.any():
            _, _, tail = _value(noise, upper, lower, before[good], loss[good], error[good])
            found = left[good]
            ahead = epsilons[found] - loss[good]
            moved = np.where(ahead < 700.0, tail * np.exp(np.minimum(ahead, 700.0)) * (1.0 + 1e-9), math.inf)
            result[found] = np.minimum(result[found], moved)
        left = left[~good]
        if len(left) == 0:
            break
    return result


def _thresholds(noise: Noise, upper: Mixture, lower: Mixture, epsilons: Floats) -> Floats:
    """Points x with log dP/dQ(x) about eps, clipped to where the tails end; no bound depends on their accuracy."""
    x = noise.closed_thresholds(upper, lower, epsilons)
    if x is None:
        x = _by_table(noise, upper, lower, epsilons)
    return np.clip(x, lower.shifts[0] - noise.underflow, upper.shifts[-1] + noise.underflow)


def _by_table(noise: Noise, upper: Mixture, lower: Mixture, epsilons: Floats) -> Floats:
    """Interpolation of the log ratio in a table, then Newton steps that may not leave their interval."""
    nodes, losses = _table(noise, upper, lower)
    place = np.clip(np.searchsorted(losses, epsilons), 1, len(nodes) - 1)
    left, right = nodes[place - 1], nodes[place]
    rise = losses[place] - losses[place - 1]
    share = np.divide(epsilons - losses[place - 1], rise, out=np.full_like(epsilons, 0.5), where=rise > 0.0)
    x = left + np.clip(share, 0.0, 1.0) * (right - left)
    for _ in range(_NEWTON_STEPS):
        step = 1e-4 * (right - left)
        here, ahead = log_ratio(noise, upper, lower, x)[0], log_ratio(noise, upper, lower, x + step)[0]
        slope = (ahead - here) / step
        move = np.divide(epsilons - here, slope, out=np.zeros_like(x), where=slope > 0.0)
        x = np.clip(x + move, left, right)
    return x


@lru_cache(maxsize=64)
def _table(noise: Noise, upper: Mixture, lower: Mixture) -> tuple[Floats, Floats]:
    nodes = noise.table_nodes(sorted({*upper.shifts, *lower.shifts}))
    return nodes, np.maximum.accumulate(log_ratio(noise, upper, lower, nodes)[0])
