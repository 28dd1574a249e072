r"""Marks: made-up units, each with a known direction of its own, that audit sampling, clipping's scale and noise of a run from inside.

A release is as many numbers longer as there are marks. Nobody's gradient reaches these numbers but one mark's: it is sampled with everybody
else, and its gradient there, several times the bound, goes through the function that scales every unit's. So the released sums tell about
each mark what a Gaussian pair tells, and no more; the model is never told these numbers. What happens to real records' gradients before
they are scaled is not looked at: ``canaries`` are made-up records, which have gradients of the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from zetadp.accountants.audit import Scores
from zetadp.trainer.engine.gradients.audited_units import MEMBERS, SCORES, AuditedUnits
from zetadp.trainer.engine.gradients.clipping import scaled_down
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.sampling import InTurns

BEYOND = 4.0
"""How many times the bound a mark's gradient is before it is clipped."""

CUTS = (-2.0, -1.0, 0.0, 1.0, 2.0, 2.5, 3.0)
"""In standard deviations of a mark's score under the plan: chosen before any run, so binomial tails are exact."""

_LARGEST_SHIFT = 20.0


@final
@dataclass(frozen=True)
class Marks(AuditedUnits):
    r"""The marks of one run; what has been learned about them so far is in the training state.

    Attributes:
      plan: of the run.
      first: number of the first mark among the units; those before it are real.
      marks: their number, whether they take part or not.
    """

    KIND: ClassVar[Literal["canaries", "marks"]] = "marks"

    plan: ExecutionPlan
    first: int
    marks: int

    @property
    def count(self) -> int:
        return self.marks

    @property
    def _shift(self) -> float:
        """How far a mark in the sample moves its number, over the deviation of the noise there, if all is as planned."""
        return min(self.plan.clipping.sensitivity / self.plan.noise_std, _LARGEST_SHIFT)

    def scores(self, state: Mapping[str, Tensor]) -> Scores:
        """What has been learned about the marks, in the form that audits read."""
        return Scores(state[MEMBERS].numpy(), state[SCORES].numpy(), CUTS)

    def split(self, sample: Tensor) -> tuple[Tensor, Tensor]:
        """The real units of a sample, and the places of marks in it."""
        is_real = sample < self.first
        return sample[is_real], sample[~is_real] - self.first

    def followed(self, vector: Tensor, sampled: Tensor) -> Tensor:
        """The vector to release with the numbers of these sampled marks behind it, (coordinates + count,)."""
        bound = self.plan.clipping.sensitivity
        clipped = scaled_down(vector.new_full((len(sampled),), BEYOND * bound), bound).to(vector.dtype)
        return torch.cat((vector, vector.new_zeros(self.count).index_copy_(0, sampled, clipped)))

    def observe(self, state: Mapping[str, Tensor], released: Tensor, step: int) -> dict[str, Tensor]:
        r"""The state after a step: each score grows by the logarithm of the likelihoods' ratio, in the plan's deviations of a whole run's.

        With x the released number over the noise's deviation, a the shift and q the sampling probability it is
        log(1 - q + q e^(a x - a^2 / 2)), and 0 where it isn't the mark's turn. Where samples of a mark depend on each other
        (allocations) another score would be a little better; no answer is less valid for that.

        Args:
          released: the last ``count`` numbers of the release, noise and all.
          step: from 1.
        """
        probability, shift = self.plan.sampling.probability, self._shift
        values = released.detach().double().cpu() / self.plan.noise_std
        gained = _log_ratio(values, shift, probability)
        sampling = self.plan.sampling
        if isinstance(sampling, InTurns):
            gained = gained * (torch.arange(self.count) % sampling.groups == step % sampling.groups)
        return {MEMBERS: state[MEMBERS], SCORES: state[SCORES] + gained / self._deviation}

    @property
    def _deviation(self) -> float:
        """About the standard deviation of a mark's score; only the place of cuts depends on it."""
        probability, shift = self.plan.sampling.probability, self._shift
        variance = min(probability**2 * torch.expm1(torch.tensor(shift**2, dtype=torch.float64)).item(), shift**2)
        sampling = self.plan.sampling
        turns = sampling.groups if isinstance(sampling, InTurns) else 1
        return (variance * max(1.0, self.plan.steps / turns)) ** 0.5


def _log_ratio(values: Tensor, shift: float, probability: float) -> Tensor:
    """log(1 - q + q e^(a x - a^2 / 2)), without overflow."""
    exponents = shift * values - 0.5 * shift**2 + torch.tensor(probability, dtype=torch.float64).log()
    return torch.logaddexp(exponents, torch.tensor(1.0 - probability, dtype=torch.float64).log().expand_as(exponents))
