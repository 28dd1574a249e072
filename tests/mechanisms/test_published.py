from __future__ import annotations

import math

import pytest

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms import ComplexGaussian, Sensitivity
from zetadp.mechanisms.published import complex_dp_federated, zeta_dp


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("zeta_dp_delta"))
def test_zeta_dp_formula_is_as_printed(inputs, oracle):
    printed = zeta_dp.theorem_1_log_delta(float(inputs["Delta"]), float(inputs["sigma"]), float(inputs["eps"]))
    assert math.exp(printed) == pytest.approx(float(oracle["value"]["published_overclaims"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("zeta_dp_delta"))
def test_proven_delta_of_the_papers_noise_is_the_correct_one(inputs, oracle):
    sensitivity = Sensitivity(l2=float(inputs["Delta"]), adjacency="add_remove", unit="record")
    noise = ComplexGaussian(std=float(inputs["sigma"]) / math.sqrt(2.0), sensitivity=sensitivity)
    assert math.exp(noise.privacy_loss().log_delta(float(inputs["eps"]))) == pytest.approx(float(oracle["value"]["correct"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_complex_gaussian"))
def test_theorem_2_prints_half_of_the_divergence(inputs, oracle):
    printed = zeta_dp.theorem_2_renyi(*(float(inputs[name]) for name in ("Delta", "sigma", "alpha")))
    assert printed == pytest.approx(float(oracle["value"]["N_C_total_sigma_correct"]) / 2.0, rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gaussian_calibration"))
def test_theorem_3_prints_the_noise_of_a_component_for_the_total(inputs, oracle):
    printed = zeta_dp.theorem_3_sigma(float(inputs["Delta"]), float(oracle["value"]["mu"]))
    assert printed == pytest.approx(float(oracle["value"]["sigma_component"]), rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_noncircular_mu"))
def test_federated_formula_is_as_printed(inputs, oracle):
    parts = [float(inputs[name]) for name in ("Delta", "Delta_re", "Delta_im", "sigma_component", "rho")]
    assert complex_dp_federated.theorem_1_mu(*parts) == pytest.approx(float(oracle["value"]["published"]), rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_equal_mse_optimum"))
def test_the_printed_optimum_is_circular_noise(inputs, oracle):
    printed = complex_dp_federated.least_mu_at_equal_error(float(inputs["Delta"]), math.sqrt(float(inputs["V"])))
    assert printed == pytest.approx(float(oracle["value"]["mu_circular"]), rel=1e-12)


@pytest.mark.parametrize(("second", "printed"), [([3.0], 9.0), ([-3.0], -9.0)])
def test_equation_8_is_an_inner_product(second, printed):
    assert zeta_dp.equation_8_renyi([3.0], second, 1.0, 2.0) == printed


def test_equation_8_takes_the_real_part_of_the_complex_inner_product():
    assert zeta_dp.equation_8_renyi([1.0 + 2.0j, 3.0j], [2.0 - 1.0j, 1.0 + 1.0j], 1.0, 2.0) == pytest.approx(3.0)


def test_below_definition_7_stand_twice_and_sqrt_8_times_the_components_deviation():
    assert zeta_dp.definition_7_component_std(1.0) / math.sqrt(0.5) == pytest.approx(2.0, rel=1e-15)
    assert zeta_dp.definition_7_simulated_std(1.0) / math.sqrt(0.5) == pytest.approx(math.sqrt(8.0), rel=1e-15)
