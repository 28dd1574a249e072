"""SPOF's formulas are as printed, and what is right of them is what the oracles say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms.analysis.cross_entropy import affine_l1, sigmoid
from zetadp.mechanisms.published import spof


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_sensitivity"))
def test_printed_sensitivities_agree_with_their_values(inputs, oracle):
    n, a, c = int(inputs["n"]), float(inputs["a"]), float(inputs["c"])
    values = {name: float(value) for name, value in oracle["value"].items()}
    assert spof.sensitivity_term(a) == pytest.approx(values["published_eq58_per_feature"], rel=1e-12)
    assert spof.unclipped_gradient_sensitivity(n, a) == pytest.approx(values["published_sgd_unclipped"], rel=1e-12)
    if "published_hat" in values:
        assert spof.stabilised_sensitivity(n, c) == pytest.approx(values["published_hat"], rel=1e-12)
        assert spof.sensitivity(n) == values["published_bar"]


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_dpsgd_clipped"))
def test_printed_clipped_sensitivity_agrees_with_its_values(inputs, oracle):
    found = spof.clipped_gradient_sensitivity(int(inputs["n"]), float(inputs["C"]))
    assert found == pytest.approx(float(oracle["value"]["published_branch_ge_C"]), rel=1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_actual_eps"))
def test_the_printed_pair_costs_sqrt_two_epsilon(inputs, oracle):
    n, epsilon = 14, float(inputs["eps"])
    pair = [(spof.linear_coefficient(x, 0.0), spof.quadratic_coefficient(x, 0.0)) for x in (0.0, 1.0)]
    found = affine_l1(n, pair[0], pair[1]) / spof.algorithm_1_scale(n, 0.0, epsilon)
    assert found == pytest.approx(float(oracle["value"]["published_coeffs"]), rel=1e-12)


def test_the_printed_sensitivity_is_its_own_triangle_bound():
    # (22): twice the largest |alpha_2| + |alpha_3| over x, summed over features.
    largest = max(abs(spof.linear_coefficient(x, 0.0)) + abs(spof.quadratic_coefficient(x, 0.0)) for x in np.linspace(0.0, 1.0, 101))
    assert spof.sensitivity(14) == pytest.approx(2.0 * 14 * largest, rel=1e-15)


@pytest.mark.parametrize("c", [0.0, 0.29, 2.5, 17.5])
def test_proposition_3_is_the_triangle_bound_of_31(c):
    largest = max(sum(abs(part) for part in spof.stabilised_coefficients(x, c)) for x in np.linspace(0.0, 1.0, 101))
    assert spof.stabilised_sensitivity(3, c) == pytest.approx(2.0 * 3 * largest, rel=1e-14)


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("c", [0.5, 2.5])
def test_31_isnt_the_printed_loss_at_the_stabilised_variable(x, c):
    constant, linear, quadratic = spof.stabilised_coefficients(x, c)
    for z in (-1.0, 0.7, 2.0):
        printed = math.log(2.0) + constant + linear * z + quadratic * z**2
        # The right expansion of the same polynomial: (1 - c) alpha_2 and c alpha_2 + c^2 alpha_3 (errata S10).
        alpha_2 = spof.linear_coefficient(x, 0.0)
        right = math.log(2.0) + c * alpha_2 + constant + (1.0 - c) * alpha_2 * z + quadratic * z**2
        assert right == pytest.approx(spof.loss(x, z + c), rel=1e-13)
        assert printed != pytest.approx(right, rel=1e-3)


@pytest.mark.parametrize("a", [-20.0, -1.0, 0.0, 2.0])
def test_11_sums_the_printed_derivatives(a):
    for x in (0.0, 0.4, 1.0):
        assert spof.quadratic_coefficient(x, a) == pytest.approx(sum(spof.second_derivatives(x, a)), rel=1e-12, abs=1e-18)
        assert spof.linear_coefficient(x, a) == pytest.approx(-x / (1.0 + math.exp(a)) + (1.0 - x) * sigmoid(a), rel=1e-9)


def test_the_printed_minimum_is_the_printed_expressions():
    found = minimize_scalar(spof.sensitivity_term, bounds=(-3.0, 4.0), method="bounded", options={"xatol": 1e-10})
    assert found.x == pytest.approx(spof.PRINTED_MINIMISER, abs=5e-5)
    assert found.fun == pytest.approx(spof.PRINTED_MINIMUM, abs=5e-5)
    assert spof.sensitivity_term(0.0) == pytest.approx(4.6931, abs=5e-5)


def test_58_stays_finite_or_says_that_it_doesnt():
    assert spof.sensitivity_term(-700.0) > 1e300
    assert spof.sensitivity_term(-1e6) is None
    assert spof.sensitivity_term(1e6) == pytest.approx(1e6 + 2.0, rel=1e-12)


def test_the_variance_of_the_section_5_scale_is_half_the_stated_one():
    epsilon = 0.7
    scale = spof.section_5_scale(14, 2.5, epsilon)
    assert 2.0 * scale**2 == pytest.approx(0.5 * (spof.stabilised_sensitivity(14, 2.5) / epsilon) ** 2, rel=1e-14)


def _numerical_gradients(objective, arrays):
    """Central differences of objective(*arrays) by every entry."""
    found = []
    for which, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            values = []
            for step in (1e-6, -1e-6):
                moved = [each.copy() for each in arrays]
                moved[which][index] += step
                values.append(objective(*moved))
            gradient[index] = (values[0] - values[1]) / 2e-6
        found.append(gradient)
    return found


def test_algorithm_1s_gradients_are_those_of_the_perturbed_loss():
    generator = np.random.default_rng(6)
    x, encoder, decoder = generator.uniform(size=5), generator.normal(size=(5, 3)), generator.normal(size=(3, 5))
    noise, c = (generator.normal(size=5), generator.normal(size=5)), 0.8

    def perturbed_loss(encoder, decoder):
        code = 1.0 / (1.0 + np.exp(-(encoder.T @ x)))
        z = (decoder + c).T @ code
        return float(np.sum((0.5 - x + noise[0]) * z + (0.5 * x - 0.25 + noise[1]) * z**2))

    for found, truth in zip(
        spof.algorithm_1_gradients(x, encoder, decoder, c, noise), _numerical_gradients(perturbed_loss, [encoder, decoder]), strict=True
    ):
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-7)


def test_algorithm_2s_gradients_propagate_the_noisy_clipped_derivative():
    generator = np.random.default_rng(7)
    x, encoder, decoder = generator.uniform(size=5), generator.normal(size=(5, 3)), generator.normal(size=(3, 5))
    noise, a, bound = generator.normal(size=5), -0.4, 0.3
    derivative = sigmoid(a) - x
    seen = derivative * bound / np.linalg.norm(derivative) + noise

    def linear_in_z(encoder, decoder):
        return float(seen @ (decoder.T @ (1.0 / (1.0 + np.exp(-(encoder.T @ x))))))

    for found, truth in zip(
        spof.algorithm_2_gradients(x, encoder, decoder, a, bound, noise), _numerical_gradients(linear_in_z, [encoder, decoder]), strict=True
    ):
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-7)
