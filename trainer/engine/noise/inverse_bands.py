r"""Banded inverse noise (BandInvMF, DP-lambda-CGD): releases hold earlier sums through a recursion whose inverse reaches back few steps.

In float64; the rounding of every operation is charged, in all steps. Proof: mechanisms/proofs/banded_sums.md, 6.
"""

from __future__ import annotations

from collections import deque
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian
from zetadp.trainer.engine.noise.buffers import ROUNDING, limits
from zetadp.trainer.specs.strategy import BandedInverseStrategy


@final
class InverseBandedSums:
    r"""The last numbers u_t of one attempt, secret, and its last releases.

    Neither is ever written: an attempt that resumes a run begins with none. That is as private (proof, 6), but less of its first gradients'
    noise is cancelled.

    Args:
      mechanism: of every release, with the same noise on every real component.
      coordinates: real numbers of a release.
      steps: of the plan.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many coordinates.
    """

    def __init__(self, strategy: BandedInverseStrategy, mechanism: ComplexGaussian | Gaussian, coordinates: int, steps: int) -> None:
        self._strategy = strategy
        self._kept, self._largest = limits(mechanism, coordinates, steps, _each(strategy, steps))
        self._sums: deque[Tensor] = deque(maxlen=strategy.bands)
        self._releases: deque[Tensor] = deque(maxlen=strategy.bands)
        self._step: int | None = None

    def encoded(self, step: int, total: Tensor) -> Tensor:
        r"""c_0 u_t, u_t = x_t + w_1 u_{t-1} + w_2 u_{t-2} + ..., to which the mechanism adds its noise.

        Args:
          step: a step that doesn't follow the last one begins anew.
          total: x_t, the step's clipped sum, (coordinates,), real, finite.
        Returns:
          (coordinates,), float64.
        """
        if self._step is not None and step != self._step + 1:
            self._sums.clear()
            self._releases.clear()
        self._step = step
        own = total.to(torch.float64, copy=True).mul_(self._kept).clamp_(-self._largest, self._largest)
        for coefficient, earlier in zip(self._strategy.coefficients, self._sums, strict=False):
            own.add_(earlier, alpha=coefficient)
        self._sums.appendleft(own.clamp_(-self._largest, self._largest))
        return own * self._strategy.weight

    def decoded(self, released: Tensor) -> Tensor:
        """The step's noisy sum, (coordinates,), float64, from its release and the ones before: post-processing."""
        whole = released.double() / (self._strategy.weight * self._kept)
        terms = list(zip(self._strategy.coefficients, self._releases, strict=False))
        found = torch.sub(whole, terms[0][1], alpha=terms[0][0]) if terms else whole.clone()
        for coefficient, earlier in terms[1:]:
            found.sub_(earlier, alpha=coefficient)
        self._releases.appendleft(whole)
        return found


def _each(strategy: BandedInverseStrategy, steps: int) -> float:
    """How far rounding moves two neighbours' released numbers apart in each step, in units of the noise, without that of the release."""
    return strategy.weight * ((4.0 * strategy.bands + 5.0) * strategy.column_sum(steps) + 3.0) * ROUNDING * (1.0 + 2.0**-40)
