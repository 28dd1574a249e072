r"""Low-pass filters of real signals: the kept frequencies, their number of real dimensions, and what remains of signal and noise.

All transforms are unitary (1 / sqrt(N) per axis). Frequency k of an axis of length N is kept when min(k, N - k) < K: the first K bins of
its ``rfft``. The kept bins come in conjugate pairs, so that real signals stay real. Proof: proofs/spectral.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zetadp.mechanisms.errors import InvalidParameter

MOST_AXES = 2
LONGEST_AXIS = 2**31


@final
@dataclass(frozen=True)
class LowPass:
    r"""The first ``kept[a]`` rfft frequencies of each axis a; in two dimensions the product of both masks.

    Attributes:
      shape: lengths N of the axes, one or two; each in [1, 2^31].
      kept: K on each axis, in [1, N]. From K = floor(N / 2) + 1 on, every frequency is kept.
    Raises:
      InvalidParameter: not one or two axes, not as many kept numbers as axes, or a number out of its range.

    >>> LowPass((8,), (3,)).kept_dimensions, LowPass((6, 10), (2, 4)).kept_dimensions
    (5, 21)
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= MOST_AXES:
            raise InvalidParameter("shape", "one or two axis lengths", list(self.shape))
        if not all(1 <= length <= LONGEST_AXIS for length in self.shape):
            raise InvalidParameter("shape", f"axis lengths between 1 and {LONGEST_AXIS}", list(self.shape))
        if len(self.kept) != len(self.shape):
            raise InvalidParameter("kept", f"one number for each axis of shape {list(self.shape)}", list(self.kept))
        if not all(1 <= count <= length for count, length in zip(self.kept, self.shape, strict=True)):
            raise InvalidParameter(
                "kept", f"at least 1 and at most the axis length on each axis of shape {list(self.shape)}", list(self.kept)
            )

    @property
    def _axes(self) -> list[tuple[int, int]]:
        return list(zip(self.shape, self.kept, strict=True))

    @property
    def dimensions(self) -> int:
        """Real numbers in a signal."""
        return math.prod(self.shape)

    @property
    def half_spectrum_bins(self) -> int:
        """Complex numbers in ``rfftn`` of a signal."""
        return math.prod(self.shape[:-1]) * (self.shape[-1] // 2 + 1)

    @property
    def kept_per_axis(self) -> tuple[int, ...]:
        """min(2 K - 1, N): frequency 0 and K - 1 conjugate pairs, at most N."""
        return tuple(min(2 * count - 1, length) for length, count in self._axes)

    @property
    def kept_dimensions(self) -> int:
        """Dimension of the space of filtered signals: the rank and the trace of the projection."""
        return math.prod(self.kept_per_axis)

    @property
    def variance_ratio(self) -> float:
        """Variance of filtered white noise at every position, as a fraction of the variance before the filter."""
        return self.kept_dimensions / self.dimensions

    @property
    def one_sided_bins(self) -> int:
        """Bins with index < K on every axis: what the literal mask keeps."""
        return math.prod(self.kept)

    @property
    def paired_one_sided_bins(self) -> int:
        """Bins of the literal mask whose conjugate bin it keeps too: on each axis 0, and k with N - K < k < K."""
        return math.prod(1 + max(0, 2 * count - length - 1) for length, count in self._axes)

    @property
    def one_sided_variance_ratio(self) -> float:
        """Variance ratio of the literal mask followed by the real part: a circular filter of weights 1, 1/2 and 0."""
        return (self.one_sided_bins + self.paired_one_sided_bins) / (2 * self.dimensions)

    @property
    def smallest_one_sided_amplitude(self) -> float:
        """What the literal mask and the real part leave of the least favoured kept frequency: 1/2 if a conjugate is lost, otherwise 1."""
        return 0.5 if self.paired_one_sided_bins < self.one_sided_bins else 1.0

    @property
    def keeps_complex_bins(self) -> bool:
        """Whether a kept bin isn't its own conjugate: the transform of a real signal is then complex there."""
        return any(length >= 3 and count >= 2 for length, count in self._axes)

    def covariance(self, lag: tuple[int, ...]) -> float:
        r"""Covariance of filtered white noise of variance 1 between positions this far apart: a product of Dirichlet kernels.

        Args:
          lag: difference of the two positions, one integer per axis.

        >>> LowPass((8,), (8,)).covariance((3,)), LowPass((8,), (3,)).covariance((0,))
        (0.0, 0.625)
        """
        return math.prod(_cosine_mean(bins, length, step) for bins, length, step in zip(self.kept_per_axis, self.shape, lag, strict=True))

    def half_spectrum_weights(self) -> NDArray[np.float64]:
        r"""How often each kept bin of ``rfftn`` counts in the energy: 2 if the half spectrum omits its conjugate; 0 if not kept.

        Returns:
          of shape (*shape[:-1], shape[-1] // 2 + 1).
        """
        last = self.shape[-1]
        weights = half_spectrum_multiplicity(last) * (np.arange(last // 2 + 1) < self.kept[-1])
        for length, count in self._axes[-2::-1]:
            index = np.arange(length)
            weights = (np.minimum(index, length - index) < count)[:, None] * weights
        return weights

    def project(self, value: ArrayLike) -> NDArray[np.float64]:
        """The orthogonal projection over the trailing axes; ``value`` is real, of shape (..., *shape)."""
        return low_pass(np.asarray(value, dtype=np.float64), self.kept)


def _cosine_mean(bins: int, length: int, step: int) -> float:
    """(1 / N) sum over the ``bins`` frequencies nearest to 0 of cos(2 pi k step / N); the angles' integers are reduced first."""
    nearest = min(step % length, -step % length)
    if nearest == 0:
        return bins / length
    if bins == length:
        return 0.0
    return math.sin(math.pi * (bins * nearest % (2 * length)) / length) / (length * math.sin(math.pi * nearest / length))


class Rounding(StrEnum):
    """How a filtering ratio that isn't a multiple of 1 / N becomes a whole number of frequencies."""

    FLOOR = "floor"
    CEIL = "ceil"
    NEAREST = "nearest"
    """Ties keep one more."""


def filtering_ratio(length: int, kept: int) -> float:
    """rho = 1 - K / N: the part of an axis' N bins, counted as the papers count, that is dropped.

    >>> filtering_ratio(8, 6)
    0.25
    """
    return (length - kept) / length


def kept_for_ratio(length: int, ratio: float, rounding: Rounding) -> int:
    r"""K = (1 - rho) N, rounded as ``rounding`` says; rho is read as the decimal it is written as, so that 0.9 of 10 leaves exactly 1.

    Args:
      length: N >= 1.
      ratio: rho in [0, 1).
      rounding: which whole number is used.
    Raises:
      InvalidParameter: a ratio out of range (a negative one is the printed sign), or one that leaves nothing.

    >>> kept_for_ratio(10, 0.9, Rounding.FLOOR), kept_for_ratio(9, 0.5, Rounding.NEAREST)
    (1, 5)
    """
    if ratio < 0.0:
        raise InvalidParameter("filtering_ratio", "rho = 1 - K / N, in [0, 1): the printed (K - N) / N has the wrong sign (P6)", ratio)
    if not ratio < 1.0:
        raise InvalidParameter("filtering_ratio", "rho = 1 - K / N, in [0, 1)", ratio)
    exact = (1 - Fraction(repr(ratio))) * length
    match rounding:
        case Rounding.FLOOR:
            kept = math.floor(exact)
        case Rounding.CEIL:
            kept = math.ceil(exact)
        case Rounding.NEAREST:
            kept = math.floor(exact + Fraction(1, 2))
    if kept == 0:
        raise InvalidParameter(
            "filtering_ratio", f"small enough to keep one of {length} frequencies with rounding {rounding.value!r}", ratio
        )
    return kept


def half_spectrum_multiplicity(length: int) -> NDArray[np.float64]:
    """1, 2, ..., 2, 1 (the last 1 for even lengths only): how many bins of the whole transform each bin of ``rfft`` represents."""
    counts = np.full(length // 2 + 1, 2.0)
    counts[0] = 1.0
    if length % 2 == 0:
        counts[-1] = 1.0
    return counts


def low_pass(value: NDArray[Any], kept: tuple[int, ...]) -> NDArray[np.float64]:
    r"""Projects the trailing len(kept) axes of real arrays onto their first ``kept`` rfft frequencies, in float64.

    Args:
      value: real, of shape (..., N) or (..., N1, N2).
      kept: K for each of these axes; in [1, N].
    Returns:
      float64 of the same shape. A transform in a narrower type would round away more than the noise can hide.

    >>> low_pass(np.array([1.0, 0.0, 0.0, 0.0]), (1,)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    axes = tuple(range(-len(kept), 0))
    shape = value.shape[-len(kept) :]
    spectrum = np.fft.rfftn(value.astype(np.float64, copy=False), axes=axes, norm="ortho")
    for part in dropped_slices(shape, kept):
        spectrum[part] = 0.0
    return np.fft.irfftn(spectrum, s=shape, axes=axes, norm="ortho")


def dropped_slices(shape: tuple[int, ...], kept: tuple[int, ...]) -> list[Any]:
    """Index expressions of the bins of ``rfftn`` over trailing axes of this shape that a low pass sets to zero."""
    last = (..., slice(kept[-1], None))
    inner = [
        (..., slice(count, length - count + 1), *[slice(None)] * (len(shape) - 1 - axis))
        for axis, (length, count) in enumerate(zip(shape[:-1], kept[:-1], strict=True))
        if count < length - count + 1
    ]
    return [last, *inner]
