r"""The one loop: sample, clip and sum, release through the plan's mechanism, divide by the public expected batch, optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mechanisms.errors import InvalidParameter
from trainer.engine.clipping import Problem, clipped_sum
from trainer.engine.randomness import Randomness
from trainer.engine.sampling import poisson_sample
from trainer.engine.torch_source import TorchSource
from trainer.errors import TrainingDiverged
from trainer.plan import ExecutionPlan

OptimizerStep = Callable[[dict[str, Tensor], Tensor, Tensor, int], tuple[Tensor, dict[str, Tensor]]]
"""State, parameters, released gradient, step -> new parameters and state."""


@final
@dataclass(frozen=True)
class TrainingState:
    r"""Everything that the released values so far determine.

    Attributes:
      step: noisy sums released; the only place where releases are counted.
      parameters: (coordinates,), complex64.
      optimizer: its tensors, by name.
    """

    step: int
    parameters: Tensor
    optimizer: dict[str, Tensor]


@final
@dataclass(frozen=True)
class PrivateLoop:
    """Everything that a step needs beside the state."""

    problem: Problem
    plan: ExecutionPlan
    randomness: Randomness
    optimizer: OptimizerStep
    microbatch_size: int

    def run(self, state: TrainingState, after_step: Callable[[TrainingState], None]) -> TrainingState:
        r"""From ``state`` to the plan's last step; ``after_step`` may raise to stop.

        Raises:
          InvalidParameter: the plan is for another number of records.
          TrainingDiverged: the parameters stopped being finite.
        """
        records = len(self.problem.labels)
        if self.plan.sampling.records != records:
            raise InvalidParameter("plan.sampling.records", f"the {records} records of the data set", self.plan.sampling.records)
        while state.step < self.plan.steps:
            state = self.step(state)
            after_step(state)
        return state

    def step(self, state: TrainingState) -> TrainingState:
        """The state after one more release."""
        step = state.step + 1
        # An empty sample goes the same way: a skipped release would tell that nobody was there.
        rows = torch.from_numpy(poisson_sample(self.plan.sampling, self.randomness.sampling(step))).to(self.problem.features.device)
        parameters = self.problem.layout.unflatten(state.parameters)
        total = clipped_sum(self.problem, parameters, rows, self.plan.clipping.bound, self.microbatch_size)
        released = self.plan.mechanism.release(total, TorchSource(self.randomness.noise(step), total.device, torch.float64))
        # From here on everything is post-processing. The divisor is public; the sample's own size would leak (errata Z11).
        gradient = self.problem.layout.project(released / self.plan.sampling.expected_batch_size).to(torch.complex64)
        moved, optimizer_state = self.optimizer(state.optimizer, state.parameters, gradient, step)
        if not bool(torch.isfinite(moved).all()):
            raise TrainingDiverged(step)
        return TrainingState(step, moved, optimizer_state)
