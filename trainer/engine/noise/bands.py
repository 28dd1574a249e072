r"""Banded noise: what is released holds the last sums, weighted, so that the gradient that follows has noise correlated along the steps.

Exact: sums are rounded to a grid on which their products with the coefficients, and the sums of these, are float64 numbers. Proof:
mechanisms/proofs/banded_sums.md.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian
from zetadp.mechanisms.sampling.grid import contraction, rounding
from zetadp.trainer.engine.noise.weighted import CorrelatedSums, Encoding, LastVectors, WeightedSum
from zetadp.trainer.specs.strategy import COEFFICIENT_BITS, BandedStrategy

LARGEST_BITS = 50
"""Weighted sums stay within 2^50 steps of their grid, which float64 adds exactly, and within what noise is added to as it is."""

SUM_BITS = 34
"""Their grid: 2^-34 of the noise's scale, or finer. A step's sum is rounded to a grid that is coarser by the coefficients' bits."""

OF_SUMS = (1.0 + 2.0**-COEFFICIENT_BITS) * 2.0 ** (COEFFICIENT_BITS - SUM_BITS)
"""How far rounding a step's sum moves two neighbours' numbers apart, in units of the noise."""


@final
class BandedSums(CorrelatedSums):
    r"""What is released is c_0 x_t + c_1 x_{t-1} + ..., of the last sums.

    Args:
      mechanism: of every release, with the same noise on every real component.
      coordinates: real numbers of a release.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """

    def __init__(self, strategy: BandedStrategy, mechanism: ComplexGaussian | Gaussian, coordinates: int) -> None:
        super().__init__()
        coefficients = strategy.coefficients
        # What a sum is multiplied by, so that its own rounding and that of the releases are within what the noise is for. Complex noise
        # adds one number to a vector of odd length.
        each = OF_SUMS + rounding(coordinates + 1) * math.sqrt(strategy.bands)
        kept = contraction(mechanism.least_distance(), coordinates + 1, "l2", each)
        # A power of two, at most 2^-34 of the noise's scale.
        fine = 2.0 ** (math.frexp(mechanism.noise_scale)[1] - 1 - SUM_BITS)
        weight = 2.0 ** math.ceil(math.log2(max(1.0, math.fsum(coefficients))))
        first, largest = coefficients[0], fine * 2.0**LARGEST_BITS / weight
        # Both factors of the rounding are powers of two, and rounding a float64 to a whole number is exact.
        self._encoded = WeightedSum(coefficients[1:], factor=kept, largest=largest, unit=fine * 2.0**COEFFICIENT_BITS, own=first)
        self._decoded = WeightedSum(tuple(-one / first for one in coefficients[1:]), factor=1.0 / kept, own=1.0 / first, keeps_sum=True)
        self._sums, self._gradients = LastVectors(strategy.bands - 1), LastVectors(strategy.bands - 1)

    def _begin_anew(self) -> None:
        self._sums.clear()
        self._gradients.clear()

    def _encoding(self, total: Tensor) -> Encoding:
        return Encoding(self._encoded, self._sums.all, self._sums.room(total))

    def _keep(self, kept: Tensor) -> None:
        self._sums.add(kept)

    def decoded(self, released: Tensor, dtype: torch.dtype) -> Tensor:
        kept = self._gradients.room(released)
        found = self._decoded.over(released, self._gradients.all, kept, torch.empty_like(released, dtype=dtype))
        self._gradients.add(kept)
        return found
