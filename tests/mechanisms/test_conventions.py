from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms import InvalidParameter, NumpySource, Sensitivity
from zetadp.mechanisms.conventions import (
    CovarianceNoise,
    FederatedAlgorithmNoise,
    NoiseStatement,
    PerComponentNoise,
    TotalNoise,
    ZetaAlgorithmNoise,
    complex_gaussian,
    per_component_from_total,
    total_from_per_component,
)

ADAPTER: TypeAdapter[NoiseStatement] = TypeAdapter(NoiseStatement)
UNIT = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")

STATEMENTS = {
    "total": ({"convention": "total", "sigma": 2.0}, (math.sqrt(2.0), math.sqrt(2.0), 0.0)),
    "per component": ({"convention": "per_component", "sigma": 2.0}, (2.0, 2.0, 0.0)),
    "gamma": ({"convention": "per_component", "sigma": 2.0, "gamma": -1.2}, (2.0, 2.0, -0.3)),
    "rho": ({"convention": "per_component", "sigma": 2.0, "rho": 0.3}, (2.0, 2.0, 0.3)),
    "covariance": ({"convention": "covariance", "v_real": 4.0, "v_imag": 9.0, "covariance": -3.0}, (2.0, 3.0, -0.5)),
    "zeta": ({"convention": "zeta_dp_algorithm_1", "sigma": 3.0, "clipping_bound": 2.0}, (math.sqrt(18.0), math.sqrt(18.0), 0.0)),
    "federated": ({"convention": "federated_algorithm_1", "sigma": 3.0, "clipping_bound": 2.0}, (6.0, 6.0, 0.0)),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_statement_is_converted_to_deviations_per_component(name):
    statement, expected = STATEMENTS[name]
    found = ADAPTER.validate_python(statement).components()
    assert (found.std_real, found.std_imag, found.correlation) == pytest.approx(expected, rel=4e-16)


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_conversion_ends_at_its_deviations_and_correlation(name):
    found = ADAPTER.validate_python(STATEMENTS[name][0]).components()
    values = {step.symbol: step.value for step in found.steps}
    assert found.steps[0].formula == "given"
    assert found.steps[-1].value == found.correlation
    assert values.get("std_real", values.get("std_real = std_imag")) == found.std_real


@pytest.mark.parametrize("name", STATEMENTS)
def test_json_round_trip_is_exact(name):
    statement = ADAPTER.validate_python(STATEMENTS[name][0])
    assert ADAPTER.validate_json(ADAPTER.dump_json(statement)) == statement


@pytest.mark.parametrize("name", STATEMENTS)
def test_noise_that_is_drawn_has_the_stated_law(name):
    statement, (std_real, std_imag, rho) = STATEMENTS[name]
    count = 200_000
    noise = complex_gaussian(ADAPTER.validate_python(statement), UNIT).noise((count,), NumpySource.from_seed(4))
    # Five standard errors; a scale 30 % off is fifty away.
    assert np.mean(noise.real**2) == pytest.approx(std_real**2, rel=5 * math.sqrt(2 / count))
    assert np.mean(noise.imag**2) == pytest.approx(std_imag**2, rel=5 * math.sqrt(2 / count))
    assert np.corrcoef(noise.real, noise.imag)[0, 1] == pytest.approx(rho, abs=5 / math.sqrt(count))


def test_total_to_component_and_back_loses_at_most_two_units_in_the_last_place():
    generator = random.Random(1)
    for _ in range(1000):
        sigma = 10 ** generator.uniform(-49, 49)
        assert total_from_per_component(per_component_from_total(sigma)) == pytest.approx(sigma, rel=2**-51)
        assert per_component_from_total(total_from_per_component(sigma)) == pytest.approx(sigma, rel=2**-51)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gaussian_calibration"))
def test_the_same_noise_in_both_conventions_gives_the_same_mu(inputs, oracle):
    value = {name: float(number) for name, number in oracle["value"].items()}
    sensitivity = Sensitivity(l2=float(inputs["Delta"]), adjacency="add_remove", unit="record")
    total = complex_gaussian(TotalNoise(convention="total", sigma=value["sigma_total"]), sensitivity)
    component = complex_gaussian(PerComponentNoise(convention="per_component", sigma=value["sigma_component"]), sensitivity)
    assert (total.privacy_loss().mu, component.privacy_loss().mu) == pytest.approx((value["mu"], value["mu"]), rel=1e-14)
    assert per_component_from_total(value["sigma_total"]) == pytest.approx(value["sigma_component"], rel=1e-14)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_complex_gaussian"))
def test_renyi_divergence_of_both_conventions_agrees_with_forty_digits(inputs, oracle):
    sensitivity = Sensitivity(l2=float(inputs["Delta"]), adjacency="add_remove", unit="record")
    sigma, order = float(inputs["sigma"]), float(inputs["alpha"])
    for convention, key in ((TotalNoise, "N_C_total_sigma_correct"), (PerComponentNoise, "per_component_sigma")):
        noise = convention(convention=convention.model_fields["convention"].annotation.__args__[0], sigma=sigma)
        divergence = complex_gaussian(noise, sensitivity).privacy_loss().renyi(order)
        assert divergence == pytest.approx(float(oracle["value"][key]), rel=1e-14)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_general_covariance_mu"))
def test_mu_of_a_stated_covariance_agrees_with_forty_digits(inputs, oracle):
    noise = CovarianceNoise(
        convention="covariance", v_real=float(inputs["v_re"]), v_imag=float(inputs["v_im"]), covariance=float(inputs["cov"])
    )
    parts = {f"l2_{part}": min(float(inputs["Delta"]), float(inputs[f"Delta_{part[:2]}"])) for part in ("real", "imag")}
    sensitivity = Sensitivity(l2=float(inputs["Delta"]), **parts, adjacency="add_remove", unit="record")
    exact = float(oracle["value"])
    assert exact * (1 - 1e-15) <= complex_gaussian(noise, sensitivity).privacy_loss().mu <= exact * (1 + 1e-13)


def _smallest_eigenvalue_mu(v_real, v_imag, covariance):
    with mpmath.workdps(120):
        v, w, c = mpmath.mpf(v_real), mpmath.mpf(v_imag), mpmath.mpf(covariance)
        # det / (larger eigenvalue), which doesn't cancel.
        smallest = (v * w - c * c) / ((v + w) / 2 + mpmath.sqrt(((v - w) / 2) ** 2 + c * c))
        return float(1 / mpmath.sqrt(smallest))


def test_mu_of_a_nearly_singular_covariance_is_never_too_small():
    generator = random.Random(3)
    for _ in range(500):
        v_real, v_imag = 10 ** generator.uniform(-3, 3), 10 ** generator.uniform(-3, 3)
        covariance = generator.choice([-1, 1]) * math.sqrt(v_real) * math.sqrt(v_imag) * (1 - 10 ** generator.uniform(-14, -1))
        noise = CovarianceNoise(convention="covariance", v_real=v_real, v_imag=v_imag, covariance=covariance)
        computed, exact = complex_gaussian(noise, UNIT).privacy_loss().mu, _smallest_eigenvalue_mu(v_real, v_imag, covariance)
        assert exact * (1 - 1e-14) <= computed, (v_real, v_imag, covariance)


def test_deviations_are_rounded_down_and_the_correlation_away_from_zero():
    generator = random.Random(5)
    for _ in range(500):
        v_real, v_imag = 10 ** generator.uniform(-90, 90), 10 ** generator.uniform(-90, 90)
        covariance = generator.uniform(-0.99, 0.99) * math.sqrt(v_real) * math.sqrt(v_imag)
        found = CovarianceNoise(convention="covariance", v_real=v_real, v_imag=v_imag, covariance=covariance).components()
        assert Fraction(found.std_real) ** 2 <= Fraction(v_real)
        assert Fraction(found.std_imag) ** 2 <= Fraction(v_imag)
        assert Fraction(found.correlation) ** 2 * Fraction(v_real) * Fraction(v_imag) >= Fraction(covariance) ** 2


REFUSED = {
    "no convention": ({"sigma": 1.0}, "Unable to extract tag using discriminator 'convention'"),
    "unknown convention": ({"convention": "circular", "sigma": 1.0}, "does not match any of the expected tags"),
    "no sigma": ({"convention": "total"}, "Field required"),
    "correlation under total": ({"convention": "total", "sigma": 1.0, "rho": 0.1}, "Extra inputs are not permitted"),
    "both gamma and rho": ({"convention": "per_component", "sigma": 1.0, "gamma": 0.1, "rho": 0.1}, "gamma must be given alone"),
    "gamma = sigma^2": ({"convention": "per_component", "sigma": 2.0, "gamma": 4.0}, "gamma must be strictly between -sigma^2 and sigma^2"),
    "gamma = -sigma^2": ({"convention": "per_component", "sigma": 2.0, "gamma": -4.0}, "gamma must be strictly between"),
    "rho 1": ({"convention": "per_component", "sigma": 2.0, "rho": 1.0}, "Input should be less than 1"),
    "sigma 0": ({"convention": "total", "sigma": 0.0}, "Input should be greater than or equal to"),
    "sigma negative": ({"convention": "total", "sigma": -1.0}, "Input should be greater than or equal to"),
    "sigma NaN": ({"convention": "total", "sigma": math.nan}, "Input should be a finite number"),
    "component below the smallest": ({"convention": "total", "sigma": 1e-50}, "sigma must be such that each component's deviation lies in"),
    "product beyond the largest": (
        {"convention": "federated_algorithm_1", "sigma": 1e30, "clipping_bound": 1e30},
        "sigma must be such that each component's deviation lies in",
    ),
    "singular": (
        {"convention": "covariance", "v_real": 4.0, "v_imag": 9.0, "covariance": 6.0},
        "covariance must be strictly between -6.0 and 6.0 (a positive definite matrix), got 6.0",
    ),
    "indefinite": ({"convention": "covariance", "v_real": 4.0, "v_imag": 9.0, "covariance": -7.0}, "covariance must be strictly between"),
    "variance 0": ({"convention": "covariance", "v_real": 0.0, "v_imag": 9.0, "covariance": 0.0}, "greater than or equal to"),
    "covariance without its number": ({"convention": "covariance", "v_real": 1.0, "v_imag": 9.0}, "Field required"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_statements_are_refused_with_what_was_expected(name):
    statement, text = REFUSED[name]
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python(statement)
    assert text in str(caught.value)


def test_a_covariance_singular_to_rounding_is_refused_and_not_rounded_to_a_valid_one():
    # Positive definite by less than a unit in the last place of the correlation.
    v_real, v_imag = 1.0, 1.0 + 2**-52
    covariance = 1.0
    assert Fraction(covariance) ** 2 < Fraction(v_real) * Fraction(v_imag)
    with pytest.raises(ValidationError, match="singular to rounding"):
        CovarianceNoise(convention="covariance", v_real=v_real, v_imag=v_imag, covariance=covariance)


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_statements_at_the_ends_of_the_range_are_converted(scale):
    found = CovarianceNoise(convention="covariance", v_real=scale**2, v_imag=scale**2, covariance=0.5 * scale**2).components()
    assert (found.std_real, found.correlation) == pytest.approx((scale, 0.5), rel=1e-15)


def test_noise_needs_an_l2_bound():
    with pytest.raises(InvalidParameter, match=r"sensitivity.l2 must be given for Gaussian noise, got None"):
        complex_gaussian(TotalNoise(convention="total", sigma=1.0), Sensitivity(l1=1.0, adjacency="add_remove", unit="record"))


def test_both_algorithms_scale_with_the_clipping_bound():
    for statement in (ZetaAlgorithmNoise, FederatedAlgorithmNoise):
        name = statement.model_fields["convention"].annotation.__args__[0]
        one, five = (statement(convention=name, sigma=1.3, clipping_bound=bound).components().std_real for bound in (1.0, 5.0))
        assert five == pytest.approx(5.0 * one, rel=1e-15)
