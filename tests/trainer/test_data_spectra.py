r"""Transforms against their definitions; what scales a record looks at that record alone."""

from __future__ import annotations

import numpy as np
import pytest

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.spectra import (
    QUIET,
    centre,
    fixed_length,
    log_mel,
    mel_filters,
    spectrogram,
    spectrum,
    to_image,
    to_k_space,
    unit_power,
    whitened,
)
from zetadp.trainer.data.undersampling import cartesian_mask, smooth_phase

SINGLE = 2e-6
"""A few roundings of float32."""


def test_spectrum_is_an_isometry() -> None:
    signals = np.random.default_rng(0).normal(size=(5, 256))
    assert np.linalg.norm(spectrum(signals), axis=1) == pytest.approx(np.linalg.norm(signals, axis=1), rel=SINGLE)


def test_spectrogram_is_the_direct_transform_with_tensorflows_window() -> None:
    # tf.signal.hann_window(255, periodic=True) has the denominator 254, since its length is odd (window_ops.py, _raised_cosine_window).
    signal = np.random.default_rng(1).normal(size=16000)
    found = spectrogram(signal, 255, 128)
    assert found.shape == (124, 129)
    window = [0.5 - 0.5 * np.cos(2.0 * np.pi * n / 254.0) for n in range(255)]
    for frame, bin_ in ((0, 0), (3, 17), (123, 128), (60, 64)):
        direct = sum(window[n] * signal[128 * frame + n] * np.exp(-2j * np.pi * bin_ * n / 256.0) for n in range(255))
        # Frames have a norm of about 10, in float32.
        assert abs(found[frame, bin_] - direct) < 1e-5


def test_spectrogram_of_an_even_length_has_a_periodic_window() -> None:
    signal = np.ones(8)
    assert spectrogram(signal, 8, 4)[0, 0] == pytest.approx(sum(0.5 - 0.5 * np.cos(2.0 * np.pi * n / 8.0) for n in range(8)), rel=SINGLE)


def test_k_space_has_its_zero_frequency_in_the_middle_and_is_unitary() -> None:
    images = np.random.default_rng(2).normal(size=(2, 6, 9))
    k_space = to_k_space(images)
    assert k_space[:, 3, 4] == pytest.approx(images.sum(axis=(1, 2)) / np.sqrt(54.0), rel=1e-12)
    assert to_image(k_space) == pytest.approx(images.astype(complex), abs=1e-12)
    assert np.linalg.norm(k_space) == pytest.approx(np.linalg.norm(images), rel=1e-12)


