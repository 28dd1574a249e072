r"""Findings on one release of the complex Gaussian mechanism as the federated-learning paper states it: errata C3, C4, C7 and C8."""

from __future__ import annotations

import math

from zetadp.app.calculators.compare.complex_gaussian.component_bounds import bounds
from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given, raised, step
from zetadp.mechanisms import Adjacency, ComplexGaussian, Sensitivity
from zetadp.mechanisms.noise_shape import optimal_shape
from zetadp.mechanisms.published import complex_dp_federated

_OTHER_NOISE = " The paper's statement is for components of equal deviation, so it doesn't cover this noise."


def findings(mechanism: ComplexGaussian, points: Points) -> tuple[Finding, ...]:
    """The paper's statements at this mechanism and these points, each next to what is proven."""
    return _theorem_1(mechanism, points), _tightness(mechanism), _correlation(mechanism), _shape(mechanism)


def _printed_mu(mechanism: ComplexGaussian) -> float | None:
    std_real, std_imag = mechanism.stds
    if std_real != std_imag:
        return None
    return complex_dp_federated.theorem_1_mu(*bounds(mechanism), std_real, mechanism.correlation)


def _theorem_1(mechanism: ComplexGaussian, points: Points) -> Finding:
    printed, proven = _printed_mu(mechanism), raised(mechanism.privacy_loss().mu)
    delta, epsilon = consequences(printed, proven, points)
    return finding(
        "mu of one release",
        "complex_dp_federated",
        "Theorem 1, equations (3) and (13)",
        printed=printed,
        printed_formula="mu^2 = (Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2)); sigma = std of each component",
        proven=proven,
        proven_formula="mu^2 = max (r^2 + s^2 + 2 |rho| r s) / (sigma^2 (1 - rho^2)), r <= Delta_Re, s <= Delta_Im, r^2 + s^2 <= Delta^2",
        stronger="smaller",
        erratum="C3",
        note="A valid upper bound, but Delta, Delta_Re and Delta_Im can't all be reached by one move." + _if_unequal(printed),
        derivation=mechanism.derivation(),
        counterexample=_BALL,
        delta=delta,
        epsilon=epsilon,
    )


def _if_unequal(printed: float | None) -> str:
    return _OTHER_NOISE if printed is None else ""


def _tightness(mechanism: ComplexGaussian) -> Finding:
    printed, proven = _printed_mu(mechanism), raised(mechanism.privacy_loss().mu)
    r, s = mechanism.worst_move()
    sign = -math.copysign(1.0, mechanism.correlation)
    return finding(
        "least mu that follows from Delta, Delta_Re and Delta_Im alone",
        "complex_dp_federated",
        'below equation (13): "no tighter bound than 13 can be computed"',
        printed=printed,
        printed_formula="the mu of equation (13)",
        proven=proven,
        proven_formula="the maximum of C3, attained by a query of one coordinate with these three sensitivities",
        stronger="smaller",
        erratum="C4",
        note="The proved mu uses the same three numbers and no others; it is attained, so it is the least." + _if_unequal(printed),
        derivation=(
            *mechanism.derivation(),
            step("worst move, real part", r, "r", "a query with values -move/2 and move/2 attains mu"),
            step("worst move, imaginary part", sign * s, "-sign(rho) s", "the sign that makes the cross term positive"),
            step("least mu", proven, "mu of that move, rounded up", "proofs/complex_gaussian.md"),
        ),
        counterexample=_BALL,
    )


def _correlation(mechanism: ComplexGaussian) -> Finding:
    std_real, std_imag = mechanism.stds
    big, real, imag = bounds(mechanism)
    rho = abs(mechanism.correlation)
    length = min(big, math.sqrt(2.0) * real, math.sqrt(2.0) * imag)
    covered = std_real == std_imag and length > 0.0
    printed = complex_dp_federated.corollary_1_mu(length, std_real) if covered else None
    proven = raised(length / (std_real * math.sqrt(1.0 + rho))) if covered else None
    phase = "1 - i" if mechanism.correlation < 0.0 else "1 + i"
    return finding(
        f"mu of the query ({phase}) t, t real, at this sigma and rho",
        "complex_dp_federated",
        'below Corollary 1: "choosing rho != 0 can never improve the privacy guarantee"',
        printed=printed,
        printed_formula="at least Delta / sigma, that of rho = 0",
        proven=proven,
        proven_formula=f"at rho = {mechanism.correlation!r}: Delta / (sigma sqrt(1 + |rho|))",
        stronger="smaller",
        erratum="C7",
        note="True where only Delta, Delta_Re and Delta_Im are known. False for a query whose phase is known: noise can be put along it. "
        "Never use this mu for another query."
        + ("" if covered else " It doesn't cover components of unequal deviation, or a part that never moves."),
        derivation=(
            step("Delta", length, "min(D, sqrt(2) l2_real, sqrt(2) l2_imag)", "longest move of this phase within the bounds"),
            given("sigma", std_real, "std of each component"),
            given("rho", mechanism.correlation, "correlation"),
            *(
                ()
                if proven is None
                else (step("mu", proven, "Delta / (sigma sqrt(1 + |rho|))", "(u, u) S^-1 (u, u)^T = 2 u^2 / (1 + rho)"),)
            ),
        ),
        counterexample=_PHASE,
    )


