r"""Shares of noise: a site's sum becomes integers with a share of the noise, and their sum becomes a noisy sum again."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, NoiseSource
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.shares import centred
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.shares import share_grid


@final
class SharedNoise:
    r"""The releases of a plan with secure aggregation. Proof: mechanisms/proofs/shared_noise.md.

    Args:
      numbers: real numbers of a release.
    Raises:
      InvalidParameter: the noise is too large for its sensitivity and so many numbers.
    """

    def __init__(self, plan: ExecutionPlan, numbers: int) -> None:
        aggregation, nodes, mechanism = plan.aggregation, plan.sampling.nodes, plan.mechanism
        assert aggregation is not None  # of such a plan
        assert not isinstance(mechanism, Laplace)  # checked by the plan
        self.least = aggregation.least(nodes)
        """How many sites have to stay until the end of a round."""
        self.grid = share_grid(plan, numbers)
        self.share: ComplexGaussian | Gaussian = mechanism.scaled(self.grid.widened / aggregation.honest(nodes) ** 0.5)
        """The noise of one share."""

    def integers(self, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        """A site's sum with its share of the noise, (numbers,): whole numbers, in float64, which has them exactly."""
        if not source.all_finite(vector):
            raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")
        grid = self.grid
        noise = source.standard_normal(tuple(vector.shape)).mul_(2.0**grid.bits).floor_()
        steps = vector.to(torch.float64).mul(grid.factor).clamp_(-grid.held, grid.held).round_()
        return noise.add_(steps, alpha=float(grid.honest))

    def value(self, total: Tensor, sites: int) -> Tensor | None:
        r"""The noisy sum, (numbers,), float64.

        Args:
          total: of the integers of so many sites; whole numbers that are right modulo 2^width.
        Returns:
          None where fewer sites are left than have to stay: nothing was released.
        """
        if sites < self.least:
            return None
        whole = centred(total.to(torch.int64), self.grid.width)
        # A floor is half a step below its number on average.
        return (whole.to(torch.float64) + 0.5 * sites) * self.grid.step
