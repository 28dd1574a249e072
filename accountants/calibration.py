r"""Calibration: the least noise that meets a target, always on the safe side of it, and checked there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self, final

from pydantic import ValidationError, model_validator
from scipy import optimize

from accountants.auto import AutoAccountant
from accountants.events import Event, non_private_reason, scaled
from accountants.gdp import GdpAccountant, largest_mu
from accountants.profile import Accountant, PrivacyProfile
from accountants.rdp import RdpAccountant
from mechanisms.base import NonNegative, OpenProbability, Positive, Value
from mechanisms.errors import CalibrationFailed, InvalidParameter, UnsupportedEvent

SMALLEST_FACTOR, LARGEST_FACTOR = 1e-9, 1e9
"""The searched range of the common factor on every noise scale of the event."""

TIGHTNESS = 1e-6
"""Relative slack left in the factor by the search, 100 times that for targets that are hard to find; always toward more noise."""

_MOST_EVALUATIONS = 24
_ENOUGH_EVALUATIONS = 16
"""From then on 1e-4 is tight enough: usual targets take 4 to 8 evaluations, and odd ones would take minutes for the last digits."""

_LONGEST_STEP = math.log(4.0)


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
class Target(Value):
    r"""What the noise has to reach: (epsilon, delta), gdp_mu, rdp, or advantage; exactly one of the four.

    ``advantage`` is the attacker's largest true positive minus false positive rate, delta(0).
    """

    epsilon: NonNegative | None = None
    delta: OpenProbability | None = None
    gdp_mu: Positive | None = None
    rdp: RdpPoint | None = None
    advantage: OpenProbability | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epsilon is None) != (self.delta is None):
            raise InvalidParameter("target", "epsilon and delta together", "only one of the two")
        given = [name for name in ("epsilon", "gdp_mu", "rdp", "advantage") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidParameter("target", "exactly one of (epsilon and delta), gdp_mu, rdp, advantage", given or "none of them")
        return self

    def excess(self, profile: PrivacyProfile) -> float:
        """log(what the profile guarantees / what is asked): <= 0 where the target is met.

        Raises:
          UnsupportedEvent: the profile has no such quantity (mu of a sampled mechanism, say).
        """
        if self.epsilon is not None and self.delta is not None:
            if self.epsilon == 0.0:
                return profile.log_delta_upper(0.0) - math.log(self.delta)
            return _log_ratio(profile.epsilon_upper(self.delta), self.epsilon)
        if self.gdp_mu is not None:
            if profile.gdp_mu is None:
                raise UnsupportedEvent(profile.route, "a gdp_mu target needs an event that is Gaussian and not sampled")
            return _log_ratio(profile.gdp_mu, self.gdp_mu)
        if self.rdp is not None:
            value = profile.rdp(self.rdp.order)
            if value is None:
                raise UnsupportedEvent(profile.route, "an rdp target needs accountant rdp, gdp or auto")
            return _log_ratio(value, self.rdp.value)
        assert self.advantage is not None  # exactly one is given
        return profile.log_delta_upper(0.0) - math.log(self.advantage)


def _log_ratio(value: float, asked: float) -> float:
    # Zero and infinity are only met far from the root; clipped, so that the root finder sees finite numbers of the right sign.
    return math.log(min(max(value, 1e-300), 1e300)) - math.log(asked)


def calibrate(event: Event, target: Target, accountant: Accountant) -> tuple[Event, float]:
    """The event with all its noise scaled by the smallest factor that meets the target, and that factor.

    Args:
      event: at any noise; only the ratios between its parts' noise stay.
      accountant: whose upper bound has to meet the target.
    Returns:
      the calibrated event and the factor, rounded toward more noise and checked: ``target.excess`` of it is <= 0.
    Raises:
      CalibrationFailed: no factor in [1e-9, 1e9] meets the target, or scales leave their range.
      UnsupportedEvent: the accountant can't bound the event.
    """
    if (reason := non_private_reason(event)) is not None:
        raise CalibrationFailed(f"no noise can help an event with a non-private part: {reason}", (SMALLEST_FACTOR, LARGEST_FACTOR))
    factor = _closed_factor(event, target) if GdpAccountant().unsupported(event) is None else _searched_factor(event, target, accountant)
    return _settled(event, target, accountant, factor)


def calibrate_scale(event: Event, *, epsilon: float, delta: float) -> float:
    """The factor of ``calibrate`` for (epsilon, delta), by the ``auto`` accountant.

    >>> from accountants.events import Release
    >>> from mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> round(calibrate_scale(Release(mechanism=noise), epsilon=1.0, delta=1e-5), 9)
    3.730631635
    """
    return calibrate(event, Target(epsilon=epsilon, delta=delta), AutoAccountant())[1]


def _scaled(event: Event, factor: float) -> Event:
    try:
        return scaled(event, factor)
    except ValidationError as error:
        raise CalibrationFailed("the target needs noise beyond 1e50, the largest there is", (SMALLEST_FACTOR, LARGEST_FACTOR)) from error


def _closed_factor(event: Event, target: Target) -> float:
    """The factor of a purely Gaussian event, whose mu falls as 1 / factor."""
    mu = GdpAccountant().profile(event).gdp_mu
    assert mu is not None  # a Gaussian event has one
    if target.gdp_mu is not None:
        return mu / target.gdp_mu
    if target.rdp is not None:
        return mu / math.sqrt(2.0 * target.rdp.value / target.rdp.order)
    if target.advantage is not None:
        return mu / largest_mu(0.0, math.log(target.advantage))
    assert target.epsilon is not None  # exactly one target is given
    assert target.delta is not None
    return mu / largest_mu(target.epsilon, math.log(target.delta))


def _searched_factor(event: Event, target: Target, accountant: Accountant) -> float:
    """Newton and secant steps on log(guarantee / target) against log(factor), started from the cheap Renyi bound's own root."""
    if target.gdp_mu is not None:
        raise UnsupportedEvent(accountant.name, "a gdp_mu target needs an event that is Gaussian and not sampled")

    def excess(log_factor: float, judge: Accountant) -> float:
        candidate = _scaled(event, math.exp(log_factor))
        # An accountant that can't reach this far in loss says nothing there; the target is missed as far as it knows.
        return target.excess(judge.profile(candidate)) if judge.unsupported(candidate) is None else math.log(1e9)

    if (reason := RdpAccountant().unsupported(event)) is not None:
        raise UnsupportedEvent(accountant.name, reason)
    x, slope = _renyi_start(lambda x: excess(x, RdpAccountant()))
    # Asked here, where the noise is of the right size: with hardly any noise a grid may not reach far enough.
    if (reason := accountant.unsupported(_scaled(event, math.exp(x)))) is not None:
        raise UnsupportedEvent(accountant.name, reason)
    bad, good, width = -math.inf, math.inf, math.inf
    last: tuple[float, float] | None = None
    for evaluation in range(_MOST_EVALUATIONS):
        if abs(x) > math.log(LARGEST_FACTOR):
            break
        value = excess(x, accountant)
        bad, good = (max(bad, x), good) if value > 0.0 else (bad, min(good, x))
        enough = 0.1 * TIGHTNESS if evaluation < _ENOUGH_EVALUATIONS else 100.0 * TIGHTNESS
        if -TIGHTNESS <= value <= 0.0 or good - bad < enough:
            return math.exp(good)
        if last is not None and last[0] != x and (value - last[1]) / (x - last[0]) < 0.0:
            slope = _plausible((value - last[1]) / (x - last[0]))
        last = x, value
        x += min(max(-(value + 0.5 * TIGHTNESS) / slope, -_LONGEST_STEP), _LONGEST_STEP)
        # Where epsilon jumps to 0 the excess isn't continuous and steps stop helping: then the bracket is halved.
        if not bad < x < good or good - bad > 0.5 * width:
            x = 0.5 * (bad + good) if math.isfinite(good - bad) else last[0] + math.copysign(_LONGEST_STEP, value)
        width = good - bad
    if math.isfinite(good):
        # Enough noise, if not the least: sampling so sparse that delta covers it, say, where noise hardly matters.
        return math.exp(good)
    raise CalibrationFailed("no noise in the searched range is proved to meet the target", (SMALLEST_FACTOR, LARGEST_FACTOR))


