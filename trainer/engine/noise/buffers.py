r"""Buffered noise (BLTs): what is released holds all earlier sums with weights that fall, kept in few buffers.

In float64; the rounding of every operation is charged, in all steps. Proof: mechanisms/proofs/banded_sums.md, 5.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian
from zetadp.mechanisms.sampling.grid import contraction, rounding
from zetadp.trainer.specs.strategy import BufferedStrategy

LARGEST_BITS = 16
"""Sums and buffers are held within 2^16 of the noise's scale, or less."""

ROUNDING = 2.0 ** (LARGEST_BITS - 53)
"""The largest error of one operation on a number held so, in units of the noise."""


@final
class BufferedSums:
    r"""The buffers of one attempt, secret, and those of the gradients that followed from its releases.

    Neither is ever written: an attempt that resumes a run begins with empty buffers. That is as private (proof, 5), but less of its first
    gradients' noise is cancelled.

    Args:
      mechanism: of every release, with the same noise on every real component.
      coordinates: real numbers of a release.
      steps: of the plan.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """

    def __init__(self, strategy: BufferedStrategy, mechanism: ComplexGaussian | Gaussian, coordinates: int, steps: int) -> None:
        self._strategy = strategy
        self._kept, self._largest = limits(mechanism, coordinates, steps, _each(strategy, steps))
        self._sums = _Buffers(strategy)
        self._gradients = _Buffers(strategy)
        self._step: int | None = None

    def encoded(self, step: int, total: Tensor) -> Tensor:
        r"""c_0 (x_t + the buffers' weighted sum), to which the mechanism adds its noise.

        Args:
          step: a step that doesn't follow the last one begins with empty buffers.
          total: x_t, the step's clipped sum, (coordinates,), real, finite.
        Returns:
          (coordinates,), float64.
        """
        if self._step is not None and step != self._step + 1:
            self._sums, self._gradients = _Buffers(self._strategy), _Buffers(self._strategy)
        self._step = step
        own = total.double().mul(self._kept).clamp_(-self._largest, self._largest)
        row = own.clone()
        for weight, buffer in self._sums.moved(self._largest):
            row.add_(buffer, alpha=weight)
        self._sums.last = own
        return row.mul_(self._strategy.weight)

    @property
    def largest(self) -> float:
        """The largest number that ``encoded`` returns."""
        return self._largest * self._strategy.weight * (1.0 + math.fsum(one.weight for one in self._strategy.buffers))

    def decoded(self, released: Tensor, dtype: torch.dtype) -> Tensor:
        """The step's noisy sum, (coordinates,), of this type, from its release, float64, and the ones before: post-processing."""
        found = released.double() / (self._strategy.weight * self._kept)
        for weight, buffer in self._gradients.moved(math.inf):
            found.sub_(buffer, alpha=weight)
        self._gradients.last = found
        return found.to(dtype, copy=True)


def limits(mechanism: ComplexGaussian | Gaussian, coordinates: int, steps: int, each: float) -> tuple[float, float]:
    """(what a sum is multiplied by, so that all rounding of the run is within what the noise is for; what its numbers are held within).

    Args:
      each: how far rounding moves two neighbours' numbers apart in each step, in units of the noise, without that of the release.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """
    # Complex noise adds one number to a vector of odd length.
    length = coordinates + 1
    kept = contraction(mechanism.least_distance(), length, "l2", (each + rounding(length)) * math.sqrt(steps))
    return kept, 2.0 ** (math.frexp(mechanism.noise_scale)[1] - 1 + LARGEST_BITS)


@final
class _Buffers:
    """s_i(t) = d_i s_i(t - 1) + v_{t - 1} for vectors v_1, v_2, ...; ``last`` is the last one of these."""

    def __init__(self, strategy: BufferedStrategy) -> None:
        self._buffers = strategy.buffers
        self._values: list[Tensor] = []
        self.last: Tensor | None = None

    def moved(self, largest: float) -> list[tuple[float, Tensor]]:
        """(w_i, s_i(t)) of the next step, held within +-largest; none in the first."""
        if self.last is None:
            return []
        if not self._values:
            self._values = [self.last.clone() for _ in self._buffers]
        else:
            for buffer, value in zip(self._buffers, self._values, strict=True):
                value.mul_(buffer.decay).add_(self.last)
                if largest < math.inf:
                    value.clamp_(-largest, largest)
        return [(buffer.weight, value) for buffer, value in zip(self._buffers, self._values, strict=True)]


def _each(strategy: BufferedStrategy, steps: int) -> float:
    """How far rounding moves two neighbours' released numbers apart in each step, in units of the noise, without that of the release."""
    count = len(strategy.buffers)
    kept = sum(one.weight * (steps if one.decay == 1.0 else min(steps, 1.0 / (1.0 - one.decay))) for one in strategy.buffers)
    return (strategy.weight * (2.0 + 8.25 * kept) + 6.0 * count + 5.0) * ROUNDING * (1.0 + 2.0**-40)
