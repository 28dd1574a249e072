"""Where a curve of delta that is bracketed everywhere falls to a given delta; and what two proved brackets say together."""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias

from zetadp.mechanisms.errors import ContradictoryBounds

Ends: TypeAlias = tuple[float, float]


class Curve(Protocol):
    """A contour, or several together."""

    @property
    def period(self) -> float:
        """How far from its centre it says anything."""
        ...

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """About log delta there, and its slope."""
        ...

    def bracket(self, epsilon: float) -> Ends:
        """Proved bounds on log delta."""
        ...


def root_near(curve: Curve, log_delta: float, epsilon: float) -> float:
    """About the epsilon at which the estimate is ``log_delta``, from a first guess; guarded Newton steps."""
    low, high = -math.inf, math.inf
    for _ in range(60):
        value, slope = curve.estimate(epsilon)
        low, high = (epsilon, high) if value > log_delta else (low, epsilon)
        back = 0.25 * curve.period if value > log_delta else -0.25 * curve.period
        step = (log_delta - value) / slope if slope < 0.0 and math.isfinite(value) else back
        moved = epsilon + min(max(step, -0.25 * curve.period), 0.25 * curve.period)
        if abs(moved - epsilon) <= 1e-13 * abs(moved):
            return moved
        if not low < moved < high:
            moved = 0.5 * (low + high)
        epsilon = moved
    return epsilon


def around(curve: Curve, root: float, log_delta: float) -> Ends:
    """(lower, upper) of epsilon at this delta, from steps around the estimates' root >= 0; 0 and infinity as far as nothing is proved."""
    low, high = curve.bracket(root)
    slope = min(curve.estimate(root)[1], -1e-300)
    least = 4e-16 * root + 1e-300
    upper, step = math.inf, 1.01 * max((high - log_delta) / -slope, least)
    while step < curve.period:
        if curve.bracket(root + step)[1] <= log_delta:
            upper = root + step
            break
        step *= 2.0
    if low > log_delta:
        return root, upper
    lower = root - 1.01 * max((log_delta - low) / -slope, least) if math.isfinite(low) else 0.0
    while lower > 0.0 and not curve.bracket(lower)[0] > log_delta:
        lower = 0.0 if root - lower > 0.1 * root else root - 2.0 * (root - lower)
    return max(lower, 0.0), upper


def agreed(quantity: str, one: Ends, other: Ends) -> Ends:
    """What both brackets of the same number say.

    Raises:
      ContradictoryBounds: they have no number in common.

    >>> agreed("epsilon", (0.0, 2.0), (1.0, 3.0))
    (1.0, 2.0)
    """
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if not low <= high:
        raise ContradictoryBounds(quantity, low, high)
    return low, high
