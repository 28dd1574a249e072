r"""Spectra of signals and images, and scalings of a record by its own numbers. Transforms are unitary (``norm="ortho"``)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST_SPREAD = 1e-6
"""Share of a record's mean square below which a principal direction counts as empty and isn't blown up."""
TINY = 1e-30
QUIET = 1e-6
"""Added to a band's power before its logarithm: what is quieter is silence."""
LOWEST, HIGHEST = 60.0, 7600.0
"""Hertz, between which the bands of a log-mel spectrogram lie."""


def fixed_length(signal: NDArray[Any], length: int) -> NDArray[Any]:
    """The first ``length`` samples, with zeros after the end of a shorter signal."""
    kept = signal[:length]
    return np.pad(kept, (0, length - len(kept)))


def spectrum(signals: NDArray[Any]) -> NDArray[Any]:
    """Unitary discrete Fourier transform of the last axis: real in, complex64 out, same shape. All bins, not half of them."""
    return np.fft.fft(signals, axis=-1, norm="ortho").astype(np.complex64)


def spectrogram(signal: NDArray[Any], frame_length: int, frame_step: int) -> NDArray[Any]:
    r"""Short-time Fourier transform as TensorFlow's ``tf.signal.stft`` computes it by default: complex64 (frames, bins).

    Frames that fit into the signal whole, times a Hann window, zero-padded to the next power of two N, rfft without normalisation;
    N/2 + 1 bins. TensorFlow's "periodic" Hann window is symmetric, 1/2 - 1/2 cos(2 pi n / (length - 1)), where the length is odd, as the
    paper's 255.
    """
    divisor = frame_length - frame_length % 2
    window = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(frame_length) / divisor)
    frames = np.lib.stride_tricks.sliding_window_view(signal, frame_length)[::frame_step]
    size = 1 << (frame_length - 1).bit_length()
    return np.fft.rfft(frames * window, n=size, axis=-1).astype(np.complex64)


def mel_filters(bands: int, bins: int, rate: float) -> NDArray[Any]:
    r"""Triangles (bands, bins) over equally spaced frequencies from 0 to rate / 2, equally spaced on the mel scale from 60 to 7600 Hz.

    mel(f) = 2595 log10(1 + f / 700); where rate / 2 is lower than 7600 Hz, the last band ends there. A triangle's peak is 1.
    """
    lowest, highest = (2595.0 * math.log10(1.0 + edge / 700.0) for edge in (LOWEST, min(HIGHEST, rate / 2.0)))
    edges = np.linspace(lowest, highest, bands + 2)
    hertz = (700.0 * (10.0 ** (edges / 2595.0) - 1.0))[:, np.newaxis]
    frequencies = np.linspace(0.0, rate / 2.0, bins)
    low, middle, high = hertz[:-2], hertz[1:-1], hertz[2:]
    return np.maximum(0.0, np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle)))


def log_mel(spectrograms: NDArray[Any], filters: NDArray[Any], frames_at_once: int) -> NDArray[Any]:
    r"""Logarithms of the power in each band, less the band's mean over the recording's time: float32 (..., frames // at once, bands).

    Without that mean, what a microphone or a voice adds to all of a recording is gone. It is the record's own number, so nothing is
    released.

    Args:
      spectrograms: complex, (..., frames, bins).
      filters: (bands, bins).
      frames_at_once: neighbouring frames whose power is averaged; those left over at the end are dropped.
    """
    frames = spectrograms.shape[-2] // frames_at_once
    kept = spectrograms[..., : frames * frames_at_once, :]
    power = (np.abs(kept).astype(np.float64) ** 2).reshape(*kept.shape[:-2], frames, frames_at_once, kept.shape[-1]).mean(axis=-2)
    bands = np.log(power @ filters.T + QUIET)
    return (bands - bands.mean(axis=-2, keepdims=True)).astype(np.float32)


def to_k_space(images: NDArray[Any]) -> NDArray[Any]:
    """Centred unitary 2-D Fourier transform over the last two axes: zero frequency at index size // 2."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(images, axes=axes), norm="ortho"), axes=axes)


def to_image(k_space: NDArray[Any]) -> NDArray[Any]:
    """Inverse of ``to_k_space``."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(k_space, axes=axes), norm="ortho"), axes=axes)


def centre(arrays: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """The middle of the last two axes: index size // 2 stays index size // 2. Of k-space, this lowers the resolution."""
    top, left = arrays.shape[-2] // 2 - height // 2, arrays.shape[-1] // 2 - width // 2
    return arrays[..., top : top + height, left : left + width]


def whitened(records: NDArray[Any]) -> NDArray[Any]:
    r"""Each record by itself: mean 0, and its real and imaginary parts uncorrelated with mean square 1/2 each, so that E|z|^2 = 1.

    The factor is (2 V)^(-1/2) for the 2x2 covariance V. By Cayley and Hamilton, with s = sqrt(det V) and t = sqrt(trace V + 2 s),
    V^(1/2) = (V + s I) / t and V^(-1/2) = ((trace V + s) I - V) / (s t).
    A constant record becomes 0; a direction with less than ``SMALLEST_SPREAD`` of the spread isn't blown up.

    Args:
      records: complex, (records, ...); float64 arithmetic.
    """
    flat = records.reshape(len(records), -1)
    re, im = np.real(flat).astype(np.float64), np.imag(flat).astype(np.float64)
    re -= re.mean(axis=1, keepdims=True)
    im -= im.mean(axis=1, keepdims=True)
    a, b, c = (np.einsum("ij,ij->i", first, second) / flat.shape[1] for first, second in ((re, re), (re, im), (im, im)))
    floor = SMALLEST_SPREAD * (a + c) + TINY
    a, c = a + floor, c + floor
    s = np.sqrt(np.maximum(a * c - b * b, floor * floor))
    t = np.sqrt(a + c + 2.0 * s)
    scale = np.sqrt(0.5) / (s * t)
    own_re, own_im, cross = ((scale * value)[:, np.newaxis] for value in (c + s, a + s, -b))
    white = np.empty(flat.shape, dtype=np.complex64)
    white.real = own_re * re + cross * im
    white.imag = own_im * im + cross * re
    return white.reshape(records.shape)


def unit_power(records: NDArray[Any]) -> NDArray[Any]:
    """Each record divided by its own root mean square; a silent record stays zero."""
    axes = tuple(range(1, records.ndim))
    power = np.sqrt((np.abs(records).astype(np.float64) ** 2).mean(axis=axes, keepdims=True))
    return (records / np.maximum(power, TINY)).astype(np.complex64)
