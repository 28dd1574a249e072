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
from zetadp.trainer.algorithms.own_module.evaluation import check_evaluation
from zetadp.trainer.algorithms.own_module.preparation import contents
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.gradients.canaries import Canaries, with_canaries
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.inputs import Inputs
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.marks import Marks
from zetadp.trainer.engine.gradients.probe import made_up_features, mode
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.loaded_network import LoadedNetwork
from zetadp.trainer.engine.loop import Site, TrainingState
from zetadp.trainer.engine.membership import members_of
from zetadp.trainer.engine.network_run import Optimization, PreparedNetwork
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
      held: features and targets to measure on; empty where nothing is.
    """

    spec: OwnModule
    plan: ExecutionPlan
    module: nn.Module
    losses: Callable[[Tensor, Tensor], Tensor]
    features: Rows
    targets: Rows
    users: Sequence[object] | None
    held: tuple[Tensor, Tensor]
    optimization: Optimization

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
        by_records = spec.audit is not None and spec.audit.kind == "canaries"
        first, classes = problem.units, _classes(problem) if by_records else None
        if spec.audit is not None and by_records:
            problem = _with_canaries(problem, spec.audit.canaries, plan.clipping.bound, classes)
        clipped = ClippedGradients(
            problem, plan.clipping, setting.runtime.microbatch_size, plan.projection, plan.sampling.expected_batch_size
        )
        setting.runtime.check_probe(keeps_its_bits=clipped.settle())
        layout = ParameterLayout.of(self.module)
        auditing: Canaries | Marks | None = None
        if spec.audit is not None:
            auditing = Canaries(problem, clipped, first, classes) if by_records else Marks(plan, first, spec.audit.canaries)
        held_out = HeldOutRecords(self.module, layout, *self.held)
        start = TrainingState(0, layout.flatten(dict(self.module.named_parameters())), {}, plan.clipping.bound)
        check_evaluation(held_out, start, spec.held_out, self.held[1])
        loaded = LoadedNetwork(nn.Sequential(), self.module, layout, features, targets, held_out)
        site = Site(torch.arange(first, device=setting.device), randomness_of(spec.seed, 0, setting.team))
        content = partial(_model, self.module, layout, spec)
        return PreparedNetwork(spec, plan, setting, loaded, clipped, auditing, (site,), self.optimization, content)


def _classes(problem: Problem) -> int | None:
    """Of a classification, by the module's outputs, which are public, and not by the labels."""
    if problem.targets.dtype != torch.int64 or problem.targets.dim() != 1:
        return None
    with torch.no_grad(), mode(problem.network, training=False):
        return problem.network(made_up_features(problem.features, 1)).shape[1]


def _with_canaries(problem: Problem, count: int, bound: float, classes: int | None) -> Problem:
    """Raises InvalidParameter where canaries can't be made up."""
    if not isinstance(problem.features, Tensor) or not isinstance(problem.targets, Tensor):
        expected = "None where a record has several inputs or is read when it is sampled: made-up ones are put behind tensors"
        raise InvalidParameter("canaries", expected, count)
    continuous = [rows.is_complex() or rows.is_floating_point() for rows in (problem.features, problem.targets)]
    if not continuous[0] or (classes is None and not continuous[1]):
        raise InvalidParameter("canaries", "None for features of whole numbers, and for targets of whole numbers that aren't labels", count)
    return with_canaries(problem, count, bound, classes)


def _model(module: nn.Module, layout: ParameterLayout, spec: OwnModule, state: TrainingState) -> Model:
    described = {"format": "zetadp model 2", "algorithm": spec.algorithm, "module": spec.module.model_dump(mode="json")}
    return Model(contents(module, layout.unflatten(state.parameters)), json.dumps(described, sort_keys=True))
