r"""Calibration over JSON: one target or a sweep of many, for any parameter of an event."""

from __future__ import annotations

import time
from typing import Annotated, Any, final

from pydantic import Field

from zetadp.accountants import Bound, Event, PrivacyProfile, Target, accountant_named, leaves, neighbourhood
from zetadp.accountants.calibration import NoiseScale, Parameter, Solution, solve
from zetadp.app.calculators.caveats import caveats_of
from zetadp.app.calculators.points import LONGEST_LIST
from zetadp.app.calculators.profiles import trade_off_at
from zetadp.app.calculators.schemas import TRAINING, AccountantName, TradeOffAt, example
from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, PrivacyUnit, Spectral, Step
from zetadp.mechanisms.base import Extended, Value


@final
class CalibrationRequest(Value):
    """The event, which part of it may change (by default the noise of all its parts, by one common factor), and the target to reach.

    Attributes:
      derivation: whether to give the steps by which the guarantee can be recomputed by hand.
    """

    model_config = example({"event": TRAINING, "target": {"epsilon": 1.0, "delta": 1e-5}})

    event: Event
    target: Target
    parameter: Parameter = NoiseScale()
    accountant: AccountantName = "auto"
    derivation: bool = False


@final
class SweepRequest(Value):
    """Many targets for one event: each search starts from its neighbours' solutions."""

    model_config = example({"event": TRAINING, "targets": [{"epsilon": 1.0, "delta": 1e-5}, {"epsilon": 2.0, "delta": 1e-5}]})

    event: Event
    targets: Annotated[tuple[Target, ...], Field(max_length=LONGEST_LIST)]
    parameter: Parameter = NoiseScale()
    accountant: AccountantName = "auto"


@final
class AchievedGuarantee(Value):
    """What the calibrated event guarantees; only the quantity of the target is filled in, as upper bounds (beta as a lower one)."""

    adjacency: Adjacency | None
    unit: PrivacyUnit | None
    epsilon: Bound | None
    delta: float | None
    gdp_mu: Extended | None
    rdp_order: float | None
    rdp: Extended | None
    advantage: float | None
    trade_off: TradeOffAt | None
    route: str


@final
class Calibration(Value):
    """The least safe value of the parameter that was found to meet the target: the least noise, the most steps.

    Attributes:
      event: the event with that value.
      value: of the parameter: a factor, a probability or a whole number.
      scale: the factor on every noise scale of the event as sent; null if another parameter was calibrated.
      misses_at: the nearest less safe value that was tried and isn't proven to meet the target; null if there was none.
      at_limit: whether the value is the least safe one there is, so that the target may be met with room to spare.
      noise_multiplier: std / l2 of the event's single Gaussian mechanism; null for several mechanisms, unequal parts or Laplace.
      std: its standard deviation per real component; null in the same cases.
      caveats: what the guarantee depends on.
      derivation: how to recompute the guarantee by hand, step by step; null unless the request asks for it.
      processor_seconds: what computing this answer took.
    """

    event: Event
    parameter: Parameter
    value: float
    scale: float | None
    misses_at: float | None
    at_limit: bool
    noise_multiplier: float | None
    std: float | None
    guarantee: AchievedGuarantee
    caveats: tuple[str, ...]
    derivation: tuple[Step, ...] | None
    processor_seconds: float


@final
class SweepPoint(Value):
    """The solution for one target, as in ``Calibration``; or a problem (RFC 9457), and everything else null."""

    target: Target
    value: float | None
    misses_at: float | None
    at_limit: bool | None
    noise_multiplier: float | None
    std: float | None
    problem: dict[str, Any] | None


@final
class Sweep(Value):
    """A point for each target, in their order; ``processor_seconds``: what computing all of them took."""

    parameter: Parameter
    points: tuple[SweepPoint, ...]
    processor_seconds: float


def compute_calibration(request: CalibrationRequest) -> Calibration:
    """The calibrated event and what it achieves. Raises CalibrationFailed and the accountants' errors."""
    begun = time.thread_time()
    accountant = accountant_named(request.accountant)
    solution = solve(request.event, request.parameter, request.target, accountant)
    found = accountant.profile(solution.event)
    multiplier, std = noise_of(solution.event)
    return Calibration(
        event=solution.event,
        parameter=solution.parameter,
        value=solution.value,
        scale=solution.value if isinstance(solution.parameter, NoiseScale) else None,
        misses_at=solution.misses_at,
        at_limit=solution.at_limit,
        noise_multiplier=multiplier,
        std=std,
        guarantee=_achieved(solution.event, found, request.target),
        caveats=caveats_of(solution.event),
        derivation=_derived(solution, found) if request.derivation else None,
        processor_seconds=time.thread_time() - begun,  # the arguments before are evaluated first
    )


def _derived(solution: Solution, found: PrivacyProfile) -> tuple[Step, ...]:
    symbol = "factor" if isinstance(solution.parameter, NoiseScale) else solution.parameter.kind
    step = Step(symbol=symbol, value=solution.value, formula=solution.parameter.meaning, source=found.route)
    return (step, *found.derivation())


def noise_of(event: Event) -> tuple[float | None, float | None]:
    """(noise multiplier, std per real component) if one number describes all the noise."""
    parts = list(leaves(event))
    mechanism = parts[0].mechanism if len(parts) == 1 and parts[0].releases == 1 else None
    if isinstance(mechanism, Gaussian | ComplexGaussian | Spectral) and mechanism.std is not None and mechanism.sensitivity.l2 is not None:
        return mechanism.std / mechanism.sensitivity.l2, mechanism.std
    return None, None


def _achieved(event: Event, found: PrivacyProfile, target: Target) -> AchievedGuarantee:
    neighbours = neighbourhood(event)
    return AchievedGuarantee(
        adjacency=None if neighbours is None else neighbours[0],
        unit=None if neighbours is None else neighbours[1],
        epsilon=found.epsilon(target.delta) if target.delta is not None else None,
        delta=target.delta,
        gdp_mu=found.gdp_mu,
        rdp_order=target.rdp.order if target.rdp is not None else None,
        rdp=found.rdp(target.rdp.order) if target.rdp is not None else None,
        advantage=found.delta(0.0).upper if target.advantage is not None else None,
        trade_off=None if target.trade_off is None else trade_off_at(found, target.trade_off.alpha, neighbours),
        route=found.route,
    )
