r"""Findings on one release of the complex Gaussian mechanism as the zeta-DP paper states it: errata Z1, Z2, Z5 and Z7."""

from __future__ import annotations

import math
from functools import cache

import scipy

from zetadp.app.calculators.compare.complex_gaussian.component_bounds import bounds
from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given, raised, step
from zetadp.mechanisms import ComplexGaussian, Step
from zetadp.mechanisms.conventions import per_component_from_total
from zetadp.mechanisms.numerics.gdp import gdp_log_delta
from zetadp.mechanisms.published import zeta_dp

_OTHER_NOISE = " The paper's statement is for circular noise only (equal components, correlation 0), so it doesn't cover this one."


def findings(mechanism: ComplexGaussian, points: Points) -> tuple[Finding, ...]:
    """The paper's statements at this mechanism and these points, each next to what is proven."""
    orders = points.orders or (2.0,)
    mus = points.mus or (mechanism.privacy_loss().mu,)
    return (
        _theorem_1(mechanism, points),
        *_definition_7(mechanism),
        *(_theorem_2(mechanism, order) for order in orders),
        *(_theorem_3(mechanism, mu) for mu in mus),
    )


def _sigma(mechanism: ComplexGaussian) -> tuple[Step, ...]:
    std_real, std_imag = mechanism.stds
    return (
        given("std_real", std_real, "deviation of the real component"),
        given("std_imag", std_imag, "deviation of the imaginary component"),
        step("sigma", mechanism.total_std, "sqrt(std_real^2 + std_imag^2)", "N_C(0, sigma^2): sigma^2 = E|n|^2"),
    )


def _note(text: str, circular: bool) -> str:
    return text if circular else text + _OTHER_NOISE


def _theorem_1(mechanism: ComplexGaussian, points: Points) -> Finding:
    circular, proven = mechanism.is_circular, raised(mechanism.privacy_loss().mu)
    printed = zeta_dp.theorem_1_mu(bounds(mechanism)[0], mechanism.total_std) if circular else None
    delta, epsilon = consequences(printed, proven, points)
    return finding(
        "mu of one release",
        "zeta_dp",
        "Theorem 1, equations (6) and (15)",
        printed=printed,
        printed_formula="mu = Delta / sigma, delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)",
        proven=proven,
        proven_formula="mu = sqrt(2) Delta / sigma (smaller where l2_real^2 + l2_imag^2 < Delta^2), the same delta(eps)",
        stronger="smaller",
        erratum="Z2",
        note=_note("Each real component has sigma / sqrt(2) only, so every neighbour is sqrt(2) times easier to tell.", circular),
        derivation=(*_sigma(mechanism), *mechanism.derivation()),
        counterexample=_event(),
        delta=delta,
        epsilon=epsilon,
    )


def _definition_7(mechanism: ComplexGaussian) -> tuple[Finding, ...]:
    circular, sigma = mechanism.is_circular, mechanism.total_std
    quantity = "standard deviation of each real component, in units of the query"
    derivation = (*_sigma(mechanism), step("std", per_component_from_total(sigma), "sigma / sqrt(2)", "E|n|^2 = 2 std^2"))
    component = finding(
        quantity,
        "zeta_dp",
        "below Definition 7",
        printed=zeta_dp.definition_7_component_std(sigma) if circular else None,
        printed_formula="noise scaled by sqrt(2) sigma on each component",
        proven=per_component_from_total(sigma) if circular else None,
        proven_formula="sigma / sqrt(2)",
        stronger="larger",
        erratum="Z1",
        note=_note("The paper's own construction two lines above draws each component from N(0, sigma^2 / 2).", circular),
        derivation=derivation,
        counterexample=_variance(),
    )
    simulated = finding(
        "standard deviation of each real component that the same privacy needs in R^2n",
        "zeta_dp",
        "below Definition 7",
        printed=zeta_dp.definition_7_simulated_std(sigma) if circular else None,
        printed_formula="2 sigma",
        proven=per_component_from_total(sigma) if circular else None,
        proven_formula="sigma / sqrt(2): C^n with its length is R^2n with its length, and both densities are equal at every point",
        stronger="smaller",
        erratum="Z1",
        note=_note("Complex arithmetic saves no noise.", circular),
        derivation=derivation,
    )
    return component, simulated


