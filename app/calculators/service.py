r"""What the calculators answer, free of HTTP: the command line and the REST routes call the same functions."""

from __future__ import annotations

from accountants import Event, PrivacyProfile, accountant_named, calibrate, leaves, neighbourhood, profile
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


def compute_profile(request: ProfileRequest) -> Profile:
    """The profile of the request's event at the points asked for. Raises the accountants' errors."""
    return _profile(request.event, profile(request.event, request.accountant), request)


def _profile(event: Event, found: PrivacyProfile, request: ProfileRequest) -> Profile:
    adjacency, unit = neighbourhood(event) or (None, None)
    deltas = [(epsilon, found.delta(epsilon)) for epsilon in request.epsilons]
    epsilons = [(delta, found.epsilon(delta)) for delta in request.deltas]
    return Profile(
        adjacency=adjacency,
        unit=unit,
        delta=tuple(DeltaAt(epsilon=at, lower=b.lower, upper=b.upper, log_upper=b.log_upper, route=b.route) for at, b in deltas),
        epsilon=tuple(EpsilonAt(delta=at, lower=b.lower, upper=b.upper, route=b.route) for at, b in epsilons),
        rdp=tuple(RdpAt(order=order, value=found.rdp(order)) for order in request.orders),
        gdp_mu=found.gdp_mu,
        trade_off=tuple(TradeOffAt(alpha=alpha, beta=found.trade_off(alpha)) for alpha in request.alphas),
        route=found.route,
        derivation=found.derivation(),
    )


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
