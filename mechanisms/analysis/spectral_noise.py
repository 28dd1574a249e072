r"""What "add N(0, s^2) to the spectral coefficients" protects in each reading: the words have several meanings, and not all are private.

The query is a real signal of l2 sensitivity S, its transform is unitary, and s = noise_multiplier * S. Proof: proofs/spectral.md.
"""

from __future__ import annotations

import cmath
import math
from enum import StrEnum

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import LowPass


class NoiseReading(StrEnum):
    """What is added to the transform of a real signal."""

    REAL_ON_COMPLEX_BINS = "real_on_complex_bins"
    """Independent real N(0, s^2) on every bin; the imaginary parts stay as they are."""
    COMPLEX_TOTAL_VARIANCE = "complex_total_variance"
    """Independent CN(0, s^2) on every bin: E|V|^2 = s^2, half of it on each real component."""
    COMPLEX_PER_COMPONENT = "complex_per_component"
    """Independent on every bin, N(0, s^2) on each of the two real components."""
    HERMITIAN = "hermitian"
    """The transform of real white noise N(0, s^2): conjugate bins have conjugate noise, E|V|^2 = s^2 in every bin."""
    HALF_SPECTRUM_COMPLEX_RANDN = "half_spectrum_complex_randn"
    """s times complex random numbers of E|V|^2 = 1 on the bins of ``rfft``, as ``randn`` of a complex type draws them."""


def reading_gdp_mu(reading: NoiseReading, low_pass: LowPass, noise_multiplier: float) -> float:
    r"""The exact mu of one release of query and noise, filtered by the mask ``index < K``; infinity if something is released exactly.

    Args:
      reading: what is added.
      low_pass: which bins the mask lets through; only the first reading depends on it.
      noise_multiplier: sigma = s / S, > 0.
    Source: errata P1, P2; proofs/spectral.md.

    >>> reading_gdp_mu(NoiseReading.REAL_ON_COMPLEX_BINS, LowPass((16,), (4,)), 1.0)
    inf
    >>> reading_gdp_mu(NoiseReading.HERMITIAN, LowPass((16,), (4,)), 2.0)
    0.5
    """
    if not 0.0 < noise_multiplier < math.inf:
        raise InvalidParameter("noise_multiplier", "> 0 and finite", noise_multiplier)
    match reading:
        case NoiseReading.REAL_ON_COMPLEX_BINS:
            return math.inf if low_pass.keeps_complex_bins else 1.0 / noise_multiplier
        case NoiseReading.COMPLEX_TOTAL_VARIANCE | NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN:
            return math.sqrt(2.0) / noise_multiplier
        case NoiseReading.COMPLEX_PER_COMPONENT | NoiseReading.HERMITIAN:
            return 1.0 / noise_multiplier


def real_noise_variance(low_pass: LowPass, position: tuple[int, ...]) -> float:
    r"""Variance of Re v_n with independent real N(0, 1) on the bins index < K, in closed form.

    Var Re v_n = (1 / N) sum_{i < K} cos^2(2 pi i n / N) = (K + Re D(n)) / (2 N), D(n) = sum_{i < K} e^{4 pi j i n / N}; products over axes.

    Args:
      position: n, one index per axis, modulo the axis length.
    Source: errata P3.

    >>> real_noise_variance(LowPass((8,), (4,)), (0,)), real_noise_variance(LowPass((8,), (4,)), (1,))
    (0.5, 0.25)
    """
    if len(position) != len(low_pass.shape):
        raise InvalidParameter("position", f"one index for each axis of shape {list(low_pass.shape)}", list(position))
    total = complex(1.0)
    for length, count, index in zip(low_pass.shape, low_pass.kept, position, strict=True):
        total *= _geometric_sum(length, count, 2 * index)
    return (low_pass.one_sided_bins + total.real) / (2 * low_pass.dimensions)


def _geometric_sum(length: int, count: int, step: int) -> complex:
    """sum_{i < count} e^{2 pi j i step / length}."""
    step %= length
    if step == 0:
        return complex(count)
    # The nearer of the two signs: the sine below is then never a rounded multiple of pi.
    sign, step = (1.0, step) if 2 * step <= length else (-1.0, length - step)
    modulus = math.sin(math.pi * (count * step % (2 * length)) / length) / math.sin(math.pi * step / length)
    return modulus * cmath.exp(1j * sign * math.pi * ((count - 1) * step % (2 * length)) / length)


def layers_l2(clips: tuple[float, ...]) -> float:
    """sqrt(sum C_l^2): the l2 sensitivity of a sum of records clipped layer by layer (a product of balls), attained. Errata P15."""
    return math.hypot(*clips)


def layers_gdp_mu(clips: tuple[float, ...], stds: tuple[float, ...]) -> float:
    r"""The exact mu of layers clipped to ``clips`` with independent noise ``stds`` on their coordinates: sqrt(sum (C_l / std_l)^2).

    >>> layers_gdp_mu((3.0, 4.0), (5.0, 5.0))
    1.0
    """
    if len(clips) != len(stds) or not clips:
        raise InvalidParameter("stds", f"one for each of the {len(clips)} clipping bounds, at least one", len(stds))
    return math.hypot(*(clip / std for clip, std in zip(clips, stds, strict=True)))


def unnormalised_gdp_mu(low_pass: LowPass, noise_multiplier: float) -> float:
    r"""mu if signals are clipped to S in time, transformed without 1 / sqrt(N), and get noise sigma S per component: sqrt(N) / sigma.

    The transform stretches every signal by sqrt(N) (by sqrt(N1 N2) in two dimensions), the noise stays. Errata P16.

    >>> unnormalised_gdp_mu(LowPass((16,), (16,)), 2.0)
    2.0
    """
    return math.sqrt(low_pass.dimensions) / noise_multiplier


def rfft_norm_undercount(low_pass: LowPass) -> float:
    """Largest ratio of a signal's norm to that of its unitary ``rfft``: sqrt(2) if a bin has an omitted conjugate, otherwise 1."""
    return math.sqrt(2.0) if low_pass.shape[-1] >= 3 else 1.0
