r"""A profile whose two ends have different origins: a proved upper end, and what some part of the outputs loses at least.

Where a dominating pair is only a bound, its own lower end says nothing of the event. Then the lower end comes from what is attained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Protocol, final

from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, at_most, check_delta
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent


class LowerEnds(Protocol):
    """What is lost at least."""

    def log_delta(self, epsilon: float) -> float:
        """log of a lower end of delta; -inf where nothing is known."""
        ...

    def epsilon(self, log_delta: float) -> float:
        """A lower end of epsilon at this log of delta; 0 where nothing is known."""
        ...


@final
class EndsOf:
    """The lower ends of a profile; where its route refuses or has a floor, nothing is known."""

    def __init__(self, profile: PrivacyProfile) -> None:
        self._profile = profile

    def log_delta(self, epsilon: float) -> float:
        with suppress(NumericalFloor, UnsupportedEvent):
            return self._profile.delta(epsilon).log_lower
        return -math.inf

    def epsilon(self, log_delta: float) -> float:
        with suppress(NumericalFloor, UnsupportedEvent):
            return self._profile.epsilon_at_log_delta(log_delta).lower
        return 0.0


@final
class BetweenProfile(PrivacyProfile):
    """Upper ends, and whatever else is asked, of one profile; the best of several lower ends.

    Args:
      above: the profile of the bounding pairs.
      below: makes the lower ends, for whoever asks for one.
      steps: lines of the derivation before those of ``above``.
    """

    def __init__(self, above: PrivacyProfile, below: Callable[[], Iterable[LowerEnds]], steps: tuple[Step, ...] = ()) -> None:
        self._above, self._make, self._steps = above, below, steps

    @property
    def route(self) -> str:
        return self._above.route

    def delta(self, epsilon: float) -> DeltaBound:
        found = self._above.delta(epsilon)
        log_lower = max((one.log_delta(epsilon) for one in self._below), default=-math.inf)
        return DeltaBound(log_lower=at_most("log delta", log_lower, found.log_upper), log_upper=found.log_upper, route=found.route)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self._between(self._above.epsilon(delta), math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        return self._between(self._above.epsilon_at_log_delta(log_delta), log_delta)

    def epsilon_upper(self, delta: float) -> float:
        return self._above.epsilon_upper(delta)

    def log_delta_upper(self, epsilon: float) -> float:
        return self._above.log_delta_upper(epsilon)

    def rdp(self, order: float) -> float | None:
        return self._above.rdp(order)

    def derivation(self) -> tuple[Step, ...]:
        return (*self._steps, *self._above.derivation())

    @cached_property
    def _below(self) -> tuple[LowerEnds, ...]:
        return tuple(self._make())

    def _between(self, found: Bound, log_delta: float) -> Bound:
        lower = max((one.epsilon(log_delta) for one in self._below), default=0.0)
        return Bound(lower=at_most("epsilon", lower, found.upper), upper=found.upper, route=found.route)
