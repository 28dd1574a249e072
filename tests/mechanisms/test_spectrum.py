"""Low-pass filters against brute force on the whole spectrum, against 40-digit values, and at their ends."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from tests.golden.oracles import oracle_rows
from tests.selection import thinned
from zetadp.mechanisms import InvalidParameter
from zetadp.mechanisms.analysis.signal_energy import SignalNorms, norm_inside
from zetadp.mechanisms.analysis.spectral_noise import (
    NoiseReading,
    layers_gdp_mu,
    layers_l2,
    reading_gdp_mu,
    real_noise_variance,
    rfft_norm_undercount,
    unnormalised_gdp_mu,
)
from zetadp.mechanisms.numerics.spectrum import LowPass, Rounding, filtering_ratio, kept_for_ratio

SHAPES = [(1,), (2,), (3,), (7,), (8,), (9,), (10,), (1, 5), (2, 2), (4, 4), (5, 6), (6, 5), (7, 3)]
FILTERS = [pytest.param(LowPass(n, k), id=f"{n}-{k}") for n in SHAPES for k in itertools.product(*[range(1, i + 1) for i in n])]


def _on_axis(condition, axis, axes):
    return condition.reshape([-1 if i == axis else 1 for i in range(axes)])


def _mask(low_pass, keeps):
    mask = np.ones(low_pass.shape, dtype=bool)
    for axis, (length, count) in enumerate(zip(low_pass.shape, low_pass.kept, strict=True)):
        mask = mask & _on_axis(keeps(np.arange(length), length, count), axis, len(low_pass.shape))
    return mask


def _two_sided(low_pass):
    return _mask(low_pass, lambda k, n, count: np.minimum(k, n - k) < count)


def _one_sided(low_pass):
    return _mask(low_pass, lambda k, _, count: k < count)


def _matrix(low_pass, mask):
    """F^-1 mask F as a complex matrix, from the whole spectrum."""
    axes = tuple(range(1, len(low_pass.shape) + 1))
    unit = np.eye(low_pass.dimensions).reshape(low_pass.dimensions, *low_pass.shape)
    return np.fft.ifftn(np.fft.fftn(unit, axes=axes) * mask, axes=axes).reshape(low_pass.dimensions, -1).T


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_kept_dimensions_are_the_bins_of_the_two_sided_mask(low_pass):
    assert low_pass.kept_dimensions == int(_two_sided(low_pass).sum())


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_projection_is_the_two_sided_mask_on_the_whole_spectrum(low_pass):
    unit = np.eye(low_pass.dimensions).reshape(low_pass.dimensions, *low_pass.shape)
    found = low_pass.project(unit).reshape(low_pass.dimensions, -1).T
    expected = _matrix(low_pass, _two_sided(low_pass))
    assert np.abs(expected.imag).max() < 1e-14
    np.testing.assert_allclose(found, expected.real, atol=1e-14)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_projection_is_idempotent_and_symmetric(low_pass):
    p = low_pass.project(np.eye(low_pass.dimensions).reshape(low_pass.dimensions, *low_pass.shape)).reshape(low_pass.dimensions, -1)
    np.testing.assert_allclose(p @ p, p, atol=1e-14)
    np.testing.assert_allclose(p, p.T, atol=1e-14)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_covariance_is_the_projections_kernel(low_pass):
    p = _matrix(low_pass, _two_sided(low_pass)).real
    found = [low_pass.covariance(position) for position in np.ndindex(*low_pass.shape)]
    np.testing.assert_allclose(found, p[:, 0], atol=1e-14)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_literal_mask_leaves_its_variance_ratio_at_every_position(low_pass):
    literal = _matrix(low_pass, _one_sided(low_pass)).real
    np.testing.assert_allclose(np.diag(literal @ literal.T), low_pass.one_sided_variance_ratio, atol=1e-14)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_literal_mask_halves_amplitudes_exactly_where_it_loses_a_conjugate(low_pass):
    gains = np.abs(np.linalg.eigvals(_matrix(low_pass, _one_sided(low_pass)).real))
    assert min(gains[gains > 1e-6]) == pytest.approx(low_pass.smallest_one_sided_amplitude, abs=1e-7)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_complex_bins_are_those_that_are_not_their_own_conjugates(low_pass):
    own = [
        all(2 * k % n == 0 for k, n in zip(index, low_pass.shape, strict=True))
        for index in zip(*np.nonzero(_one_sided(low_pass)), strict=True)
    ]
    assert low_pass.keeps_complex_bins == (not all(own))


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_real_noise_variance_is_the_sum_of_squared_cosines(low_pass):
    bins = np.array(list(zip(*np.nonzero(_one_sided(low_pass)), strict=True)))
    for position in np.ndindex(*low_pass.shape):
        angle = 2.0 * np.pi * (bins * np.array(position) / np.array(low_pass.shape)).sum(axis=1)
        expected = np.sum(np.cos(angle) ** 2) / low_pass.dimensions
        assert real_noise_variance(low_pass, position) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_real_noise_variance_keeps_its_digits_on_long_axes():
    length, kept, index = 2**31, 3, 2**31 - 1
    with mpmath.workdps(40):
        expected = sum(mpmath.cos(2 * mpmath.pi * i * index / length) ** 2 for i in range(kept)) / length
    assert real_noise_variance(LowPass((length,), (kept,)), (index,)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("inputs", "expected"), thinned(oracle_rows("spectral_1d"), every=3))
def test_one_axis_agrees_with_forty_digits(inputs, expected):
    length, kept, values = int(inputs["N"]), int(inputs["K"]), expected["value"]
    low_pass = LowPass((length,), (kept,))
    assert low_pass.kept_dimensions == int(values["kept_bins"])
    assert low_pass.variance_ratio == pytest.approx(float(values["hermitian_ratio"]), rel=1e-15)
    assert real_noise_variance(low_pass, (0,)) == pytest.approx(float(values["real_noise_var_n0"]), rel=1e-12)
    assert real_noise_variance(low_pass, (1,)) == pytest.approx(float(values["real_noise_var_n1"]), rel=1e-12)
    if values["literal_mask_hermitian"] is None:
        assert 2 * kept > length
    else:
        assert low_pass.one_sided_variance_ratio == pytest.approx(float(values["literal_mask_hermitian"]), rel=1e-15)


@pytest.mark.parametrize(("inputs", "expected"), thinned(oracle_rows("spectral_2d"), every=2))
def test_two_axes_agree_with_forty_digits(inputs, expected):
    low_pass = LowPass((int(inputs["N1"]), int(inputs["N2"])), (int(inputs["K1"]), int(inputs["K2"])))
    assert low_pass.kept_dimensions == int(expected["value"]["kept_bins"])
    assert low_pass.variance_ratio == pytest.approx(float(expected["value"]["hermitian_ratio"]), rel=1e-15)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("per_layer"))
def test_layers_agree_with_forty_digits(inputs, expected):
    clips, sigma, values = tuple(float(clip) for clip in inputs["C_l"].split(",")), float(inputs["sigma"]), expected["value"]
    total = layers_l2(clips)
    assert total == pytest.approx(float(values["C"]), rel=1e-15)
    assert layers_gdp_mu(clips, (sigma * total,) * len(clips)) == pytest.approx(float(values["mu_joint"]), rel=1e-14)
    per_layer = layers_gdp_mu(clips, tuple(sigma * clip for clip in clips))
    assert per_layer == pytest.approx(float(values["mu_if_per_layer_noise"]), rel=1e-14)


@pytest.mark.parametrize(("inputs", "expected"), oracle_rows("fft_normalisation"))
def test_unnormalised_transform_agrees_with_forty_digits(inputs, expected):
    length = int(inputs["N"])
    assert unnormalised_gdp_mu(LowPass((length,), (length,)), float(inputs["sigma"])) == pytest.approx(float(expected["value"]), rel=1e-15)


def test_layers_need_a_deviation_each():
    with pytest.raises(InvalidParameter, match="one for each of the 2 clipping bounds"):
        layers_gdp_mu((1.0, 2.0), (1.0,))


def test_half_the_length_leaves_out_the_nyquist_bin_and_one_more_keeps_all():
    assert [LowPass((8,), (k,)).kept_dimensions for k in (3, 4, 5, 8)] == [5, 7, 8, 8]
    assert [LowPass((9,), (k,)).kept_dimensions for k in (4, 5, 9)] == [7, 9, 9]


@pytest.mark.parametrize(
    ("shape", "kept", "message"),
    thinned(
        [
            ((8,), (9,), "kept must be at least 1 and at most the axis length"),
            ((8,), (0,), "kept must be at least 1"),
            ((8,), (2, 2), "kept must be one number for each axis"),
            ((), (), "shape must be one or two axis lengths"),
            ((2, 2, 2), (1, 1, 1), "shape must be one or two axis lengths"),
            ((0,), (0,), "shape must be axis lengths between 1 and"),
        ],
        every=3,
    ),
)
def test_filters_that_do_not_exist_are_refused(shape, kept, message):
    with pytest.raises(InvalidParameter, match=message):
        LowPass(shape, kept)


@pytest.mark.parametrize("length", thinned([1, 7, 8, 100], every=2))
@pytest.mark.parametrize("rounding", thinned(list(Rounding), every=2))
def test_ratio_and_kept_number_are_inverse(length, rounding):
    for kept in range(1, length + 1):
        # Written to 15 digits the ratio is off by far less than 1 / N, which only rounding to nearest forgives.
        ratio = filtering_ratio(length, kept)
        exact = kept_for_ratio(length, ratio, Rounding.NEAREST)
        assert exact == kept
        assert abs(kept_for_ratio(length, ratio, rounding) - kept) <= 1


def test_roundings_are_what_their_names_say():
    assert [kept_for_ratio(10, 0.25, rounding) for rounding in (Rounding.FLOOR, Rounding.CEIL, Rounding.NEAREST)] == [7, 8, 8]


def test_a_ratio_is_the_decimal_it_is_written_as():
    # In floats (1 - 0.9) * 10 is below 1, and its floor 0.
    assert math.floor((1.0 - 0.9) * 10) == 0
    assert kept_for_ratio(10, 0.9, Rounding.FLOOR) == 1


@pytest.mark.parametrize(
    ("ratio", "message"), [(-0.25, "wrong sign"), (1.0, "in \\[0, 1\\)"), (0.95, "small enough"), (math.nan, "in \\[0, 1\\)")]
)
def test_ratios_that_are_none_are_refused(ratio, message):
    with pytest.raises(InvalidParameter, match=message):
        kept_for_ratio(10, ratio, Rounding.FLOOR)


@pytest.mark.parametrize("shape", [(3,), (8,), (9,), (4, 3), (5, 6), (2, 2), (2, 1)])
def test_half_spectrum_norm_undercounts_by_at_most_its_factor_and_attains_it(shape):
    low_pass = LowPass(shape, shape)
    signals = np.random.default_rng(5).normal(size=(2000, *shape))
    axes = tuple(range(1, len(shape) + 1))
    halves = np.sqrt((np.abs(np.fft.rfftn(signals, axes=axes, norm="ortho")) ** 2).sum(axis=axes))
    ratios = np.sqrt((signals**2).sum(axis=axes)) / halves
    assert ratios.max() <= rfft_norm_undercount(low_pass) * (1 + 1e-12)
    wave = np.broadcast_to(np.cos(2 * np.pi * np.arange(shape[-1]) / shape[-1]), shape)
    attained = np.linalg.norm(wave) / np.linalg.norm(np.fft.rfftn(wave, norm="ortho"))
    assert attained == pytest.approx(rfft_norm_undercount(low_pass), rel=1e-12)


@pytest.mark.parametrize("low_pass", thinned(FILTERS, every=5))
def test_norms_from_signal_and_from_its_power_spectrum_agree_with_the_projection(low_pass):
    signal = np.random.default_rng(7).normal(size=low_pass.shape)
    power = np.abs(np.fft.rfftn(signal, norm="ortho")) ** 2
    expected = float(np.linalg.norm(signal)), float(np.linalg.norm(low_pass.project(signal)))
    for norms in (SignalNorms.of_signal(low_pass, signal.ravel()), SignalNorms.of_power(low_pass, power.ravel())):
        assert (norms.whole, norms.kept) == pytest.approx(expected, rel=1e-12)


def test_clipping_in_either_order_is_what_the_vectors_say():
    low_pass, clip = LowPass((12,), (3,)), 0.7
    signal = np.random.default_rng(9).normal(size=12)

    def clipped(vector):
        return vector / max(1.0, float(np.linalg.norm(vector)) / clip)

    norms = SignalNorms.of_signal(low_pass, signal)
    assert norms.clipped_then_projected(clip) == pytest.approx(float(np.linalg.norm(low_pass.project(clipped(signal)))), rel=1e-12)
    assert norms.projected_then_clipped(clip) == pytest.approx(float(np.linalg.norm(clipped(low_pass.project(signal)))), rel=1e-12)
    assert norms.projected_then_clipped(clip) > norms.clipped_then_projected(clip)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e50])
def test_norms_scale_with_the_signal_at_the_ends_of_the_floats(scale):
    norms = SignalNorms.of_signal(LowPass((4,), (2,)), np.array([1.0, 2.0, 3.0, 4.0]) * scale)
    assert norms.whole == pytest.approx(math.sqrt(30.0) * scale, rel=1e-12)
    assert norms.kept_energy_fraction == pytest.approx(29.0 / 30.0, rel=1e-12)


def test_a_signal_outside_the_filter_and_a_zero_signal_have_nothing_kept():
    assert SignalNorms.of_signal(LowPass((4,), (2,)), [1.0, -1.0, 1.0, -1.0]) == SignalNorms(2.0, 0.0)
    assert SignalNorms.of_signal(LowPass((4,), (2,)), [0.0] * 4).kept_energy_fraction is None
    assert SignalNorms.of_power(LowPass((4,), (2,)), [0.0] * 3) == SignalNorms(0.0, 0.0)


def test_norms_of_another_length_or_sign_are_refused():
    with pytest.raises(InvalidParameter, match="signal must be 4 numbers"):
        SignalNorms.of_signal(LowPass((4,), (2,)), [1.0])
    with pytest.raises(InvalidParameter, match="power_spectrum must be 3 numbers"):
        SignalNorms.of_power(LowPass((4,), (2,)), [1.0])
    with pytest.raises(InvalidParameter, match="power_spectrum must be >= 0"):
        SignalNorms.of_power(LowPass((4,), (2,)), [1.0, -1.0, 0.0])


def test_norm_inside_a_support_is_that_of_the_leading_entries():
    assert norm_inside((3, 3), np.arange(9.0), (2, 2)) == pytest.approx(math.sqrt(0 + 1 + 9 + 16), rel=1e-15)
    assert norm_inside((3,), [0.0, 0.0, 5.0], (2,)) == 0.0


def _mahalanobis(query, reading, noise_std):
    """mu of releasing query + noise against noise, by a dense real covariance of what is released."""
    length = len(query)
    spectrum = np.fft.fft(query, norm="ortho")
    if reading is NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN:
        half = np.fft.rfft(query, norm="ortho")
        return math.sqrt(float(np.sum(np.abs(half) ** 2)) / (0.5 * noise_std**2))
    if reading is NoiseReading.HERMITIAN:
        basis = np.fft.fft(np.eye(length), norm="ortho", axis=0) * noise_std
        real = np.vstack((basis.real, basis.imag))
        move = np.concatenate((spectrum.real, spectrum.imag))
        return math.sqrt(float(move @ np.linalg.pinv(real @ real.T, rcond=1e-10) @ move))
    variance = noise_std**2 * (0.5 if reading is NoiseReading.COMPLEX_TOTAL_VARIANCE else 1.0)
    return math.sqrt(float(np.sum(np.abs(spectrum) ** 2)) / variance)


@pytest.mark.parametrize(
    "reading", thinned([reading for reading in NoiseReading if reading is not NoiseReading.REAL_ON_COMPLEX_BINS], every=2)
)
@pytest.mark.parametrize("length", thinned([1, 2, 7, 8], every=2))
def test_readings_have_the_largest_mahalanobis_length_over_unit_queries(reading, length):
    queries = [np.full(length, length**-0.5), *np.random.default_rng(3).normal(size=(200, length))]
    found = [_mahalanobis(query / np.linalg.norm(query), reading, 1.7) for query in queries]
    stated = reading_gdp_mu(reading, LowPass((length,), (1,)), 1.7)
    assert max(found) <= stated * (1 + 1e-9)
    assert found[0] == pytest.approx(stated, rel=1e-9)


def test_a_sine_pays_less_than_a_constant_on_half_spectra():
    sine = np.sin(2 * np.pi * np.arange(16) / 16) / math.sqrt(8)
    assert _mahalanobis(sine, NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN, 1.0) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("shape", "kept"), [((16,), (1,)), ((2,), (2,)), ((1,), (1,)), ((8, 2), (1, 2)), ((2, 2), (2, 2))])
def test_real_noise_is_private_only_where_all_kept_bins_are_real(shape, kept):
    assert reading_gdp_mu(NoiseReading.REAL_ON_COMPLEX_BINS, LowPass(shape, kept), 2.0) == 0.5


@pytest.mark.parametrize(("shape", "kept"), [((16,), (2,)), ((3,), (2,)), ((8, 2), (2, 1)), ((2, 3), (1, 3))])
def test_real_noise_on_any_complex_bin_protects_nothing(shape, kept):
    assert reading_gdp_mu(NoiseReading.REAL_ON_COMPLEX_BINS, LowPass(shape, kept), 1e50) == math.inf


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_noise_multipliers_that_are_none_are_refused(sigma):
    with pytest.raises(InvalidParameter, match="noise_multiplier must be > 0 and finite"):
        reading_gdp_mu(NoiseReading.HERMITIAN, LowPass((4,), (2,)), sigma)


def test_a_position_has_one_index_an_axis():
    with pytest.raises(InvalidParameter, match="position must be one index for each axis"):
        real_noise_variance(LowPass((4,), (2,)), (0, 0))