def _theorem_2(mechanism: ComplexGaussian, order: float) -> Finding:
    circular, mu = mechanism.is_circular, mechanism.privacy_loss().mu
    proven = 0.5 * order * raised(mu) ** 2
    return finding(
        f"Renyi divergence of order {order!r} of one release, in nats",
        "zeta_dp",
        "Theorem 2, equations (7) and (9)",
        printed=zeta_dp.theorem_2_renyi(bounds(mechanism)[0], mechanism.total_std, order) if circular else None,
        printed_formula="order Delta^2 / (2 sigma^2)",
        proven=proven,
        proven_formula="order mu^2 / 2 = order Delta^2 / sigma^2 (less by the parts' sensitivities)",
        stronger="smaller",
        erratum="Z5",
        note=_note("sigma^2 is shared by two components: the divergence is twice the printed one.", circular),
        derivation=(
            *_sigma(mechanism),
            *mechanism.derivation(),
            given("order", order, "request, or 2"),
            step("D_order", proven, "order mu^2 / 2, rounded up", "Gaussians of equal covariance; proofs/complex_gaussian.md"),
        ),
        counterexample=_divergence(),
    )


def _theorem_3(mechanism: ComplexGaussian, mu: float) -> Finding:
    circular, sigma, true_mu = mechanism.is_circular, mechanism.total_std, mechanism.privacy_loss().mu
    proven = raised(sigma * (true_mu / mu)) if circular else None
    return finding(
        f"sigma that {mu!r}-GDP needs, in units of the query",
        "zeta_dp",
        "Theorem 3, equations (10) to (12)",
        printed=zeta_dp.theorem_3_sigma(bounds(mechanism)[0], mu) if circular else None,
        printed_formula="sigma >= Delta / mu",
        proven=proven,
        proven_formula="sigma >= sqrt(2) Delta / mu (less by the parts' sensitivities)",
        stronger="smaller",
        erratum="Z7",
        note=_note("Noise chosen by the print gives sqrt(2) times the mu that was asked for.", circular),
        derivation=(
            *_sigma(mechanism),
            *mechanism.derivation(),
            given("mu asked for", mu, "mus of the request, or this mechanism's own"),
            *(() if proven is None else (step("sigma needed", proven, "sigma mu / (mu asked for), rounded up", "mu falls as 1 / sigma"),)),
        ),
        counterexample=_event(),
    )


def _phi(x: float) -> float:
    return float(scipy.special.ndtr(x))


# Their figures need scipy, which isn't loaded when the service starts.
@cache
def _event() -> Counterexample:
    sigma, length, epsilon = 1.0, 1.0, 1.0
    std = per_component_from_total(sigma)
    threshold = std * std * epsilon / length + 0.5 * length
    hit, false = _phi((length - threshold) / std), _phi(-threshold / std)
    printed = math.exp(zeta_dp.theorem_1_log_delta(length, sigma, epsilon))
    return Counterexample(
        description="One complex number, f(D) = 0 and f(D') = 1 (so Delta = 1), sigma = 1, epsilon = 1: look whether Re z exceeds t.",
        steps=(
            step("std", std, "sigma / sqrt(2)", "Re z ~ N(Re f, std^2)"),
            step("t", threshold, "std^2 epsilon / Delta + Delta / 2", "where the likelihood ratio is e^epsilon"),
            step("P(Re z > t | D')", hit, "Phi((Delta - t) / std)", "normal law"),
            step("P(Re z > t | D)", false, "Phi(-t / std)", "normal law"),
            step("delta attained", hit - math.exp(epsilon) * false, "P(. | D') - e^epsilon P(. | D)", "(epsilon, delta)-DP bounds it"),
            step("delta in closed form", math.exp(gdp_log_delta(length / std, epsilon)), "delta_G(sqrt(2) Delta / sigma, epsilon)", "Z2"),
            step("delta printed", printed, "delta_G(Delta / sigma, epsilon)", "equation (6)"),
        ),
    )


@cache
def _variance() -> Counterexample:
    sigma = 1.0
    printed, true = zeta_dp.definition_7_component_std(sigma), per_component_from_total(sigma)
    return Counterexample(
        description="sigma = 1: two components must add up to E|n|^2 = sigma^2 = 1.",
        steps=(
            step("E|n|^2 as printed", 2.0 * printed**2, "2 (sqrt(2) sigma)^2", "below Definition 7"),
            step("E|n|^2", 2.0 * true**2, "2 (sigma / sqrt(2))^2", "Definition 7"),
        ),
    )


@cache
def _divergence() -> Counterexample:
    order, length, sigma = 2.0, 1.0, 1.0
    return Counterexample(
        description="Delta = sigma = 1, order 2: N_C(1, 1) against N_C(0, 1). Its real part alone is N(1, 1/2) against N(0, 1/2).",
        steps=(
            step(
                "D_2", order * length**2 / (2.0 * per_component_from_total(sigma) ** 2), "order Delta^2 / (2 sigma^2 / 2)", "real Gaussians"
            ),
            step("D_2 printed", zeta_dp.theorem_2_renyi(length, sigma, order), "order Delta^2 / (2 sigma^2)", "equation (9)"),
        ),
    )
