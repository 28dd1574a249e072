"""The Spectral-DP paper's formulas as printed, and the classic noise it takes for granted."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms import InvalidParameter
from zetadp.mechanisms.analysis.classic_gaussian import (
    classic_factor,
    classic_noise_renyi,
    equivalent_orders,
    largest_classic_epsilon,
    largest_equivalent_epsilon,
)
from zetadp.mechanisms.published import spectral_dp


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("spectral_1d"))
def test_proposition_3_prints_k_over_n(inputs, expected):
    found = spectral_dp.proposition_3_variance_ratio(int(inputs["N"]), int(inputs["K"]))
    assert found == pytest.approx(float(expected["value"]["published"]), rel=1e-15)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("spectral_2d"))
def test_corollary_1_prints_the_product(inputs, expected):
    shape, kept = (int(inputs["N1"]), int(inputs["N2"])), (int(inputs["K1"]), int(inputs["K2"]))
    assert spectral_dp.corollary_1_variance_ratio(shape, kept) == pytest.approx(float(expected["value"]["published"]), rel=1e-15)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("per_layer"))
def test_algorithm_4_prints_the_root_of_the_squares(inputs, expected):
    clips = tuple(float(clip) for clip in inputs["C_l"].split(","))
    assert spectral_dp.algorithm_4_sensitivity(clips) == pytest.approx(float(expected["value"]["C"]), rel=1e-15)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("classic_gaussian_threshold"))
def test_the_classic_noise_holds_up_to_the_threshold(inputs, expected):
    found, true = largest_classic_epsilon(float(inputs["delta"])), float(expected["value"])
    assert found == pytest.approx(true, rel=1e-12)
    assert found <= true


def _exact_delta(epsilon, delta):
    """delta of the classic noise at epsilon, in 60 digits."""
    c = mpmath.sqrt(2 * mpmath.log(mpmath.mpf(1.25) / mpmath.mpf(delta)))
    mu, e = mpmath.mpf(epsilon) / c, mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@pytest.mark.parametrize("delta", [1e-300, 1e-50, 1e-8, 0.3, 0.9, 1.0 - 1e-9])
def test_the_threshold_is_met_at_itself_and_missed_just_above(delta):
    epsilon = largest_classic_epsilon(delta)
    with mpmath.workdps(60):
        assert _exact_delta(epsilon, delta) <= mpmath.mpf(delta)
        # Near delta = 1 the step of one float in delta is many in epsilon.
        assert _exact_delta(epsilon * (1.0 + (1e-11 if delta < 0.99 else 1e-3)), delta) > mpmath.mpf(delta)


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1, 0.7])
def test_the_exact_delta_of_the_classic_noise_rises_with_epsilon(delta):
    with mpmath.workdps(60):
        values = [_exact_delta(epsilon, delta) for epsilon in (1e-3, 0.1, 1.0, 3.0, 8.0, 20.0, 100.0)]
    assert values == sorted(values)


def test_theorem_1_at_its_tightest_case_in_the_textbook():
    assert spectral_dp.theorem_1_noise_multiplier(1.0, 1e-5) == pytest.approx(math.sqrt(2.0 * math.log(1.25e5)), rel=1e-15)
    assert spectral_dp.theorem_1_noise_multiplier(1.0, 5e-324) < 40.0


def test_the_printed_filtering_ratio_is_negative():
    assert spectral_dp.filtering_ratio(8, 6) == -0.25


def test_line_7_gives_norm_one_to_every_gradient_within_the_bound():
    for gradient in ([0.03, 0.04], [1e-9, 0.0]):
        assert np.linalg.norm(spectral_dp.algorithm_4_clipped(gradient, 0.1)) == pytest.approx(1.0, rel=1e-15)
    assert np.linalg.norm(spectral_dp.algorithm_4_clipped([3.0, 4.0], 0.1)) == pytest.approx(0.02, rel=1e-15)


def test_equation_5_lacks_a_conjugate_and_a_factor():
    rng = np.random.default_rng(2)
    upstream, signal = rng.normal(size=9), rng.normal(size=9)
    true = np.array([upstream @ np.roll(signal, m) for m in range(9)])
    printed = spectral_dp.equation_5_gradient(upstream, signal)
    product = np.fft.fft(upstream, norm="ortho") * np.conj(np.fft.fft(signal, norm="ortho"))
    assert np.abs(printed - true).max() > 0.1
    np.testing.assert_allclose(3.0 * np.fft.ifft(product, norm="ortho").real, true, atol=1e-13)


def test_a_circulant_matrix_with_first_row_w_is_not_the_convolution_with_w():
    w, x = np.random.default_rng(3).normal(size=(2, 8))
    rows = np.stack([np.roll(w, i) for i in range(8)])
    columns = rows.T
    assert np.abs(rows @ x - spectral_dp.circulant_output(w, x)).max() > 0.1
    np.testing.assert_allclose(columns @ x, spectral_dp.circulant_output(w, x), atol=1e-13)


def test_corollary_2_claims_five_hundred_times_too_little():
    noise_epsilon = spectral_dp.corollary_2_noise_epsilon(2.0, 0.01, 1e-5)
    true = classic_noise_renyi(2.0, noise_epsilon, 1e-5)
    sigma = spectral_dp.theorem_1_noise_multiplier(noise_epsilon, 1e-5)
    assert true == pytest.approx(2.0 / (2.0 * sigma**2), rel=1e-14)
    assert true / 0.01 == pytest.approx(566, rel=1e-3)
    assert spectral_dp.corollary_2_total_epsilon(2.0, 0.01, 1e-5, 1000) == pytest.approx(21.5, abs=0.05)


def _claim_holds(order, noise_epsilon, delta):
    return classic_noise_renyi(order, noise_epsilon, delta) <= noise_epsilon + math.log(delta) / (order - 1.0)


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-3, 0.5])
@pytest.mark.parametrize("part", [0.1, 0.9, 0.999])
def test_corollary_2_holds_exactly_between_its_two_orders(delta, part):
    noise_epsilon = part * largest_equivalent_epsilon(delta)
    smallest, largest = equivalent_orders(noise_epsilon, delta)
    assert _claim_holds(math.sqrt((smallest - 1.0) * (largest - 1.0)) + 1.0, noise_epsilon, delta)
    assert all(_claim_holds(order, noise_epsilon, delta) for order in (smallest + 1e-6 * (smallest - 1), largest - 1e-6 * (largest - 1)))
    assert not any(
        _claim_holds(order, noise_epsilon, delta) for order in (smallest - 1e-6 * (smallest - 1), largest + 1e-6 * (largest - 1))
    )


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.5])
def test_corollary_2_holds_for_no_order_beyond_its_largest_epsilon(delta):
    noise_epsilon = 1.0001 * largest_equivalent_epsilon(delta)
    assert equivalent_orders(noise_epsilon, delta) is None
    assert not any(_claim_holds(order, noise_epsilon, delta) for order in np.geomspace(1.001, 1e6, 5001))


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_deltas_that_are_none_are_refused(delta):
    with pytest.raises(InvalidParameter, match="delta must be in"):
        classic_factor(delta)
