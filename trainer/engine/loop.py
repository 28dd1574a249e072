r"""The one loop: sample, clip and sum, release through the plan's mechanism, divide by the public expected batch, optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mechanisms.errors import InvalidParameter
from trainer.engine.clipping import PerRecordLoss, clipped_sum
from trainer.engine.parameters import ParameterLayout
from trainer.engine.randomness import Randomness
from trainer.engine.sampling import poisson_sample
from trainer.engine.torch_source import TorchSource
from trainer.errors import TrainingDiverged
from trainer.plan import ExecutionPlan

OptimizerStep = Callable[[dict[str, Tensor], Tensor, Tensor, int], tuple[Tensor, dict[str, Tensor]]]
"""State, parameters, released gradient, step -> new parameters and state."""


@final
@dataclass(frozen=True)
class Problem:
    """What is minimised: a loss of one record, the parameters it takes, and the training records (all of them on one device)."""

    loss: PerRecordLoss
    layout: ParameterLayout
    features: Tensor
    labels: Tensor


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


def private_step(
    problem: Problem, plan: ExecutionPlan, randomness: Randomness, optimizer: OptimizerStep, microbatch_size: int, state: TrainingState
) -> TrainingState:
    """The state after one more release."""
    step = state.step + 1
    # An empty sample goes the same way: a skipped release would tell that nobody was there.
    rows = torch.from_numpy(poisson_sample(plan.sampling, randomness.sampling(step))).to(problem.features.device)
    parameters = problem.layout.unflatten(state.parameters)
    bound = plan.clipping.bound
    total = clipped_sum(problem.loss, problem.layout, parameters, problem.features, problem.labels, rows, bound, microbatch_size)
    released = plan.mechanism.release(total, TorchSource(randomness.noise(step), total.device, torch.float64))
    # From here on everything is post-processing. The divisor is public; the sample's own size would leak (errata Z11).
    gradient = problem.layout.project(released / plan.sampling.expected_batch_size).to(torch.complex64)
    moved, optimizer_state = optimizer(state.optimizer, state.parameters, gradient, step)
    if not bool(torch.isfinite(moved).all()):
        raise TrainingDiverged(step)
    return TrainingState(step, moved, optimizer_state)


def train_steps(
    problem: Problem,
    plan: ExecutionPlan,
    randomness: Randomness,
    optimizer: OptimizerStep,
    microbatch_size: int,
    state: TrainingState,
    after_step: Callable[[TrainingState], None],
) -> TrainingState:
    """Runs from ``state`` to the plan's last step; ``after_step`` may raise to stop."""
    if plan.sampling.records != len(problem.labels):
        raise InvalidParameter("plan.sampling.records", f"the {len(problem.labels)} records of the data set", plan.sampling.records)
    while state.step < plan.steps:
        state = private_step(problem, plan, randomness, optimizer, microbatch_size, state)
        after_step(state)
    return state
