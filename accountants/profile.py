r"""An accountant's answer: a privacy profile in which every number has a lower and an upper end."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Self, final

from pydantic import model_validator

from zetadp.accountants.trade_off import SupportingLines
from zetadp.mechanisms.base import Extended, Step, Value
from zetadp.mechanisms.errors import ContradictoryBounds, InvalidParameter, NumericalFloor
from zetadp.mechanisms.numerics import logspace

SMALLEST_LOG_DELTA = -700.0
"""Below this, routes that need delta itself can't answer."""

_ROUNDED = 1e-9
"""Share of an end, or of 1, by which rounding may put a lower end above an upper one."""


@final
class Bound(Value):
    """An interval that holds the value of the event's dominating pairs; only ``upper`` is ever published as the guarantee.

    Where no two neighbours attain those pairs (proofs/pairs.md), ``lower`` may lie above the event's own value. ``route``: its origin.
    """

    lower: Extended
    upper: Extended
    route: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lower <= self.upper:
            raise InvalidParameter("bound", "lower <= upper", (self.lower, self.upper))
        return self


@final
class DeltaBound(Value):
    """An interval that holds delta, stored as logarithms, so that 1e-400 doesn't underflow."""

    log_lower: Extended
    log_upper: Extended
    route: str

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.log_lower <= self.log_upper <= 0.0:
            raise InvalidParameter("delta bound", "log_lower <= log_upper <= 0", (self.log_lower, self.log_upper))
        return self

    @property
    def lower(self) -> float:
        """Rounded down; 0 if it underflows."""
        return logspace.exp_down(self.log_lower)

    @property
    def upper(self) -> float:
        """Rounded up; never 0 unless delta is."""
        return min(1.0, logspace.exp_up(self.log_upper))


def at_most(quantity: str, lower: float, upper: float) -> float:
    """A lower end beside an upper end of another origin: the smaller of both where rounding alone puts it above.

    Raises:
      ContradictoryBounds: it is above by more than rounding.

    >>> at_most("epsilon", 1.0 + 1e-12, 1.0)
    1.0
    """
    if lower > upper + (_ROUNDED * max(1.0, abs(upper)) if math.isfinite(upper) else 0.0):
        raise ContradictoryBounds(quantity, lower, upper)
    return min(lower, upper)


class PrivacyProfile(ABC):
    """delta as a function of epsilon, and what follows from it, for one event."""

    @abstractmethod
    def delta(self, epsilon: float) -> DeltaBound:
        """delta(epsilon), for epsilon >= 0.

        Raises:
          InvalidParameter: epsilon is out of range.
          NumericalFloor: this route can't answer reliably beyond some point.
          UnsupportedEvent: this route can't prove a bracket here; another route may.
        """

    @abstractmethod
    def epsilon(self, delta: float) -> Bound:
        """The smallest epsilon >= 0 with delta(epsilon) <= delta, for delta in (0, 1). Raises as ``delta`` does."""

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        """``epsilon`` at a delta given by its logarithm, < 0: allows a delta such as 1e-400.

        Raises:
          NumericalFloor: no float is this small, and this route needs one.
        """
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        if log_delta < SMALLEST_LOG_DELTA:
            raise NumericalFloor("log delta", log_delta, SMALLEST_LOG_DELTA, "use accountant contour or gdp, which have no floor")
        return self.epsilon(math.exp(log_delta))

    def epsilon_upper(self, delta: float) -> float:
        """``epsilon(delta).upper``, without computing the lower end if that would double the cost."""
        return self.epsilon(delta).upper

    def log_delta_upper(self, epsilon: float) -> float:
        """``delta(epsilon).log_upper``, in the same way."""
        return self.delta(epsilon).log_upper

    @abstractmethod
    def derivation(self) -> tuple[Step, ...]:
        """From the event to the profile, line by line."""

    @property
    @abstractmethod
    def route(self) -> str:
        """The accountant's name."""

    @property
    def gdp_mu(self) -> float | None:
        """mu if the profile is exactly that of mu-GDP (an upper bound by rounding only), otherwise None."""
        return None

    def rdp(self, order: float) -> float | None:
        """Upper bound on the Renyi divergence of this order > 1, or None if this route has none."""
        check_order(order)
        return None

    def trade_off(self, alpha: float) -> float:
        r"""Lower bound on the attacker's false negative rate at false positive rate ``alpha`` in [0, 1]: the safe end.

        Every (epsilon, delta) gives beta >= max(1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)) (Dong, Roth and Su 2022,
        Proposition 2.5); a search finds a good epsilon for this alpha. Proof: proofs/conversions.md.
        """
        check_alpha(alpha)
        return max(0.0, self.supporting_lines.best(alpha).false_negative_rate(alpha))

    @cached_property
    def supporting_lines(self) -> SupportingLines:
        """What this profile's deltas say about every test between neighbours. Use it only while the profile exists."""
        profile = weakref.proxy(self)

        def log_delta(epsilon: float) -> float:
            # A bound method would create a reference cycle, and the profile's grids would wait for the garbage collector.
            return profile.log_delta_upper(epsilon)

        return SupportingLines(log_delta)


def check_epsilon(epsilon: float) -> None:
    """Raises InvalidParameter unless epsilon is a number >= 0."""
    if not epsilon >= 0.0:
        raise InvalidParameter("epsilon", ">= 0", epsilon)


def check_delta(delta: float) -> None:
    """Raises InvalidParameter unless delta is in (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise InvalidParameter("delta", "in (0, 1)", delta)


def check_order(order: float) -> None:
    """Raises InvalidParameter unless the Renyi order is finite and > 1."""
    if not (order > 1.0 and math.isfinite(order)):
        raise InvalidParameter("order", "finite and > 1", order)


def check_alpha(alpha: float) -> None:
    """Raises InvalidParameter unless alpha is in [0, 1]."""
    if not 0.0 <= alpha <= 1.0:
        raise InvalidParameter("alpha", "in [0, 1]", alpha)


@final
class NonPrivateProfile(PrivacyProfile):
    """No guarantee: epsilon is infinite and delta is 1."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        return DeltaBound(log_lower=0.0 if epsilon < math.inf else -math.inf, log_upper=0.0, route=self.route)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return Bound(lower=math.inf, upper=math.inf, route=self.route)

    def rdp(self, order: float) -> float | None:
        check_order(order)
        return math.inf

    @property
    def route(self) -> str:
        return "non_private"

    def derivation(self) -> tuple[Step, ...]:
        return (Step(symbol="epsilon", value=math.inf, formula=f"no guarantee: {self._reason}", source="event"),)
