r"""The papers' formulas as printed, for comparison only. Nothing here may be reached from a certificate (import-linter forbids it)."""

from __future__ import annotations

from typing import Literal, final

from mechanisms.base import Extended, Value
from mechanisms.complex_gaussian import ComplexGaussian
from mechanisms.published import complex_dp_federated, zeta_dp

Verdict = Literal["overclaims privacy", "exact", "valid but loose", "does not apply"]

_ROUNDING = 1e-12


@final
class PublishedClaim(Value):
    """What a paper's printed formula says of a mechanism, beside what is proved.

    Attributes:
      name: the paper and its theorem.
      convention: what the paper's noise symbol means, and its value for this mechanism.
      gdp_mu: the printed formula's mu; null where it doesn't cover the mechanism.
      proven_gdp_mu: the tight mu.
      ratio: gdp_mu / proven_gdp_mu; below 1 the paper promises more privacy than there is.
      verdict: in words.
      errata: the row that proves it.
      note: what goes wrong.
    """

    name: str
    formula: str
    convention: str
    gdp_mu: Extended | None
    proven_gdp_mu: Extended
    ratio: Extended | None
    verdict: Verdict
    errata: str
    note: str


def claims_on_complex_gaussian(mechanism: ComplexGaussian) -> tuple[PublishedClaim, ...]:
    """Theorem 1 of both papers, evaluated for this mechanism.

    >>> from mechanisms import Sensitivity
    >>> noise = ComplexGaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> [(claim.verdict, round(claim.ratio, 4)) for claim in claims_on_complex_gaussian(noise)]
    [('overclaims privacy', 0.7071), ('exact', 1.0)]
    """
    return _zeta_dp_claim(mechanism), _federated_claim(mechanism)


def _zeta_dp_claim(mechanism: ComplexGaussian) -> PublishedClaim:
    assert mechanism.sensitivity.l2 is not None  # a complex Gaussian has one
    proven = mechanism.privacy_loss().mu
    circular = mechanism.std is not None and mechanism.correlation == 0.0
    printed = zeta_dp.theorem_1_mu(mechanism.sensitivity.l2, mechanism.total_std) if circular else None
    return PublishedClaim(
        name="zeta-DP, Theorem 1",
        formula="mu = Delta / sigma",
        convention=f"N_C(0, sigma^2): E|n|^2 = sigma^2, half on each real component; here sigma = total_std = {mechanism.total_std!r}",
        gdp_mu=printed,
        proven_gdp_mu=proven,
        ratio=None if printed is None else printed / proven,
        verdict=_verdict(printed, proven),
        errata="Z2",
        note="Each real component has only sigma / sqrt(2), so the true mu is sqrt(2) Delta / sigma (or less, by the parts' sensitivities)."
        if circular
        else "Theorem 1 is for circular noise: equal components, correlation 0.",
    )


def _federated_claim(mechanism: ComplexGaussian) -> PublishedClaim:
    sensitivity = mechanism.sensitivity
    assert sensitivity.l2 is not None  # a complex Gaussian has one
    proven = mechanism.privacy_loss().mu
    printed = None
    if mechanism.std is not None:
        l2_real = sensitivity.l2 if sensitivity.l2_real is None else sensitivity.l2_real
        l2_imag = sensitivity.l2 if sensitivity.l2_imag is None else sensitivity.l2_imag
        printed = complex_dp_federated.theorem_1_mu(sensitivity.l2, l2_real, l2_imag, mechanism.std, mechanism.correlation)
    return PublishedClaim(
        name="Complex federated learning with DP, Theorem 1",
        formula="mu^2 = (Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2))",
        convention="N_C(0, 2 sigma^2, 2 i gamma): sigma^2 on each real component, rho = gamma / sigma^2; here sigma = std",
        gdp_mu=printed,
        proven_gdp_mu=proven,
        ratio=None if printed is None else printed / proven,
        verdict=_verdict(printed, proven),
        errata="C3",
        note="A valid upper bound, but the maximum over moves inside the ball is smaller once rho isn't 0."
        if printed is not None
        else "Theorem 1 is for components of equal deviation.",
    )


def _verdict(printed: float | None, proven: float) -> Verdict:
    if printed is None:
        return "does not apply"
    if printed < proven * (1.0 - _ROUNDING):
        return "overclaims privacy"
    return "valid but loose" if printed > proven * (1.0 + _ROUNDING) else "exact"
