r"""Complex Gaussian noise as papers write it, converted to standard deviations per real component. Every statement names its convention.

One symbol, several meanings: under N_C(0, sigma^2) each real component has sigma / sqrt 2, under N_C(0, 2 sigma^2, 2 i gamma) it has sigma.
A bare "sigma" is therefore never accepted. Proof of the conversions: proofs/complex_gaussian.md. Errata section 0.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Correlation, Number, Positive, Sensitivity, Step, Value
from zetadp.mechanisms.complex_gaussian import ComplexGaussian
from zetadp.mechanisms.errors import InvalidParameter

Variance = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=SMALLEST_SCALE**2, le=LARGEST_SCALE**2)]
"""The square of a scale."""


def per_component_from_total(total_std: float) -> float:
    r"""std of each of two equal components of noise with E|n|^2 = total_std^2.

    >>> per_component_from_total(2.0) == 2.0**0.5
    True
    """
    return total_std * math.sqrt(0.5)


def total_from_per_component(std: float) -> float:
    r"""sqrt(E|n|^2) of noise whose two real components have this std.

    >>> total_from_per_component(1.0) == 2.0**0.5
    True
    """
    return std * math.sqrt(2.0)


@final
class ComponentNoise(Value):
    """The common form of all statements: deviations per real component, their correlation, and how they were found."""

    std_real: float
    std_imag: float
    correlation: float
    steps: tuple[Step, ...]


@final
class TotalNoise(Value):
    r"""The zeta-DP paper's N_C(0, sigma^2): circular, sigma^2 = E|n|^2, so sigma / sqrt 2 on each real component. Errata Z1."""

    convention: Literal["total"]
    sigma: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_scale("sigma", self.sigma, per_component_from_total(self.sigma))
        return self

    def components(self) -> ComponentNoise:
        """The noise per real component."""
        return _equal_parts(
            per_component_from_total(self.sigma),
            _given("sigma", self.sigma, "N_C(0, sigma^2): sigma^2 = E|n|^2; zeta-DP, Definition 7"),
            "sigma / sqrt(2)",
        )


@final
class PerComponentNoise(Value):
    r"""The federated paper's N_C(0, 2 sigma^2, 2 i gamma): sigma on each real component, correlation rho = gamma / sigma^2. Errata C1.

    Attributes:
      sigma: standard deviation of each real component.
      gamma: covariance of the two components, |gamma| < sigma^2; or
      rho: their correlation, in (-1, 1). Neither: circular noise, the paper's N_C(0, 2 sigma^2, 0).
    Raises:
      ValidationError: both gamma and rho, or a covariance matrix that isn't positive definite.
    """

    convention: Literal["per_component"]
    sigma: Positive
    gamma: Number | None = None
    rho: Correlation | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.gamma is not None and self.rho is not None:
            raise InvalidParameter("gamma", "given alone, or rho without it", "both")
        if self.gamma is not None and self._rho_of(self.gamma) is None:
            raise InvalidParameter("gamma", f"strictly between -sigma^2 and sigma^2 = {self.sigma**2!r}", self.gamma)
        return self

    def _rho_of(self, gamma: float) -> float | None:
        return _correlation("gamma", gamma, Fraction(self.sigma) ** 4, (self.sigma, self.sigma))

    def components(self) -> ComponentNoise:
        """The noise per real component."""
        given = [_given("sigma", self.sigma, "N_C(0, 2 sigma^2, 2 i gamma): sigma^2 on each component; complex DP federated, Definition 1")]
        rho, formula = self.rho or 0.0, "given" if self.rho is not None else "0 where neither gamma nor rho is given: circular noise"
        if self.gamma is not None:
            given.append(_given("gamma", self.gamma, "Cov(Re n, Im n)"))
            rho, formula = self._rho_of(self.gamma) or 0.0, "gamma / sigma^2, rounded away from 0"
        steps = (
            *given,
            Step(symbol="std_real = std_imag", value=self.sigma, formula="sigma", source="errata C1"),
            Step(symbol="rho", value=rho, formula=formula, source="complex DP federated, Definition 1"),
        )
        return ComponentNoise(std_real=self.sigma, std_imag=self.sigma, correlation=rho, steps=steps)


@final
class CovarianceNoise(Value):
    r"""(Re n, Im n) ~ N(0, [[v_real, covariance], [covariance, v_imag]]) on every coordinate. Errata C6.

    Raises:
      ValidationError: the matrix isn't positive definite: covariance^2 >= v_real v_imag.
    """

    convention: Literal["covariance"]
    v_real: Variance
    v_imag: Variance
    covariance: Number

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self._rho() is None:
            limit = math.sqrt(self.v_real) * math.sqrt(self.v_imag)
            expected = f"strictly between -{limit!r} and {limit!r} (a positive definite matrix)"
            raise InvalidParameter("covariance", expected, self.covariance)
        return self

    def _rho(self) -> float | None:
        roots = math.sqrt(self.v_real), math.sqrt(self.v_imag)
        return _correlation("covariance", self.covariance, Fraction(self.v_real) * Fraction(self.v_imag), roots)

    def components(self) -> ComponentNoise:
        """The noise per real component."""
        std_real, std_imag = _root_down(self.v_real), _root_down(self.v_imag)
        rho = self._rho() or 0.0
        steps = (
            _given("v_real", self.v_real, "Var Re n"),
            _given("v_imag", self.v_imag, "Var Im n"),
            _given("c", self.covariance, "Cov(Re n, Im n)"),
            Step(symbol="std_real", value=std_real, formula="sqrt(v_real), rounded down", source="definition"),
            Step(symbol="std_imag", value=std_imag, formula="sqrt(v_imag), rounded down", source="definition"),
            Step(symbol="rho", value=rho, formula="c / (std_real std_imag), rounded away from 0", source="definition"),
        )
        return ComponentNoise(std_real=std_real, std_imag=std_imag, correlation=rho, steps=steps)


