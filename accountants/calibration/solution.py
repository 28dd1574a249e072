r"""Calibration: the least safe parameter that still meets a target, always on the safe side of it, and checked there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

from pydantic import ValidationError

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.calibration.forecast import Forecast
from zetadp.accountants.calibration.parameters import NoiseScale, Parameter
from zetadp.accountants.calibration.search import Found, Problem, Search
from zetadp.accountants.calibration.targets import Target
from zetadp.accountants.events import Event, leaves, non_private_reason
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.accountants.routes.closed.closed_form import GdpAccountant
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import CalibrationFailed, InvalidParameter, NumericalFloor, UnsupportedEvent

TIGHTNESS = 2e-7
"""Relative slack that may remain in a parameter, always toward the safe side. After 12 evaluations 1e-4 is enough."""

EXACT_TIGHTNESS = 5e-13
"""The same for an event with a closed form: a few roundings."""

_CENTRAL_LIMIT = 2.0
"""The order of a forecast for every target but a Renyi divergence."""


Failure = CalibrationFailed | UnsupportedEvent | NumericalFloor
"""What a sweep may hold instead of a solution."""


@final
class Solution(Value):
    r"""The least safe value of a parameter that was found to meet the target.

    Attributes:
      event: the event with that value; the accountant's upper bound for it meets the target.
      value: the parameter: a factor, a probability or a whole number, see ``Parameter``.
      misses_at: the nearest less safe value that was tried and is not proved to meet the target; None if there is none.
      at_limit: whether the value is the least safe one possible (every record sampled), so that the target may be met with room to spare.
      evaluations: number of profiles computed.
    """

    parameter: Parameter
    target: Target
    event: Event
    value: float
    misses_at: float | None
    at_limit: bool
    evaluations: int


@final
@dataclass
class _Known:
    """What earlier solutions say about the next one: the forecast's safety where log mu was reached, and the slope there."""

    points: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    slope: float = -1.0

    def safety(self, log_mu: float) -> float:
        """Where the next search starts: log mu itself, or interpolated from the three nearest targets of the same kind."""
        near = sorted(self.points, key=lambda point: abs(point[0] - log_mu))[:3]
        if not near:
            return -log_mu
        value, product = near[0][1], 1.0
        # Newton's divided differences; the first one is about -1 if there is only one point.
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(near)] or [-1.0]
        bends = [(slopes[1] - slopes[0]) / (near[2][0] - near[0][0])] if len(near) > 2 else []
        for difference, (at, _) in zip((*slopes[:1], *bends), near, strict=False):
            product *= log_mu - at
            value += difference * product
        return value

    def add(self, log_mu: float, found: Found) -> None:
        """Records where a search ended, unless it is too close to a known point."""
        if found.good is not None and math.isfinite(found.good.excess) and all(abs(log_mu - at) > 1e-3 for at, _ in self.points):
            self.points.append((log_mu, found.good.safety - found.good.excess / found.slope))
            self.slope = found.slope