@pytest.mark.parametrize(("size", "kept"), [(9, 4), (9, 5), (8, 4), (8, 3)])
def test_the_centre_keeps_the_middle_in_the_middle(size: int, kept: int) -> None:
    square = np.arange(size * size).reshape(1, size, size)
    assert centre(square, kept, kept)[0, kept // 2, kept // 2] == square[0, size // 2, size // 2]
    assert centre(square, kept, kept).shape == (1, kept, kept)


def test_fixed_length_cuts_or_adds_zeros_at_the_end() -> None:
    assert fixed_length(np.arange(1, 6), 3).tolist() == [1, 2, 3]
    assert fixed_length(np.arange(1, 3), 4).tolist() == [1, 2, 0, 0]


def test_whitened_record_has_mean_zero_and_uncorrelated_halves_of_equal_power() -> None:
    rng = np.random.default_rng(3)
    real = rng.normal(size=(4, 20, 20))
    flat = whitened(3.0 + real + 1j * (0.7 * real + 0.2 * rng.normal(size=real.shape))).reshape(4, -1).astype(complex)
    # The floor adds 1e-6 of the spread to a variance that is a fiftieth of it.
    assert abs(flat.mean(axis=1)).max() < 1e-6
    for moment, expected in ((flat.real**2, 0.5), (flat.imag**2, 0.5), (flat.real * flat.imag, 0.0)):
        assert moment.mean(axis=1) == pytest.approx(np.full(4, expected), abs=1e-4)


@pytest.mark.parametrize("record", [np.zeros((1, 8, 8), dtype=complex), np.full((1, 8, 8), 2.0 - 1.0j)])
def test_constant_record_whitens_to_zero(record: np.ndarray) -> None:
    assert not whitened(record).any()


def test_whitening_a_line_stays_bounded() -> None:
    line = np.random.default_rng(4).normal(size=(1, 400)) * (1.0 + 2.0j)
    assert np.sqrt((np.abs(whitened(line)) ** 2).mean()) < 1.0


def test_mel_bands_are_as_far_apart_on_the_mel_scale_and_their_slopes_add_up_to_one() -> None:
    # 1000 Hz are 1000 mel within a hundredth of a percent.
    assert 2595.0 * np.log10(1.0 + 1000.0 / 700.0) == pytest.approx(1000.0, rel=1e-4)
    filters = mel_filters(32, 20_001, 16_000.0)
    peaks = filters.argmax(axis=1) * (8000.0 / 20_000.0)
    mel = 2595.0 * np.log10(1.0 + peaks / 700.0)
    assert np.diff(mel) == pytest.approx(np.full(31, np.diff(mel).mean()), rel=0.01)
    low, high = (2595.0 * np.log10(1.0 + edge / 700.0) for edge in (60.0, 7600.0))
    assert mel[[0, -1]] == pytest.approx([low + (high - low) / 33, high - (high - low) / 33], rel=1e-3)
    between = slice(int(filters[0].argmax()), int(filters[-1].argmax()))
    assert filters[:, between].sum(axis=0) == pytest.approx(np.ones(between.stop - between.start))


def test_the_highest_mel_band_ends_at_half_the_rate_where_that_is_lower() -> None:
    filters = mel_filters(32, 20_001, 8000.0)
    assert filters[-1, -1] == pytest.approx(0.0, abs=1e-9)
    assert filters[-1, -100] > 0.0


def test_log_mel_is_the_logarithm_of_each_bands_power_less_its_mean_over_time() -> None:
    generator = np.random.default_rng(8)
    filters = mel_filters(4, 9, 16_000.0)
    record = generator.normal(size=(7, 9)) + 1j * generator.normal(size=(7, 9))
    power = [np.abs(record[2 * frame]) ** 2 / 2 + np.abs(record[2 * frame + 1]) ** 2 / 2 for frame in range(3)]
    bands = np.array([[np.log(sum(filters[band] * one) + QUIET) for band in range(4)] for one in power])
    assert log_mel(record, filters, 2) == pytest.approx(bands - bands.mean(axis=0), rel=SINGLE, abs=SINGLE)


def test_log_mel_knows_no_loudness_and_leaves_silence_silent() -> None:
    record = 10.0 * np.random.default_rng(9).normal(size=(6, 129)) + 0j
    filters = mel_filters(32, 129, 16_000.0)
    assert log_mel(3.0 * record, filters, 1) == pytest.approx(log_mel(record, filters, 1), abs=1e-3)
    assert not log_mel(0.0 * record, filters, 1).any()


def test_scaling_looks_at_one_record_alone() -> None:
    records = np.random.default_rng(5).normal(size=(3, 8, 8)) + 1j
    for scale in (whitened, unit_power, lambda some: log_mel(some, mel_filters(3, 8, 16_000.0), 2)):
        assert np.array_equal(scale(records)[1:], scale(records[1:]))


def test_unit_power_leaves_silence_silent() -> None:
    scaled = unit_power(np.array([[0.0, 0.0], [3.0, 4.0j]]))
    assert not scaled[0].any()
    assert (np.abs(scaled[1]) ** 2).mean() == pytest.approx(1.0, rel=SINGLE)


def test_mask_always_has_its_centre_and_a_quarter_of_the_columns() -> None:
    stream = RandomStream.from_seed(0, "test")
    masks = np.array([cartesian_mask(128, 4.0, 0.08, stream) for _ in range(2000)])
    # round(128 * 0.08) = 10 columns from (128 - 10 + 1) // 2 = 59, as fastMRI's RandomMaskFunc.
    assert masks[:, 59:69].all()
    # 22 of 118 columns at probability 22 / 118: standard deviation of the mean 4.2 / sqrt(2000) = 0.1.
    assert masks.sum(axis=1).mean() == pytest.approx(32.0, abs=0.5)
    assert len({mask.tobytes() for mask in masks}) > 1900


def test_phase_is_smooth_and_breaks_the_symmetry_of_k_space() -> None:
    phase = smooth_phase(32, 32, RandomStream.from_seed(0, "test"))
    assert np.abs(phase) == pytest.approx(np.ones((32, 32)), rel=1e-12)
    assert np.abs(np.diff(phase, axis=0)).max() < 0.5
    k_space = to_k_space(phase)[1:, 1:]
    assert np.linalg.norm(k_space - np.conj(k_space[::-1, ::-1])) > 0.1 * np.linalg.norm(k_space)
