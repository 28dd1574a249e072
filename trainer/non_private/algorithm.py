r"""Gradient descent on the mean loss of ordinary batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from trainer.data import DataSetFacts
from trainer.engine import Evaluation, HeldOutRecords, ParameterLayout, Problem, TrainingState, initial_state, members_of, update
from trainer.engine.epochs import Epochs
from trainer.engine.loop import NO_BOUND
from trainer.engine.parameters import model_tensors
from trainer.engine.precision import compute_in
from trainer.engine.randomness import origin_of, stream_of
from trainer.engine.requests import architecture
from trainer.engine.run import Ending, Model, PreparedRun, Setting
from trainer.engine.units import seed_of
from trainer.models import build, losses_for
from trainer.models.front import passed_through, split_front
from trainer.non_private.spec import NonPrivateTraining
from trainer.plans import UnprotectedPlan
from trainer.report import MetricValues
from trainer.spec import RuntimeSpec

GENERATOR = "batches from AES-256 in counter mode; no noise"


@final
@dataclass(frozen=True)
class NonPrivateDescent:
    """See ``Algorithm``."""

    spec: NonPrivateTraining
    plan: UnprotectedPlan

    @property
    def steps_release(self) -> bool:
        """Nothing is counted here."""
        return False

    def prepare(self, setting: Setting) -> PreparedDescent:
        """Reads the data and builds the network."""
        return PreparedDescent(self.spec, setting.facts, Network.of(self.spec, setting.runtime, setting.facts, setting.device))


@final
@dataclass(frozen=True)
class Network:
    """What a run works with, in memory; ``rows``: the records that are used, (records,), int64."""

    front: nn.Module
    problem: Problem
    rows: Tensor
    layout: ParameterLayout
    held_out: HeldOutRecords

    @staticmethod
    def of(spec: NonPrivateTraining, runtime: RuntimeSpec, facts: DataSetFacts, device: torch.device) -> Network:
        """Reads the data and builds the network."""
        data = spec.data.read()
        front, network = split_front(build(spec.model, facts, stream_of(spec, "model initialisation")).to(device))
        compute_in(runtime, network)
        features, targets, test_features, test_targets = (
            torch.from_numpy(np.ascontiguousarray(array)).to(device)
            for array in (data.training_features, data.training_targets, data.test_features, data.test_targets)
        )
        rows = torch.arange(len(features))
        if spec.records_per_user is not None:
            assert data.training_users is not None  # the plan found a user unit
            members = members_of(data.training_users, spec.records_per_user)
            rows = members[members >= 0].sort().values
        problem = Problem(network, losses_for(facts), passed_through(front, features), targets, members=None)
        layout = ParameterLayout.of(network)
        held_out = HeldOutRecords(network, layout, passed_through(front, test_features), test_targets)
        if spec.held_out == "public":
            held_out.check_measurable()
        return Network(front, problem, rows.to(device), layout, held_out)

    def gradient(self, parameters: Tensor, rows: Tensor) -> Tensor:
        """Of the mean loss over some rows, (coordinates,)."""
        problem = self.problem
        leaf = parameters.detach().requires_grad_()
        outputs = functional_call(problem.network, self.layout.unflatten(leaf), (problem.features.index_select(0, rows),))
        loss = problem.losses(outputs, problem.targets.index_select(0, rows)).mean()
        return torch.autograd.grad(loss, leaf)[0]


@final
class PreparedDescent(PreparedRun):
    """The network, and the batches of each epoch."""

    def __init__(self, spec: NonPrivateTraining, facts: DataSetFacts, network: Network) -> None:
        self._spec, self._facts, self._network = spec, facts, network
        self._epochs = Epochs(network.rows, spec.batch_size, partial(stream_of, spec))

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(self._spec.held_out, self._measured)

    def initial_state(self) -> TrainingState:
        problem, layout = self._network.problem, self._network.layout
        parameters = layout.flatten(dict(problem.network.named_parameters())).to(problem.features.device)
        return TrainingState(0, parameters, initial_state(self._spec.optimizer, parameters), NO_BOUND)

    def step(self, state: TrainingState) -> TrainingState:
        step, batch = state.step + 1, self._epochs.after(state.step)
        if self._spec.seed is not None:
            torch.manual_seed(seed_of(self._spec.seed, f"masks of step {step}"))  # of dropout
        gradient = self._network.gradient(state.parameters, batch)
        moved, optimizer_state = update(self._spec.optimizer, state.optimizer, state.parameters, gradient, step, self._spec.steps)
        return TrainingState(step, moved, optimizer_state, NO_BOUND)

    def model(self, state: TrainingState) -> Model:
        tensors = model_tensors(self._network.layout, state.parameters, self._network.front)
        return Model(tensors, architecture(self._spec, self._spec.model, self._facts))

    def finish(self, state: TrainingState) -> Ending:
        del state
        return Ending(origin_of(self._spec), GENERATOR, self._network.layout.real_parameters)

    def _measured(self, state: TrainingState) -> MetricValues:
        return self._network.held_out.metrics(state, classifies=self._facts.task == "classification")