@final
class _Task:
    """One event with one parameter and one accountant, shared by all targets."""

    def __init__(self, event: Event, parameter: Parameter, accountant: Accountant) -> None:
        if (reason := non_private_reason(event)) is not None:
            raise CalibrationFailed(f"no noise can help an event with a non-private part: {reason}", (0.0, math.inf))
        self.event, self.parameter, self.accountant = event, parameter, accountant
        self.limits = parameter.limits(event)
        self.closed = GdpAccountant().unsupported_parts(leaves(event)) is None
        self._forecasts: dict[float, Forecast] = {}
        self._exact = self.closed and accountant.name in (GdpAccountant.name, AutoAccountant.name)
        self._built: dict[float, Event] = {}
        self._refusal: UnsupportedEvent | NumericalFloor | None = None

    def solve(self, target: Target, known: _Known) -> Solution:
        """Raises CalibrationFailed, UnsupportedEvent or NumericalFloor."""
        if target.gdp_mu is not None and not self.closed:
            raise UnsupportedEvent(self.accountant.name, "a gdp_mu target needs an event that is Gaussian and not sampled")
        self._refusal = None
        self._built.clear()
        search = Search(self._problem(target), known.slope)
        found = search.run(self._start(target, known))
        known.add(math.log(target.mu), found)
        return self._solution(target, found)

    def _start(self, target: Target, known: _Known) -> float:
        """Where the search starts, as the forecast's safety: not on the safe side of where pure epsilons alone meet the target."""
        start = known.safety(math.log(target.mu))
        if known.points or not target.epsilon:
            return start
        pure = self._forecast(_CENTRAL_LIMIT).pure_value(target.epsilon)
        return start if pure is None else min(start, -self._forecast(_CENTRAL_LIMIT).log_mu(pure))

    def _problem(self, target: Target) -> Problem:
        parameter, limits = self.parameter, self.limits
        forecast = self._forecast(_CENTRAL_LIMIT if target.rdp is None else target.rdp.order)
        sign = 1.0 if parameter.more_is_safer else -1.0

        def position(value: float) -> float:
            return sign * math.log(value)

        least_safe, safest = (limits.low, limits.high) if parameter.more_is_safer else (limits.high, limits.low)
        low, high = position(least_safe), position(safest)

        def value(position: float) -> float:
            # The limits themselves, without the rounding of their logarithms.
            if not low < position < high:
                return least_safe if position <= low else safest
            found = math.exp(sign * position)
            return min(max(math.floor(found * (1.0 + 4e-15)) if parameter.whole else found, limits.low), limits.high)

        return Problem(
            low=low,
            high=high,
            value=value,
            position=position,
            safety=lambda u: -forecast.log_mu(math.exp(sign * u)),
            excess=lambda v: self._excess(target, v),
            whole=parameter.whole,
            tightness=EXACT_TIGHTNESS if self._exact else TIGHTNESS,
        )

    def _forecast(self, order: float) -> Forecast:
        if order not in self._forecasts:
            self._forecasts[order] = Forecast(self.event, self.parameter, order)
        return self._forecasts[order]

    def _excess(self, target: Target, value: float) -> float:
        """Infinite if the accountant has no answer: as far as it knows, the target is then missed."""
        try:
            event = self.parameter.applied(self.event, value)
            excess = target.excess(self.accountant.profile(event))
        except (UnsupportedEvent, NumericalFloor) as refusal:
            self._refusal = refusal.with_traceback(None)  # its frames hold profiles, and one of them this task
            return math.inf
        except (ValidationError, InvalidParameter):
            # A scale or a count outside the range that events allow.
            return math.inf
        if not excess <= 0.0:
            return math.inf if math.isnan(excess) else excess
        self._built[value] = event
        return excess

    def _solution(self, target: Target, found: Found) -> Solution:
        good, limits, parameter = found.good, self.limits, self.parameter
        if good is None:
            if self._refusal is not None and found.bad is not None and found.bad.excess == math.inf:
                raise self._refusal
            raise CalibrationFailed(f"no {parameter.noun} in the searched range is proved to meet the target", limits)
        least_safe = limits.low if parameter.more_is_safer else limits.high
        if good.value == least_safe and not parameter.attains_limit:
            raise CalibrationFailed("the target is met with hardly any noise", limits)
        return Solution(
            parameter=parameter,
            target=target,
            event=self._built[good.value],
            value=good.value,
            misses_at=None if found.bad is None else found.bad.value,
            at_limit=good.value == least_safe,
            evaluations=found.evaluations,
        )


def solve(event: Event, parameter: Parameter, target: Target, accountant: Accountant) -> Solution:
    r"""The least noise, largest probability, most steps or largest clipping bound with which the event meets the target.

    Args:
      event: at any value of the parameter.
      parameter: what may change, and in which part of the event.
      accountant: the accountant whose upper bound must meet the target.
    Raises:
      CalibrationFailed: no value in the parameter's range is proved to meet the target, or every value is.
      InvalidParameter: the event has no such parameter.
      UnsupportedEvent: the accountant can't bound the event, or has no such quantity.
      NumericalFloor: the accountant can't bound it at so small a delta.
    """
    return _Task(event, parameter, accountant).solve(target, _Known())


def solve_many(event: Event, parameter: Parameter, targets: Sequence[Target], accountant: Accountant) -> tuple[Solution | Failure, ...]:
    r"""``solve`` for each target, in their order; each search starts from its neighbours' solutions.

    What ``solve`` raises for one target takes that target's place in the result and doesn't affect the others.

    Raises:
      InvalidParameter: the event has no such parameter.
      CalibrationFailed: it has a non-private part.
    """
    task, known = _Task(event, parameter, accountant), dict[str, _Known]()
    answers: dict[int, Solution | Failure] = {}
    for index in sorted(range(len(targets)), key=lambda i: (targets[i].kind, targets[i].mu)):
        target = targets[index]
        try:
            answers[index] = task.solve(target, known.setdefault(target.kind, _Known()))
        except (CalibrationFailed, UnsupportedEvent, NumericalFloor) as failure:
            answers[index] = failure.with_traceback(None)
    return tuple(answers[index] for index in range(len(targets)))


def calibrate(event: Event, target: Target, accountant: Accountant) -> tuple[Event, float]:
    """The event with all its noise scaled by the smallest factor that meets the target, and that factor. Raises as ``solve`` does."""
    solution = solve(event, NoiseScale(), target, accountant)
    return solution.event, solution.value


def calibrate_scale(event: Event, *, epsilon: float, delta: float) -> float:
    """The factor of ``calibrate`` for (epsilon, delta), by the ``auto`` accountant.

    >>> from zetadp.accountants.events import Release
    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> round(calibrate_scale(Release(mechanism=noise), epsilon=1.0, delta=1e-5), 9)
    3.730631635
    """
    return calibrate(event, Target(epsilon=epsilon, delta=delta), AutoAccountant())[1]
