r"""The profile of a composition with shuffled batches: the upper end of whole releases, the lower end of concrete data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import final

from zetadp.accountants import shared_sample
from zetadp.accountants.dominating import statement
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.shuffled.attained import Attained, attained
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent

_MOST_PARTS = 10
"""Different parts of shuffled batches whose tests are tried."""


@final
class ShuffledProfile(PrivacyProfile):
    """Between what is proved with one whole release an epoch, and what some part of the composition loses alone. proofs/shuffled.md.

    Args:
      whole: the profile with a whole release in the place of every epoch.
      shuffled: the epochs of shuffled batches, with their counts.
      others: the profile of all other parts; None if there are none.
    """

    def __init__(self, whole: PrivacyProfile, shuffled: Mapping[Leaf, int], others: PrivacyProfile | None) -> None:
        self._whole, self._shuffled, self._others = whole, shuffled, others

    @property
    def route(self) -> str:
        return self._whole.route

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        found = self._whole.delta(epsilon)
        lower = [one.log_delta(epsilon) for one in self._attained]
        if self._others is not None:
            with suppress(NumericalFloor, UnsupportedEvent):  # then the others say nothing
                lower.append(self._others.delta(epsilon).log_lower)
        log_lower = min(max(lower, default=-math.inf), found.log_upper)
        return DeltaBound(log_lower=log_lower, log_upper=found.log_upper, route=found.route)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self._between(self._whole.epsilon(delta), math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        return self._between(self._whole.epsilon_at_log_delta(log_delta), log_delta)

    def epsilon_upper(self, delta: float) -> float:
        return self._whole.epsilon_upper(delta)

    def log_delta_upper(self, epsilon: float) -> float:
        return self._whole.log_delta_upper(epsilon)

    def rdp(self, order: float) -> float | None:
        return self._whole.rdp(order)

    def derivation(self) -> tuple[Step, ...]:
        lines: list[Step] = []
        for leaf in self._shuffled:
            formula, source = statement(leaf)
            lines.append(Step(symbol="steps", value=float(leaf.steps), formula=formula, source=source))
            if leaf.releases > 1 and not isinstance(leaf.mechanism, Selection):
                lines.extend(shared_sample.derivation(leaf.mechanism, leaf.releases))
        return (*lines, *self._whole.derivation())

    @cached_property
    def _attained(self) -> list[Attained]:
        """Of the parts that weigh most; only made for whoever asks for a lower end."""
        weights = sorted(self._shuffled.items(), key=lambda part: part[1] * part[0].mechanism.privacy_loss().distance ** 2, reverse=True)
        return [found for leaf, count in weights[:_MOST_PARTS] if (found := attained(leaf, count)) is not None]

    def _between(self, found: Bound, log_delta: float) -> Bound:
        lower = [one.epsilon(log_delta) for one in self._attained]
        if self._others is not None:
            with suppress(NumericalFloor, UnsupportedEvent):
                lower.append(self._others.epsilon_at_log_delta(log_delta).lower)
        return Bound(lower=min(max(lower, default=0.0), found.upper), upper=found.upper, route=found.route)
