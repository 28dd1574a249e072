"""The SPOF paper's formulas on environmental noise and Taylor errors are here as they are printed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms.analysis import environmental_noise, taylor
from zetadp.mechanisms.published import spof_environment as published
from zetadp.mechanisms.published import spof_taylor


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_b_distribution"))
def test_printed_inverse_and_distribution_agree_with_the_oracle(inputs, oracle):
    x, h, std = (float(inputs[name]) for name in ("x", "h", "sigma_tilde"))
    assert published.inverse(x, h) == pytest.approx(float(oracle["value"]["published_y_wrong"]), rel=1e-12)
    assert published.cdf(x, h, std) == pytest.approx(float(oracle["value"]["published_cdf_wrong"]), rel=1e-12)


@pytest.mark.parametrize("x", [0.1, 0.5, 1.3, 2.5])
@pytest.mark.parametrize(("h", "std"), [(0.5, 1.0), (0.2, 0.7)])
def test_printed_density_is_the_slope_of_the_printed_distribution(x, h, std):
    slope = (published.cdf(x + 1e-5, h, std) - published.cdf(x - 1e-5, h, std)) / 2e-5
    assert published.pdf(x, h, std) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(("h", "std", "mass"), [(0.5, 1.0, 0.917), (0.7, 2.0, 0.639)])
def test_printed_density_misses_mass_on_the_support(h, std, mass):
    x = np.linspace(0.0, 1.0 / h, 200_001)[1:]
    integral = float(np.trapezoid([published.pdf(float(at), h, std) for at in x], x))
    assert published.mass_on_support(h, std) == pytest.approx(mass, abs=5e-4)
    assert integral == pytest.approx(published.mass_on_support(h, std), rel=1e-4)


def test_printed_inverse_is_right_only_without_a_hidden_output():
    assert published.inverse(0.5, 0.0) == math.exp(environmental_noise.log_odds_shift(0.5, 0.0))
    assert published.inverse(0.5, 0.5) != pytest.approx(math.exp(environmental_noise.log_odds_shift(0.5, 0.5)), rel=0.1)


def test_printed_variance_is_off_by_the_norm():
    assert published.variance_of_weighted_noise(0.5, 23.4) == pytest.approx(environmental_noise.effective_std(0.5, 23.4) ** 2 / 23.4)


def test_printed_sensitivity_of_the_noiseless_factor_is_a_third_of_the_true_one():
    assert (published.sensitivity(14, 7.0), environmental_noise.coefficient_sensitivity(14, 7.0)) == (147.0, 441.0)


@pytest.mark.parametrize(("x", "z", "b", "t"), [(1.0, 1.0, 2.0, 0.3), (0.2, -0.7, 5.0, 1.1)])
def test_the_printed_noisy_loss_lacks_one_factor_b(x, z, b, t):
    moved = b * z - t
    true = math.log(2.0) + (0.5 - x) * moved + (0.5 * x - 0.25) * moved**2
    assert published.noisy_loss(x, z, b, t) - true == pytest.approx((1.0 / b - 1.0) * (0.5 * x - 0.25) * moved**2, rel=1e-12)


@pytest.mark.parametrize(("x", "exact", "printed", "correct"), [(1.0, 0.127, 0.693, 0.193), (0.0, 2.127, 0.693, 2.193)])
def test_losses_at_two_are_those_of_the_errata(x, exact, printed, correct):
    values = (taylor.loss(x, 2.0), spof_taylor.polynomial(x, 2.0, 0.0), taylor.polynomial(x, 2.0, 0.0))
    assert values == pytest.approx((exact, printed, correct), abs=5e-4)


@pytest.mark.parametrize(("x", "z", "a"), [(0.3, 1.7, 0.0), (0.9, -2.0, 1.3)])
def test_the_published_polynomial_has_a_second_order_error_of_its_own(x, z, a):
    excess = spof_taylor.polynomial(x, z, a) - taylor.polynomial(x, z, a)
    assert excess == pytest.approx((2.0 * x - 1.5) * taylor.sigmoid_slope(a) * (z - a) ** 2, rel=1e-12)


def test_the_stabilised_polynomial_is_the_published_one_only_without_the_constant():
    assert spof_taylor.stabilised_polynomial(0.3, 1.7, 0.0) == pytest.approx(spof_taylor.polynomial(0.3, 1.7, 0.0), rel=1e-14)
    assert spof_taylor.stabilised_polynomial(0.3, 1.7, 2.5) != pytest.approx(spof_taylor.polynomial(0.3, 4.2, 0.0), rel=0.1)


@pytest.mark.parametrize("distance", [1e-20, 1e-3, 0.999999, 1.000001, 5.0, 400.0])
def test_proposition_1_is_evaluated_without_cancellation(distance):
    terms = [math.exp(r * math.log(distance) - math.lgamma(r + 1)) for r in range(3, 2000)]
    assert spof_taylor.proposition_1_bound(0.25, distance) == pytest.approx(0.5 * math.fsum(terms), rel=1e-10)


def test_proposition_1_beyond_all_floats_is_no_number():
    assert spof_taylor.proposition_1_bound(1.0, 1e4) is None