def _plausible(slope: float) -> float:
    # log epsilon falls about 1 to 3 times as fast as log noise grows, log delta(0) hardly at all near 1; a steeper slope comes from a
    # jump and would stall the search.
    return min(max(slope, -10.0), -1e-5)


def _renyi_start(excess: Callable[[float], float]) -> tuple[float, float]:
    """The root of the Renyi bound's excess in the log factor, and its slope there (< 0)."""
    low = high = 0.0
    while excess(high) > 0.0:
        low, high = high, high + math.log(8.0)
        if high > math.log(LARGEST_FACTOR):
            raise CalibrationFailed("no noise in the searched range is proved to meet the target", (SMALLEST_FACTOR, LARGEST_FACTOR))
    while excess(low) <= 0.0:
        low, high = low - math.log(8.0), low
        if low < math.log(SMALLEST_FACTOR):
            raise CalibrationFailed("the target is met with hardly any noise", (SMALLEST_FACTOR, LARGEST_FACTOR))
    root = float(optimize.brentq(excess, low, high, xtol=1e-3))
    return root, _plausible((excess(root + 0.01) - excess(root)) / 0.01)


def _settled(event: Event, target: Target, accountant: Accountant, factor: float) -> tuple[Event, float]:
    """The factor, moved toward more noise by doubling steps until the accountant confirms the target."""
    step, candidate_factor = 1e-15, factor
    while True:
        candidate = _scaled(event, candidate_factor)
        if target.excess(accountant.profile(candidate)) <= 0.0:
            return candidate, candidate_factor
        candidate_factor = factor * (1.0 + step)
        step = max(2.0 * step, 0.1 * TIGHTNESS) if step > 1e-11 else 2.0 * step
        if step > 1.0:
            raise CalibrationFailed("the accountant doesn't confirm the calibrated noise", (factor, candidate_factor))
