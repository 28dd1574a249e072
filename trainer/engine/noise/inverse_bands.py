r"""Banded inverse noise (BandInvMF, DP-lambda-CGD): releases hold earlier sums through a recursion whose inverse reaches back few steps.

In float64; the rounding of every operation is charged, in all steps. Proof: mechanisms/proofs/banded_sums.md, 6.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian
from zetadp.trainer.engine.noise.buffers import ROUNDING, limits
from zetadp.trainer.engine.noise.weighted import CorrelatedSums, Encoding, LastVectors, WeightedSum
from zetadp.trainer.specs.strategy import BandedInverseStrategy


@final
class InverseBandedSums(CorrelatedSums):
    r"""What is released is c_0 u_t, u_t = x_t + w_1 u_{t-1} + w_2 u_{t-2} + ..., of the last numbers u and releases.

    Args:
      mechanism: of every release, with the same noise on every real component.
      coordinates: real numbers of a release.
      steps: of the plan.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """

    def __init__(self, strategy: BandedInverseStrategy, mechanism: ComplexGaussian | Gaussian, coordinates: int, steps: int) -> None:
        super().__init__()
        kept, largest = limits(mechanism, coordinates, steps, _each(strategy, steps))
        weights = strategy.coefficients
        self._encoded = WeightedSum(weights, factor=kept, largest=largest, bound=largest, weight=strategy.weight, keeps_sum=True)
        self._decoded = WeightedSum(tuple(-one for one in weights), weight=1.0 / (strategy.weight * kept))
        self._sums, self._releases = LastVectors(strategy.bands), LastVectors(strategy.bands)

    def _begin_anew(self) -> None:
        self._sums.clear()
        self._releases.clear()

    def _encoding(self, total: Tensor) -> Encoding:
        return Encoding(self._encoded, self._sums.all, self._sums.room(total))

    def _keep(self, kept: Tensor) -> None:
        self._sums.add(kept)

    def decoded(self, released: Tensor, dtype: torch.dtype) -> Tensor:
        found = self._decoded.over(released, self._releases.all, None, self._releases.room(released, dtype))
        self._releases.add(released)
        return found


def _each(strategy: BandedInverseStrategy, steps: int) -> float:
    """How far rounding moves two neighbours' released numbers apart in each step, in units of the noise, without that of the release."""
    return strategy.weight * ((4.0 * strategy.bands + 5.0) * strategy.column_sum(steps) + 3.0) * ROUNDING * (1.0 + 2.0**-40)
