r"""A sharper profile of the best of a Poisson number of runs: m times the mean of the base's delta at a random epsilon.

For every y > 0, with rho = 1 / (e^y - 1), X of exponential law with rate rho, and tau = epsilon + y - m delta(y),

    delta_best(epsilon) <= m E delta(tau - X).

proofs/selected.md, section 3. As y goes to 0 it is m delta(epsilon - m delta(0)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.mechanisms.numerics import logspace

Floats = NDArray[np.float64]

_POINTS = 16
"""The fewest points of the base's profile that are asked for between 0 and epsilon less its shift; as many again beyond."""

_CHOICES = (0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""y in steps between two points: any y is sound."""

_ROUNDING = 1e-10
"""Relative allowance for the mean: differences of exponentials at neighbouring points lose up to five digits of sixteen."""

EPSILONS = (1e-3, 200.0)
"""Below them neighbouring points are too near for their differences' digits, beyond them products of e^epsilon are too large for floats."""


def log_delta_upper(mean: float, log_delta: Callable[[float], float], epsilon: float) -> float:
    """log of the smallest of these bounds; 0 where none says anything.

    Args:
      mean: of the number of runs.
      log_delta: upper bounds on log delta(t) of one run, for t >= 0; asked for at multiples of powers of two, again and again.
      epsilon: >= 0.
    """
    if not EPSILONS[0] <= epsilon <= EPSILONS[1]:
        return 0.0
    # What is left of epsilon for the base, or a share of it where nothing is: any points are sound.
    reach = max(epsilon - mean * _asked(log_delta, 0.0), 0.125 * epsilon)
    step = 2.0 ** math.floor(math.log2(reach / _POINTS))
    points = np.asarray(step * np.arange(math.ceil(min(2.0 * reach, epsilon) / step) + 2), dtype=np.float64)
    values = np.array([_asked(log_delta, float(t)) for t in points])
    least = min(_mean(mean, points, values, epsilon, choice * step) for choice in _CHOICES)
    return min(math.log(mean) + math.log(least), 0.0) if least < 1.0 else 0.0


def _asked(log_delta: Callable[[float], float], t: float) -> float:
    deadline.check()
    return min(logspace.exp_up(log_delta(t)), 1.0)


def _mean(mean: float, points: Floats, values: Floats, epsilon: float, y: float) -> float:
    """E delta(tau - X), rounded up; delta is convex in e^t, so it lies below its chords between the points."""
    ends, slopes = np.exp(points), np.diff(values) / np.diff(np.exp(points))
    k = min(int(np.searchsorted(points, y, side="right")) - 1, len(slopes) - 1)
    moved = mean * max(values[k] + slopes[k] * (math.exp(y) - ends[k]), 0.0)
    tau = epsilon + y - moved - 1e-14 * (epsilon + y + moved)
    if tau <= 0.0:
        return 1.0
    rho = 1.0 / math.expm1(y)
    # Below 0 delta is at most 1, and beyond the last point at most its value there.
    total = math.exp(-rho * tau) + (values[-1] * -math.expm1(-rho * (tau - points[-1])) if tau > points[-1] else 0.0)
    low, high = points[:-1], np.minimum(points[1:], tau)
    used = low < high
    low, high, first, slope = low[used], high[used], values[:-1][used], slopes[used]
    weight = np.exp(-rho * (tau - high)) * -np.expm1(-rho * (high - low))
    # The mean of e^t over the interval, minus e^low: rho / (rho + 1) of the weight with rate rho + 1.
    above = rho / (rho + 1.0) * np.exp(high - rho * (tau - high)) * -np.expm1(-(rho + 1.0) * (high - low)) - np.exp(low) * weight
    return min((total + math.fsum(first * weight + slope * above)) * (1.0 + _ROUNDING) + _ROUNDING * math.fsum(first * weight), 1.0)
