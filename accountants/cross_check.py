r"""An independent recomputation of epsilon, by numerical inversion of the moment function. It checks certificates; it never issues one.

With M(s) = E_P[e^{sL}] over the composed event,

    delta(eps) = 1/(2 pi i) int_{Re s = theta} M(s) e^{-s eps} / (s (s + 1)) ds,    theta > 0,

computed by the trapezoid rule through the real saddle point, for both directions of neighbours. If the unit's worst direction may change
from step to step, one symmetric pair represents both.

How independent it is: it shares the integral with ``contour`` but none of its code (it has its own contour, step, cut-off and quadrature
of M); it shares the quadrature of M at real s with ``rdp``, and nothing with ``fft`` and ``pld``. All share the meaning of an event
(``leaves`` and ``pair_of``). Its accuracy (about 1e-8 where it answers) is measured, not proved, so it gives a number and no bound. It
declines if the integrand doesn't decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.events import Event, leaves, non_private_reason
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import check_delta, check_epsilon
from zetadp.accountants.routes.rdp.moments import PairMoments
from zetadp.accountants.routes.rdp.rdp import RdpProfile
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.numerics.searching import least_between, root_between

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

ACCURACY = 1e-6
"""Relative accuracy of epsilon promised to callers; measured errors are far smaller."""

_DECAY = 1e-13
_MOST_POINTS, _BLOCK = 4096, 128


class _Direction:
    """The composed moment function of one direction: log M(s) = sum of count * log E_Q[(dM/dQ)^(s + 1)], or of power -s."""

    def __init__(self, parts: Mapping[Leaf, int], reach: float, *, removed: bool) -> None:
        self._removed = removed
        self._parts: list[tuple[PairMoments, int]] = []
        for leaf, count in parts.items():
            moments = PairMoments.of(pair_of(leaf), reach + 1.0)
            if moments is None:
                raise UnsupportedEvent("cross_check", "the noise is too small for the quadrature")
            self._parts.append((moments, count))

    def log_moment(self, s: float) -> float:
        power = s + 1.0 if self._removed else -s
        return sum(count * moments.log_moment(power) for moments, count in self._parts)

    def log_moment_complex(self, s: Complexes) -> Complexes:
        power = s + 1.0 if self._removed else -s
        total = np.zeros(s.shape, dtype=complex)
        for moments, count in self._parts:
            deadline.check()
            total += count * moments.log_moment_complex(power)
        return total

    def _exponent(self, s: Complexes, epsilon: float) -> Complexes:
        kernel: Complexes = np.log(s * (1.0 + s))
        return self.log_moment_complex(s) - s * epsilon - kernel

    def log_delta(self, epsilon: float, reach: float) -> float:
        """log delta(epsilon) of this direction."""

        def height(log_theta: float) -> float:
            s = math.exp(log_theta)
            return self.log_moment(s) - s * epsilon - log_theta - math.log1p(s)

        log_theta, peak = least_between(height, math.log(1e-4), math.log(reach), 1e-3)
        theta = math.exp(log_theta)
        # The spread of the tilted loss sets the step: aliases lie 2 pi / step away, beyond 16 deviations and 40 decay lengths.
        h = 1e-3 * theta
        curvature = (self.log_moment(theta + h) - 2.0 * self.log_moment(theta) + self.log_moment(theta - h)) / h**2
        step = 2.0 * math.pi / max(16.0 * math.sqrt(max(curvature, 0.0)), 40.0 / theta)
        total = 0.0
        for first in range(0, _MOST_POINTS, _BLOCK):
            index = np.arange(first, first + _BLOCK, dtype=np.float64)
            s = np.asarray(theta + 1j * step * index, dtype=np.complex128)
            exponent = self._exponent(s, epsilon)
            size: Floats = np.exp(exponent.real - peak)
            total += float(np.sum(size * np.cos(exponent.imag) * np.where(index == 0.0, 0.5, 1.0)))
            if float(np.max(size[-_BLOCK // 4 :])) < _DECAY and total > 0.0:
                return peak + math.log(total * step / math.pi)
        raise UnsupportedEvent("cross_check", "the moment function doesn't decay along the contour (too few or too sparse releases)")


def recomputed_log_delta(event: Event, epsilon: float) -> float:
    """log delta(epsilon), the larger of both directions. Raises UnsupportedEvent if the inversion isn't reliable."""
    return recomputed_log_deltas(event)(epsilon)


def recomputed_log_deltas(event: Event) -> Callable[[float], float]:
    """The same for many epsilons of one event, whose moments are laid out once."""
    directions = _directions(event, math.exp(-1.0))

    def log_delta(epsilon: float) -> float:
        check_epsilon(epsilon)
        return max(direction.log_delta(epsilon, reach) for direction, reach in directions)

    return log_delta


def recomputed_epsilon(event: Event, delta: float) -> float:
    """epsilon at ``delta`` in (0, 1), to about ``ACCURACY``; infinite for an event with a non-private part.

    Raises:
      UnsupportedEvent: the inversion isn't reliable for this event (for example a single release, or too little noise).
      TimeLimitReached: the caller's time limit is over.
    """
    check_delta(delta)
    if non_private_reason(event) is not None:
        return math.inf
    target = math.log(delta)
    directions = _directions(event, delta)

    def excess(epsilon: float) -> float:
        return max(direction.log_delta(epsilon, reach) for direction, reach in directions) - target

    high = RdpProfile(leaves(event), ()).epsilon(delta).upper
    if high == 0.0 or excess(0.0) <= 0.0:
        return 0.0
    try:
        return root_between(excess, 0.0, high * (1.0 + ACCURACY), 1e-10)
    except ArithmeticError as unfound:
        raise UnsupportedEvent("cross_check", str(unfound)) from unfound


def _directions(event: Event, delta: float) -> list[tuple[_Direction, float]]:
    parts = leaves(event)
    if (reason := next((found for leaf in parts if (found := unsupported_reason(leaf)) is not None), None)) is not None:
        raise UnsupportedEvent("cross_check", reason)
    if any(pair_of(leaf).crowded is not None for leaf in parts):
        raise UnsupportedEvent("cross_check", "its moments are known for one pair at a time, and a cut sample has two")
    if any(pair.family.is_discrete or pair.shown < 1.0 for pair in map(pair_of, parts)):
        # Its moment function is periodic: it seems to decay, and the sum would be that of a smoothed loss.
        raise UnsupportedEvent("cross_check", "a release that is local or on whole numbers has its losses on a lattice")
    # The saddle point is near the best order for the Renyi bound, and never far above it.
    reach = 4.0 * RdpProfile(parts, ()).best_order(min(delta, 1e-3))[0] + 10.0
    both = (True, False) if any(not pair_of(leaf).symmetric for leaf in parts) else (True,)
    return [(_Direction(parts, reach, removed=removed), reach) for removed in both]
