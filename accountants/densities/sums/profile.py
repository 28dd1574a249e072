"""Profiles of one repeated release whose delta is an exact sum: no lattice and no floor. The brackets come from two distances."""

from __future__ import annotations

import math
from typing import Protocol, final

import scipy

from zetadp.accountants.arithmetic import within_floats
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import InvalidParameter

_WIDENINGS = (1e-15, 1e-14, 3e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-4, 1.0)


class Sum(Protocol):
    """The composed loss distribution, exact for the numbers that it holds."""

    @property
    def largest_loss(self) -> float:
        """The largest loss, rounded up."""
        ...

    def log_delta(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) of log delta(epsilon), for finite epsilon >= 0."""
        ...

    @property
    def short_from(self) -> float:
        """The smallest epsilon from which the sum is short; 0 if it always is."""
        ...

    def step(self, *, in_part: bool) -> Step:
        """The derivation step that describes this sum; ``in_part`` if a lattice also gives some of the answers."""
        ...


@final
class SummedProfile(PrivacyProfile):
    """The profile between two sums.

    Args:
      above: the sum for a pair that dominates the release's pair.
      below: the sum for a pair that the release's pair dominates.
      steps: the derivation.
      name: the route's name.
      start: the smallest epsilon from which the sums are short.
      rest: the profile used below ``start``; None if ``start`` is 0.
    """

    def __init__(
        self, above: Sum, below: Sum, steps: tuple[Step, ...], name: str, start: float = 0.0, rest: PrivacyProfile | None = None
    ) -> None:
        assert rest is not None or start == 0.0
        self._upper, self._lower = above, below
        self._steps, self._name = steps, name
        self._start, self._rest = start, rest

    @property
    def route(self) -> str:
        return self._name

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=self.route)
        if self._rest is not None and epsilon < self._start:
            return self._rest.delta(epsilon)
        with within_floats(self.route):
            low, high = self._lower.log_delta(epsilon)[0], self._upper.log_delta(epsilon)[1]
        return DeltaBound(log_lower=low, log_upper=high, route=self.route)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self.epsilon_at_log_delta(math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        """``epsilon`` at a delta given by its logarithm. There is no floor."""
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        with within_floats(self.route):
            if self._rest is not None and self._lower.log_delta(self._start)[0] <= log_delta:
                return self._rest.epsilon_at_log_delta(log_delta)
            high = _upper_end(self._upper, log_delta, self._start)
            low = _lower_end(self._lower, log_delta, self._start, high)
        return Bound(lower=low, upper=high, route=self.route)

    def derivation(self) -> tuple[Step, ...]:
        return self._steps


def _upper_end(law: Sum, log_delta: float, start: float) -> float:
    """An epsilon >= start at which the upper end is at most e^log_delta."""
    least = 4.0 * log_delta - 50.0

    def excess(epsilon: float) -> float:
        return max(law.log_delta(epsilon)[1], least) - log_delta

    if excess(start) <= 0.0:
        return start
    top = law.largest_loss
    root = float(scipy.optimize.brentq(excess, start, top, xtol=1e-300, rtol=1e-15))
    for share in _WIDENINGS:
        moved = root * (1.0 + share)
        if moved >= top or excess(moved) <= 0.0:
            return min(moved, top)
    return top


def _lower_end(law: Sum, log_delta: float, start: float, near: float) -> float:
    """An epsilon from start to ``near`` at which the lower end is above e^log_delta, or start."""
    for share in _WIDENINGS:
        moved = near * (1.0 - share)
        if moved <= start:
            break
        if law.log_delta(moved)[0] > log_delta:
            return moved
    return start
