r"""A caller's module as an algorithm of ``run``: in this process, on records that the caller holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.own_module.optimization import TorchOptimization
from zetadp.trainer.algorithms.own_module.preparation import contents
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.inputs import Inputs
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.loaded_network import LoadedNetwork
from zetadp.trainer.engine.loop import Site, TrainingState
from zetadp.trainer.engine.membership import members_of
from zetadp.trainer.engine.network_run import PreparedNetwork
from zetadp.trainer.engine.noise.randomness import randomness_of
from zetadp.trainer.engine.run import Model, Setting
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.specs.algorithms.own_module import OwnModule
from zetadp.trainer.specs.execution_plan import ExecutionPlan

Rows = Tensor | Inputs | LazyRows


@final
@dataclass(frozen=True)
class OwnTraining:
    r"""See ``Algorithm``.

    Attributes:
      module: its frozen parameters are constants; it is on the run's device, as features and targets are.
      losses: each record's own loss.
      users: each record's user, where users are the units; else None.
    """

    spec: OwnModule
    plan: ExecutionPlan
    module: nn.Module
    losses: Callable[[Tensor, Tensor], Tensor]
    features: Rows
    targets: Rows
    users: Sequence[object] | None
    optimization: TorchOptimization

    @property
    def steps_release(self) -> bool:
        """Every step releases a noisy sum."""
        return True

    def prepare(self, setting: Setting) -> PreparedNetwork:
        """Checks that the module can be trained privately."""
        spec, plan = self.spec, self.plan
        if setting.team.size != 1:
            raise InvalidParameter("runtime.processes", "1 for a caller's own module", setting.team.size)
        # The engine asks several inputs, and lazy rows, only for what they have.
        features, targets = cast("Tensor", self.features), cast("Tensor", self.targets)
        members = None
        if self.users is not None:
            assert spec.records_per_user is not None  # the plan is for users
            members = members_of(np.unique(np.asarray(self.users), return_inverse=True)[1], spec.records_per_user).to(setting.device)
        problem = Problem(self.module, self.losses, features, targets, members)
        clipped = ClippedGradients(
            problem, plan.clipping, setting.runtime.microbatch_size, plan.projection, plan.sampling.expected_batch_size
        )
        setting.runtime.check_probe(keeps_its_bits=clipped.settle())
        layout = ParameterLayout.of(self.module)
        none = torch.zeros(0, device=setting.device)
        loaded = LoadedNetwork(nn.Sequential(), self.module, layout, features, targets, HeldOutRecords(self.module, layout, none, none))
        site = Site(torch.arange(problem.units, device=setting.device), randomness_of(spec.seed, 0, setting.team))
        content = partial(_model, self.module, layout, spec)
        return PreparedNetwork(spec, plan, setting, loaded, clipped, None, (site,), self.optimization, content)


def _model(module: nn.Module, layout: ParameterLayout, spec: OwnModule, state: TrainingState) -> Model:
    described = {"format": "zetadp model 2", "algorithm": spec.algorithm, "module": spec.module.model_dump(mode="json")}
    return Model(contents(module, layout.unflatten(state.parameters)), json.dumps(described, sort_keys=True))
