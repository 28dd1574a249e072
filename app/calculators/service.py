r"""What the calculators answer, free of HTTP: the command line and the REST routes call the same functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

from accountants import Event, PrivacyProfile, accountant_named, calibrate, deadline, leaves, neighbourhood, profile
from app.calculators.schemas import (
    AchievedGuarantee,
    Calibration,
    CalibrationRequest,
    DeltaAt,
    EpsilonAt,
    Profile,
    ProfileRequest,
    RdpAt,
    TradeOffAt,
)
from mechanisms import ComplexGaussian, Gaussian, Mechanism, Step

_Point = TypeVar("_Point")
_Answer = TypeVar("_Answer")


@final
class Answers:
    """One event's profile and every answer it has given: what is asked twice is computed once."""

    def __init__(self, event: Event, accountant: str) -> None:
        self._profile = profile(event, accountant)
        self._adjacency, self._unit = neighbourhood(event) or (None, None)
        self._derivation = self._profile.derivation()
        self._delta: dict[float, DeltaAt] = {}
        self._epsilon: dict[float, EpsilonAt] = {}
        self._rdp: dict[float, RdpAt] = {}
        self._trade_off: dict[float, TradeOffAt] = {}

    @property
    def count(self) -> int:
        """How many answers are kept."""
        return len(self._delta) + len(self._epsilon) + len(self._rdp) + len(self._trade_off)

    def at(self, points: ProfileRequest) -> Profile:
        """The profile at these points; the request's event must be this one. Raises the accountants' errors."""
        return Profile(
            adjacency=self._adjacency,
            unit=self._unit,
            delta=_kept(self._delta, points.epsilons, self._delta_at),
            epsilon=_kept(self._epsilon, points.deltas, self._epsilon_at),
            rdp=_kept(self._rdp, points.orders, lambda order: RdpAt(order=order, value=self._profile.rdp(order))),
            gdp_mu=self._profile.gdp_mu,
            trade_off=_kept(self._trade_off, points.alphas, lambda alpha: TradeOffAt(alpha=alpha, beta=self._profile.trade_off(alpha))),
            route=self._profile.route,
            derivation=self._derivation,
        )

    def _delta_at(self, epsilon: float) -> DeltaAt:
        bound = self._profile.delta(epsilon)
        return DeltaAt(epsilon=epsilon, lower=bound.lower, upper=bound.upper, log_upper=bound.log_upper, route=bound.route)

    def _epsilon_at(self, delta: float) -> EpsilonAt:
        bound = self._profile.epsilon(delta)
        return EpsilonAt(delta=delta, lower=bound.lower, upper=bound.upper, route=bound.route)


def _kept(known: dict[_Point, _Answer], points: tuple[_Point, ...], answer: Callable[[_Point], _Answer]) -> tuple[_Answer, ...]:
    for point in points:
        if point not in known:
            deadline.check()
            known[point] = answer(point)
    return tuple(known[point] for point in points)


def compute_profile(request: ProfileRequest) -> Profile:
    """The profile of the request's event at the points asked for. Raises the accountants' errors."""
    return Answers(request.event, request.accountant).at(request)


def compute_calibration(request: CalibrationRequest) -> Calibration:
    """The calibrated event and what it achieves. Raises CalibrationFailed and the accountants' errors."""
    accountant = accountant_named(request.accountant)
    event, factor = calibrate(request.event, request.target, accountant)
    found = accountant.profile(event)
    parts = list(leaves(event))
    multiplier, std = _noise(parts[0].mechanism) if len(parts) == 1 else (None, None)
    step = Step(symbol="factor", value=factor, formula="least common factor on every noise scale that meets the target", source=found.route)
    return Calibration(
        event=event,
        scale=factor,
        noise_multiplier=multiplier,
        std=std,
        guarantee=_achieved(event, found, request),
        derivation=(step, *found.derivation()),
    )


def _noise(mechanism: Mechanism) -> tuple[float | None, float | None]:
    """(noise multiplier, std per real component) where one number says it all."""
    if isinstance(mechanism, Gaussian | ComplexGaussian) and mechanism.std is not None and mechanism.sensitivity.l2 is not None:
        return mechanism.std / mechanism.sensitivity.l2, mechanism.std
    return None, None


def _achieved(event: Event, found: PrivacyProfile, request: CalibrationRequest) -> AchievedGuarantee:
    target = request.target
    adjacency, unit = neighbourhood(event) or (None, None)
    return AchievedGuarantee(
        adjacency=adjacency,
        unit=unit,
        epsilon=found.epsilon(target.delta) if target.delta is not None else None,
        delta=target.delta,
        gdp_mu=found.gdp_mu,
        rdp_order=target.rdp.order if target.rdp is not None else None,
        rdp=found.rdp(target.rdp.order) if target.rdp is not None else None,
        advantage=found.delta(0.0).upper if target.advantage is not None else None,
        route=found.route,
    )