@final
class ZetaAlgorithmNoise(Value):
    r"""Algorithm 1 of the zeta-DP paper: N_C(0, sigma^2 B^2), hence sigma B / sqrt 2 on each real component. Errata Z10."""

    convention: Literal["zeta_dp_algorithm_1"]
    sigma: Positive
    clipping_bound: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_scale("sigma", self.sigma, per_component_from_total(self.sigma * self.clipping_bound))
        return self

    def components(self) -> ComponentNoise:
        """The noise per real component."""
        return _equal_parts(
            per_component_from_total(self.sigma * self.clipping_bound),
            _given("sigma", self.sigma, "N_C(0, sigma^2 B^2): (sigma B)^2 = E|n|^2; zeta-DP, Algorithm 1"),
            "sigma B / sqrt(2)",
            _given("B", self.clipping_bound, "clipping bound"),
        )


@final
class FederatedAlgorithmNoise(Value):
    r"""Algorithm 1 of the federated paper: N_C(0, 2 B^2 sigma^2, 0), hence sigma B on each real component. Errata C18."""

    convention: Literal["federated_algorithm_1"]
    sigma: Positive
    clipping_bound: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_scale("sigma", self.sigma, self.sigma * self.clipping_bound)
        return self

    def components(self) -> ComponentNoise:
        """The noise per real component."""
        return _equal_parts(
            self.sigma * self.clipping_bound,
            _given("sigma", self.sigma, "N_C(0, 2 B^2 sigma^2, 0): (sigma B)^2 on each component; complex DP federated, Algorithm 1"),
            "sigma B",
            _given("B", self.clipping_bound, "clipping bound"),
        )


NoiseStatement = Annotated[
    TotalNoise | PerComponentNoise | CovarianceNoise | ZetaAlgorithmNoise | FederatedAlgorithmNoise, Field(discriminator="convention")
]
"""Complex Gaussian noise, stated under a named convention."""


def complex_gaussian(noise: NoiseStatement, sensitivity: Sensitivity) -> ComplexGaussian:
    """The mechanism that adds this noise to a query of this sensitivity.

    Raises:
      InvalidParameter: the sensitivity has no l2 bound.

    >>> sensitivity = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
    >>> round(complex_gaussian(TotalNoise(convention="total", sigma=1.0), sensitivity).privacy_loss().mu, 12)
    1.414213562373
    """
    _ = sensitivity.stated_l2
    found = noise.components()
    if found.std_real == found.std_imag:
        return ComplexGaussian(std=found.std_real, correlation=found.correlation, sensitivity=sensitivity)
    return ComplexGaussian(std_real=found.std_real, std_imag=found.std_imag, correlation=found.correlation, sensitivity=sensitivity)


def _given(symbol: str, value: float, source: str) -> Step:
    return Step(symbol=symbol, value=value, formula="given", source=source)


def _equal_parts(std: float, sigma: Step, formula: str, *others: Step) -> ComponentNoise:
    steps = (
        sigma,
        *others,
        Step(symbol="std_real = std_imag", value=std, formula=formula, source="errata section 0"),
        Step(symbol="rho", value=0.0, formula="0: circular noise", source="definition"),
    )
    return ComponentNoise(std_real=std, std_imag=std, correlation=0.0, steps=steps)


def _check_scale(field: str, given: float, std: float) -> None:
    if not SMALLEST_SCALE <= std <= LARGEST_SCALE:
        raise InvalidParameter(field, f"such that each component's deviation lies in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}]", given)


def _root_down(variance: float) -> float:
    root = math.sqrt(variance)
    return max(math.nextafter(root, 0.0) if Fraction(root) ** 2 > Fraction(variance) else root, SMALLEST_SCALE)


def _correlation(field: str, covariance: float, product: Fraction, roots: tuple[float, float]) -> float | None:
    """covariance / sqrt(product) rounded away from 0, or None if the matrix isn't positive definite.

    mu grows without bound as |rho| approaches 1, so rounding rho towards 0 would make mu too small there. Exact fractions decide.
    """
    squared = Fraction(covariance) ** 2
    if squared >= product:
        return None
    rho = min(abs(covariance) / roots[0] / roots[1], 1.0)
    while Fraction(rho) ** 2 * product < squared:
        rho = math.nextafter(rho, 2.0)
    if rho >= 1.0:
        raise InvalidParameter(
            field, "such that the correlation is a float below 1 in size (this matrix is singular to rounding)", covariance
        )
    return math.copysign(rho, covariance)
