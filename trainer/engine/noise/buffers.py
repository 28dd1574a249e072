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
from zetadp.trainer.engine.noise.weighted import CorrelatedSums, Encoding, WeightedSum
from zetadp.trainer.specs.strategy import BufferedStrategy

LARGEST_BITS = 16
"""Sums and buffers are held within 2^16 of the noise's scale, or less."""

ROUNDING = 2.0 ** (LARGEST_BITS - 53)
"""The largest error of one operation on a number held so, in units of the noise."""


@final
class BufferedSums(CorrelatedSums):
    r"""What is released is c_0 (x_t + the buffers' weighted sum).

    Args:
      mechanism: of every release, with the same noise on every real component.
      coordinates: real numbers of a release.
      steps: of the plan.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """

    def __init__(self, strategy: BufferedStrategy, mechanism: ComplexGaussian | Gaussian, coordinates: int, steps: int) -> None:
        super().__init__()
        kept, largest = limits(mechanism, coordinates, steps, _each(strategy, steps))
        weights = tuple(one.weight for one in strategy.buffers)
        self._strategy, self._largest = strategy, largest
        self._encoded = WeightedSum(weights, factor=kept, largest=largest, bound=largest / strategy.weight, weight=strategy.weight)
        self._decoded = WeightedSum(tuple(-one for one in weights), factor=1.0 / (strategy.weight * kept), keeps_sum=True)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._sums, self._gradients = _Buffers(self._strategy, self._largest), _Buffers(self._strategy, math.inf)

    def _encoding(self, total: Tensor) -> Encoding:
        return Encoding(self._encoded, self._sums.moved(), torch.empty_like(total, dtype=torch.float64))

    def _keep(self, kept: Tensor) -> None:
        self._sums.last = kept

    def decoded(self, released: Tensor, dtype: torch.dtype) -> Tensor:
        kept = torch.empty_like(released, dtype=torch.float64)
        found = self._decoded.over(released, self._gradients.moved(), kept, torch.empty_like(released, dtype=dtype))
        self._gradients.last = kept
        return found


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
    """s_i(t) = d_i s_i(t - 1) + v_{t - 1}, held within +-``largest``, for vectors v_1, v_2, ...; ``last`` is the last one of these."""

    def __init__(self, strategy: BufferedStrategy, largest: float) -> None:
        self._buffers, self._largest = strategy.buffers, largest
        self._values: list[Tensor] = []
        self.last: Tensor | None = None

    def moved(self) -> list[Tensor]:
        """s_i(t) of the next step; none in the first."""
        if self.last is None:
            return []
        if not self._values:
            self._values = [self.last.clone() for _ in self._buffers]
        else:
            for buffer, value in zip(self._buffers, self._values, strict=True):
                value.mul_(buffer.decay).add_(self.last)
                if self._largest < math.inf:
                    value.clamp_(-self._largest, self._largest)
        return self._values


def _each(strategy: BufferedStrategy, steps: int) -> float:
    """How far rounding moves two neighbours' released numbers apart in each step, in units of the noise, without that of the release."""
    count = len(strategy.buffers)
    kept = sum(one.weight * (steps if one.decay == 1.0 else min(steps, 1.0 / (1.0 - one.decay))) for one in strategy.buffers)
    return (strategy.weight * (2.0 + 8.25 * kept) + 6.0 * count + 5.0) * ROUNDING * (1.0 + 2.0**-40)
