r"""What a calibration must reach, and how far a profile is from it, on one scale for all kinds of targets: mu."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Self, final

import scipy
from pydantic import model_validator

from zetadp.accountants.profile import PrivacyProfile
from zetadp.accountants.routes.closed.closed_form import largest_mu
from zetadp.mechanisms.base import NonNegative, OpenProbability, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter, UnsupportedEvent

_KINDS = ("epsilon", "gdp_mu", "rdp", "advantage", "trade_off")

_LARGEST_EPSILON = 1e30
_SMALLEST_MU, _LARGEST_MU = 1e-150, 1e150
"""A guarantee beyond these is far from any root; clipping it gives the search finite numbers of the right sign."""


@final
class RdpPoint(Value):
    """A Renyi divergence of at most ``value`` at ``order`` > 1."""

    order: Positive
    value: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.order > 1.0:
            raise InvalidParameter("order", "> 1", self.order)
        return self


@final
class TradeOffPoint(Value):
    """An attacker whose false positive rate is ``alpha`` has a false negative rate of at least ``beta``; alpha + beta < 1."""

    alpha: OpenProbability
    beta: OpenProbability

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.alpha + self.beta < 1.0:
            raise InvalidParameter("trade_off", "alpha + beta < 1 (any guess has alpha + beta = 1)", (self.alpha, self.beta))
        return self


@final
class Target(Value):
    r"""What has to be reached: (epsilon, delta), gdp_mu, rdp, advantage or trade_off; exactly one of the five.

    ``advantage`` is the attacker's largest true positive minus false positive rate, delta(0).
    """

    epsilon: NonNegative | None = None
    delta: OpenProbability | None = None
    gdp_mu: Positive | None = None
    rdp: RdpPoint | None = None
    advantage: OpenProbability | None = None
    trade_off: TradeOffPoint | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidParameter("target", "epsilon and delta together", "only one of the two")
        if len(given := self._given()) != 1:
            raise InvalidParameter(
                "target", "exactly one of (epsilon and delta), gdp_mu, rdp, advantage, trade_off", given or "none of them"
            )
        return self

    def _given(self) -> list[str]:
        return [name for name in _KINDS if getattr(self, name) is not None]

    @property
    def kind(self) -> str:
        """The name of the one that is given; ``epsilon`` means (epsilon, delta)."""
        return self._given()[0]

    @cached_property
    def mu(self) -> float:
        """The mu of the Gaussian mechanism that just meets the target."""
        if self.epsilon is not None and self.delta is not None:
            return _representable(largest_mu(self.epsilon, math.log(self.delta)))
        if self.gdp_mu is not None:
            return self.gdp_mu
        if self.rdp is not None:
            return math.sqrt(2.0 * self.rdp.value / self.rdp.order)
        if self.advantage is not None:
            return _representable(largest_mu(0.0, math.log(self.advantage)))
        assert self.trade_off is not None  # exactly one is given
        return _mu_of_trade_off(self.trade_off.alpha, self.trade_off.beta)

    def excess(self, profile: PrivacyProfile) -> float:
        r"""log(mu of what the profile guarantees / mu of the target): <= 0 exactly if the target is met.

        Each side is expressed as the Gaussian mechanism with exactly that guarantee: against log noise (or log sampling probability, ...)
        this is nearly a straight line for every kind of target, even where epsilon jumps to 0.

        Raises:
          UnsupportedEvent: the profile has no such quantity (mu of a sampled mechanism, say).
        """
        if self.epsilon is not None and self.delta is not None:
            return self._epsilon_excess(profile, self.epsilon, self.delta)
        if self.gdp_mu is not None:
            if profile.gdp_mu is None:
                raise UnsupportedEvent(profile.route, "a gdp_mu target needs an event that is Gaussian and not sampled")
            return self._ratio(profile.gdp_mu, profile.gdp_mu <= self.gdp_mu)
        if self.rdp is not None:
            value = profile.rdp(self.rdp.order)
            if value is None:
                raise UnsupportedEvent(profile.route, "an rdp target needs accountant rdp, gdp or auto")
            return self._ratio(math.sqrt(2.0 * value / self.rdp.order), value <= self.rdp.value)
        if self.advantage is not None:
            return self._delta_excess(profile, self.advantage)
        assert self.trade_off is not None  # exactly one is given
        beta = profile.trade_off(self.trade_off.alpha)
        return self._ratio(_mu_of_trade_off(self.trade_off.alpha, beta), beta >= self.trade_off.beta)

    def _epsilon_excess(self, profile: PrivacyProfile, asked: float, delta: float) -> float:
        if asked == 0.0:
            return self._delta_excess(profile, delta)
        epsilon = profile.epsilon_upper(delta)
        if epsilon > 0.0:
            return self._ratio(largest_mu(min(epsilon, _LARGEST_EPSILON), math.log(delta)), epsilon <= asked)
        # Here epsilon doesn't show how much noise there is to spare; delta(0) does, and the two join continuously.
        return min(0.0, self._delta_excess(profile, delta))

    def _delta_excess(self, profile: PrivacyProfile, asked: float) -> float:
        log_delta = profile.log_delta_upper(0.0)
        return self._ratio(_mu_of_advantage(log_delta), log_delta <= math.log(asked))

    def _ratio(self, mu: float, met: bool) -> float:
        ratio = math.log(min(max(mu, _SMALLEST_MU), _LARGEST_MU) / self.mu)
        # The guarantee itself decides on which side it is; its mu is rounded.
        return min(ratio, 0.0) if met else max(ratio, math.ulp(1.0))


def _mu_of_trade_off(alpha: float, beta: float) -> float:
    """The mu with Phi(Phi^-1(1 - alpha) - mu) = beta; infinite for beta = 0."""
    return max(0.0, -float(scipy.special.ndtri(alpha)) - float(scipy.special.ndtri(beta)))


def _mu_of_advantage(log_delta: float) -> float:
    """The mu with delta(0) = 2 Phi(mu / 2) - 1 = erf(mu / sqrt 8); near 1 it uses 1 - delta, which keeps its digits there."""
    if log_delta > -0.5:
        return -2.0 * float(scipy.special.ndtri(-0.5 * math.expm1(log_delta)))
    return math.sqrt(8.0) * float(scipy.special.erfinv(math.exp(log_delta)))


def _representable(mu: float) -> float:
    """The smallest positive float in place of a mu that rounds to 0: no noise that can be asked for meets either."""
    return max(mu, math.ulp(0.0))