def _shape(mechanism: ComplexGaussian) -> Finding:
    shape, total = optimal_shape(mechanism.sensitivity), mechanism.total_std
    proven = raised(shape.optimal_mu_times_total_std / total)
    return finding(
        "least mu of any Gaussian noise of this mean squared error",
        "complex_dp_federated",
        'Section 3, on equation (4): "the circular cGM is in this sense optimal"',
        printed=complex_dp_federated.least_mu_at_equal_error(shape.longest, total),
        printed_formula="circular noise: sqrt(2) Delta / total_std, Delta the longest move within the bounds",
        proven=proven,
        proven_formula="(r + s) / total_std, (r, s) the move with the largest r + s; v_real : v_imag = r : s",
        stronger="smaller",
        erratum="C8",
        note="True where Delta_Re and Delta_Im are both at least Delta / sqrt(2); elsewhere unequal parts win, by up to 2 in mu^2. "
        "POST /v1/noise-shapes gives that noise.",
        derivation=(
            *shape.derivation(),
            step("total_std", total, "sqrt(std_real^2 + std_imag^2)", "root of the mean squared error of a coordinate"),
            given("mu of this noise", mechanism.privacy_loss().mu, "its own shape"),
            step("mu", proven, "(r + s) / total_std, rounded up", "proofs/noise_shape.md"),
        ),
        counterexample=_UNEQUAL,
    )


def _sensitivity(l2: float, l2_real: float | None = None, l2_imag: float | None = None) -> Sensitivity:
    return Sensitivity(l2=l2, l2_real=l2_real, l2_imag=l2_imag, adjacency=Adjacency.ADD_REMOVE, unit="record")


def _ball() -> Counterexample:
    noise = ComplexGaussian(std=1.0, correlation=0.5, sensitivity=_sensitivity(1.0))
    printed = complex_dp_federated.theorem_1_mu(1.0, 1.0, 1.0, 1.0, 0.5)
    r, s = noise.worst_move()
    return Counterexample(
        description="Delta = Delta_Re = Delta_Im = 1, sigma = 1, rho = 1/2: every move of length 1, in any direction of the plane.",
        steps=(
            step("mu printed", printed, "sqrt((1 + 2 rho) / (1 - rho^2))", "equation (13)"),
            step("r = s", r, "1 / sqrt(2)", "the worst move; r = s = 1 would have length sqrt(2)"),
            step("mu", noise.privacy_loss().mu, "sqrt((r^2 + s^2 + 2 rho r s) / (1 - rho^2))", "attained by it"),
            step("s", s, "1 / sqrt(2)", "as r"),
        ),
    )


def _phase() -> Counterexample:
    def squared(rho: float) -> float:
        return 2.0 / (1.0 + rho)

    return Counterexample(
        description="One person moves q = (1 + i) t by t = 1; sigma = 1. Noise along 1 + i hides it better at the same mean squared error.",
        steps=tuple(
            step(f"mu^2 at rho = {rho!r}", squared(rho), "2 / (1 + rho)", "inverse of [[1, rho], [rho, 1]]") for rho in (0.0, 0.5, 0.9)
        ),
    )


def _unequal() -> Counterexample:
    sensitivity, total = _sensitivity(1.0, 1.0, 0.3), math.sqrt(2.0)
    shape = optimal_shape(sensitivity)
    best = shape.mechanism(total)
    circular = ComplexGaussian(std=total * math.sqrt(0.5), sensitivity=sensitivity)
    return Counterexample(
        description="Delta = 1, Delta_Im = 0.3, mean squared error 2 a coordinate.",
        steps=(
            step("mu^2, circular", circular.privacy_loss().mu ** 2, "2 Delta^2 / 2", "printed as the least"),
            step("v_real", shape.stds(total)[0] ** 2, "2 r / (r + s), r = sqrt(1 - 0.3^2), s = 0.3", "proofs/noise_shape.md"),
            step("v_imag", shape.stds(total)[1] ** 2, "2 s / (r + s)", "proofs/noise_shape.md"),
            step("mu^2 of that noise", (best.privacy_loss().gdp_mu or 0.0) ** 2, "(r + s)^2 / 2", "errata C6"),
        ),
    )


_BALL, _PHASE, _UNEQUAL = _ball(), _phase(), _unequal()
