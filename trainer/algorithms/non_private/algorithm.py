r"""Gradient descent on the mean loss of ordinary batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine import Evaluation, TrainingState, initial_state, members_of, update
from zetadp.trainer.engine.epochs import Epochs
from zetadp.trainer.engine.loaded_network import LoadedNetwork, records_of
from zetadp.trainer.engine.loop import NO_BOUND
from zetadp.trainer.engine.membership import seed_of
from zetadp.trainer.engine.noise.randomness import origin_of, stream_of
from zetadp.trainer.engine.requests import architecture
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting
from zetadp.trainer.engine.torch_seed import seed_torch
from zetadp.trainer.layers.flat_parameters import model_tensors
from zetadp.trainer.models import losses_for
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.plans import UnprotectedPlan
from zetadp.trainer.specs.report import MetricValues

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
        data = records_of(self.spec.data, setting)
        loaded = LoadedNetwork.of(self.spec, self.spec.model, data, setting)
        rows = torch.arange(len(loaded.features))
        if self.spec.records_per_user is not None:
            assert data.training_users is not None  # the plan found a user unit
            members = members_of(data.training_users, self.spec.records_per_user)
            rows = members[members >= 0].sort().values
        return PreparedDescent(self.spec, setting.facts, loaded, rows.to(setting.device))


@final
class PreparedDescent(PreparedRun):
    r"""The network, and the batches of each epoch.

    Args:
      rows: the records that are used, (records,), int64.
    """

    def __init__(self, spec: NonPrivateTraining, facts: DataSetFacts, loaded: LoadedNetwork, rows: Tensor) -> None:
        self.loaded = loaded
        self._spec, self._facts = spec, facts
        self._losses = losses_for(facts)
        self._epochs = Epochs(rows, spec.batch_size, partial(stream_of, spec))

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(self._spec.held_out, self._measured)

    def initial_state(self) -> TrainingState:
        parameters = self.loaded.layout.flatten(dict(self.loaded.network.named_parameters())).to(self.loaded.features.device)
        return TrainingState(0, parameters, initial_state(self._spec.optimizer, parameters), NO_BOUND)

    def step(self, state: TrainingState) -> TrainingState:
        step, batch = state.step + 1, self._epochs.after(state.step)
        if self._spec.seed is not None:
            seed_torch(self.loaded.features.device, seed_of(self._spec.seed, f"masks of step {step}"))  # of dropout
        gradient = self.gradient(state.parameters, batch)
        moved, optimizer_state = update(self._spec.optimizer, state.optimizer, state.parameters, gradient, step, self._spec.steps)
        return TrainingState(step, moved, optimizer_state, NO_BOUND)

    def gradient(self, parameters: Tensor, rows: Tensor) -> Tensor:
        """The gradient of the mean loss over some records, given by number, (coordinates,)."""
        loaded = self.loaded
        leaf = parameters.detach().requires_grad_()
        outputs = functional_call(loaded.network, loaded.layout.unflatten(leaf), (loaded.features.index_select(0, rows),))
        loss = self._losses(outputs, loaded.targets.index_select(0, rows)).mean()
        return torch.autograd.grad(loss, leaf)[0]

    def model(self, state: TrainingState) -> Model:
        tensors = model_tensors(self.loaded.layout, state.parameters, self.loaded.front, self.loaded.network)
        return Model(tensors, architecture(self._spec, self._spec.model, self._facts))

    def finish(self, state: TrainingState) -> Ending:
        del state
        return Ending(origin_of(self._spec), GENERATOR, self.loaded.layout.real_parameters)

    def _measured(self, state: TrainingState) -> MetricValues:
        return self.loaded.held_out.metrics(state, classifies=self._facts.task == "classification")
