r"""How much of a given real signal a low-pass filter keeps, and what clipping leaves of it in either order. Proof: proofs/spectral.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import LowPass, half_spectrum_multiplicity

_ROUNDING = 1e-14
"""The largest relative remainder that a transform's rounding may leave in bins where the signal is 0."""


@final
@dataclass(frozen=True)
class SignalNorms:
    r"""l2 norms of a signal G and of its projection PG; ``kept`` <= ``whole``.

    >>> norms = SignalNorms.of_signal(LowPass((4,), (1,)), [2.0, 0.0, 0.0, 0.0])
    >>> norms.kept, norms.clipped_then_projected(1.0), norms.projected_then_clipped(1.0)
    (1.0, 0.5, 1.0)
    """

    whole: float
    kept: float

    @classmethod
    def of_signal(cls, low_pass: LowPass, signal: ArrayLike) -> Self:
        r"""Norms of a signal of ``low_pass.dimensions`` real numbers, in row-major order. Raises InvalidParameter for another length."""
        values = np.asarray(signal, dtype=np.float64)
        if values.size != low_pass.dimensions:
            raise InvalidParameter("signal", f"{low_pass.dimensions} numbers, one for each position", values.size)
        largest = float(np.max(np.abs(values)))
        if largest == 0.0:
            return cls(0.0, 0.0)
        # Divided by the largest, so that squares neither overflow nor vanish.
        scaled = values.reshape(low_pass.shape) / largest
        spectrum = np.fft.rfftn(scaled, norm="ortho")
        whole = float(np.linalg.norm(scaled))
        kept = math.sqrt(float(np.sum(low_pass.half_spectrum_weights() * (spectrum.real**2 + spectrum.imag**2))))
        if kept <= _ROUNDING * whole:
            kept = 0.0
        return cls(largest * whole, largest * min(kept, whole))

    @classmethod
    def of_power(cls, low_pass: LowPass, power: ArrayLike) -> Self:
        r"""Norms from |rfftn|^2 of a signal under the unitary transform, shape[:-1] times shape[-1] // 2 + 1 numbers in row-major order."""
        values = np.asarray(power, dtype=np.float64)
        bins = low_pass.half_spectrum_bins
        if values.size != bins:
            raise InvalidParameter("power_spectrum", f"{bins} numbers, one for each bin of the half spectrum", values.size)
        if not bool(np.all(values >= 0.0)):
            raise InvalidParameter("power_spectrum", ">= 0 in every bin", float(np.min(values)))
        largest = float(np.max(values))
        if largest == 0.0:
            return cls(0.0, 0.0)
        weights = low_pass.half_spectrum_weights()
        scaled = values.reshape(weights.shape) / largest
        whole = math.sqrt(float(np.sum(half_spectrum_multiplicity(low_pass.shape[-1]) * scaled)))
        kept = math.sqrt(float(np.sum(weights * scaled)))
        return cls(math.sqrt(largest) * whole, math.sqrt(largest) * min(kept, whole))

    @property
    def kept_energy_fraction(self) -> float | None:
        """(kept / whole)^2; None for the zero signal, which has no energy to keep."""
        return None if self.whole == 0.0 else (self.kept / self.whole) ** 2

    def clipped_then_projected(self, clip: float) -> float:
        """Norm of P applied to G clipped to ``clip``: min(1, clip / ||G||) ||PG||."""
        return self.kept if self.whole <= clip else clip * (self.kept / self.whole)

    def projected_then_clipped(self, clip: float) -> float:
        """Norm of PG clipped to ``clip``: min(clip, ||PG||). As private, and never less."""
        return min(clip, self.kept)


def norm_inside(shape: tuple[int, ...], signal: ArrayLike, support: tuple[int, ...]) -> float:
    r"""l2 norm of the leading ``support`` entries of each axis: what a crop keeps of a padded gradient (a projection too; errata P18)."""
    values = np.asarray(signal, dtype=np.float64).reshape(shape)
    inside = values[tuple(slice(0, count) for count in support)]
    largest = float(np.max(np.abs(inside)))
    return largest * float(np.linalg.norm(inside / largest)) if largest > 0.0 else 0.0
