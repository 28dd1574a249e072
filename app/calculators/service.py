r"""What the calculators answer, free of HTTP: the command line and the REST routes call the same functions."""

from __future__ import annotations

from importlib.resources import files

from accountants import ACCOUNTANTS, Event, PrivacyProfile, Release, accountant_named, calibrate, leaves, neighbourhood, profile
from accountants.gdp import GdpProfile
from app.calculators.schemas import (
    AccountantEntry,
    AchievedGuarantee,
    AlgorithmEntry,
    Calibration,
    CalibrationRequest,
    Claim,
    ClaimedDelta,
    ClaimedEpsilon,
    Comparison,
    ComplexGaussianComparison,
    DeltaAt,
    EpsilonAt,
    MechanismEntry,
    Profile,
    ProfileRequest,
    Proof,
    RdpAt,
    TradeOffAt,
)
from mechanisms import MECHANISMS, ComplexGaussian, Gaussian, Mechanism, Step
from mechanisms.errors import InvalidParameter
from mechanisms.published import PublishedClaim, claims_on_complex_gaussian
from trainer import ALGORITHMS


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


def compare_complex_gaussian(request: ComplexGaussianComparison) -> Comparison:
    """The printed theorems of both papers beside the proved profile of one release."""
    points = ProfileRequest(event=Release(mechanism=request.mechanism), epsilons=request.epsilons, deltas=request.deltas)
    claims = claims_on_complex_gaussian(request.mechanism)
    return Comparison(proven=compute_profile(points), published=tuple(_claim(claim, request) for claim in claims))


def _claim(claim: PublishedClaim, request: ComplexGaussianComparison) -> Claim:
    printed = None if claim.gdp_mu is None else GdpProfile(claim.gdp_mu, ())
    deltas = [] if printed is None else [(epsilon, printed.delta(epsilon)) for epsilon in request.epsilons]
    epsilons = [] if printed is None else [(delta, printed.epsilon(delta)) for delta in request.deltas]
    return Claim(
        claim=claim,
        delta=tuple(ClaimedDelta(epsilon=at, delta=bound.upper, log_delta=bound.log_upper) for at, bound in deltas),
        epsilon=tuple(ClaimedEpsilon(delta=at, epsilon=bound.upper) for at, bound in epsilons),
    )


def list_mechanisms() -> list[MechanismEntry]:
    """Every registered mechanism."""
    return [
        MechanismEntry(
            kind=mechanism.kind_name(),
            facts=mechanism.FACTS,
            example=mechanism.example().model_dump(mode="json", exclude_none=True),
            schema_=mechanism.model_json_schema(),
        )
        for mechanism in MECHANISMS
    ]


def proof_of(kind: str) -> Proof:
    """A mechanism's proof. Raises InvalidParameter for an unknown kind."""
    for mechanism in MECHANISMS:
        if mechanism.kind_name() == kind:
            text = files("mechanisms").joinpath("proofs", mechanism.FACTS.proof).read_text(encoding="utf-8")
            return Proof(kind=kind, markdown=text)
    raise InvalidParameter("kind", "one of " + ", ".join(m.kind_name() for m in MECHANISMS), kind)


def list_accountants() -> list[AccountantEntry]:
    """Every registered accountant."""
    return [AccountantEntry(name=accountant.name, summary=accountant.summary, sources=accountant.sources) for accountant in ACCOUNTANTS]


def list_algorithms() -> list[AlgorithmEntry]:
    """Every registered training algorithm."""
    return [
        AlgorithmEntry(
            name=algorithm.algorithm_name(),
            summary=algorithm.SUMMARY,
            sources=algorithm.SOURCES,
            errata=algorithm.ERRATA,
            example=algorithm.example().model_dump(mode="json", exclude_none=True),
            schema_=algorithm.model_json_schema(),
        )
        for algorithm in ALGORITHMS
    ]
