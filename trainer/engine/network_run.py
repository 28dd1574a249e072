r"""Private training of a network by noisy gradients, as an algorithm of ``run``. Its forms differ in where the units are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor, nn

from zetadp import accountants
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSet, DataSetOnDisk
from zetadp.trainer.data.splits import Keys, record_keys
from zetadp.trainer.engine.gradients.augmented import with_variants
from zetadp.trainer.engine.gradients.canaries import Canaries, with_canaries
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.contributions import check_contributions
from zetadp.trainer.engine.gradients.marks import Marks
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.loaded_network import LoadedNetwork, records_of
from zetadp.trainer.engine.loop import PrivateLoop, Site, TrainingState
from zetadp.trainer.engine.membership import groups_of, members_of
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.prefetch import NoiseAhead
from zetadp.trainer.engine.noise.randomness import Randomness, randomness_of, stream_of, write_down
from zetadp.trainer.engine.noise.shared import SharedNoise
from zetadp.trainer.engine.noise.torch_source import GENERATOR
from zetadp.trainer.engine.optimizers import initial_state, update
from zetadp.trainer.engine.publisher import Evaluation
from zetadp.trainer.engine.requests import architecture
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.layers.flat_parameters import forget_values, model_tensors
from zetadp.trainer.models import losses_for
from zetadp.trainer.specs.descent import AnyOptimizer, ExponentialAveraging
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.findings.runs import findings_of
from zetadp.trainer.specs.network_training import NetworkTraining, PrivateAccuracy, PublicHeldOut, SampledTraining
from zetadp.trainer.specs.report import MetricValues
from zetadp.trainer.specs.sampling import InTurns

Places = Callable[[int, Callable[[], Keys]], Sequence[Tensor]]
"""The number of units, and a function that gives their keys -> the units at each site."""


@final
@dataclass(frozen=True)
class NoisyGradients:
    r"""See ``Algorithm``.

    Attributes:
      places: where the units are; importable by name, since it is sent to every process of a team.
      randomness: of the site with this number, from the spec's seed; importable likewise.
    """

    spec: NetworkTraining
    plan: ExecutionPlan
    places: Places
    randomness: Callable[[int | None, int, Team], Randomness] = randomness_of

    @property
    def steps_release(self) -> bool:
        """Every step releases a noisy sum at every site."""
        return True

    def prepare(self, setting: Setting) -> PreparedNetwork:
        """Reads the data, builds the network, and checks that it can be trained privately."""
        spec, plan, facts, device = self.spec, self.plan, setting.facts, setting.device
        data = records_of(spec.data, setting)
        loaded = LoadedNetwork.of(spec, spec.model, data, setting, keeps_records=spec.augmentation is not None)
        members = None
        if spec.protects_users(facts):
            assert data.training_users is not None  # the facts name a user unit
            assert spec.records_per_user is not None  # checked by the spec
            members = members_of(data.training_users, spec.records_per_user).to(device)
        problem = Problem(loaded.network, losses_for(facts), loaded.features, loaded.targets, members)
        if spec.augmentation is not None:
            problem = with_variants(problem, spec.augmentation, loaded.front)
        keys = partial(_keys, data, None if members is None else data.training_users)
        places, groups = self.places(problem.units, keys), groups_of(plan.sampling, keys)
        first = problem.units
        if spec.audit is not None and spec.audit.kind == "canaries":
            problem = with_canaries(problem, spec.audit.canaries, plan.clipping.bound, facts.classes)
        share = -(-plan.sampling.expected_batch_size // setting.team.size)
        clipped = ClippedGradients(problem, plan.clipping, setting.runtime.microbatch_size, plan.projection, share)
        setting.runtime.check_probe(keeps_its_bits=clipped.settle())
        auditing: Canaries | Marks | None = None
        if spec.audit is not None:
            by_records = spec.audit.kind == "canaries"
            auditing = Canaries(problem, clipped, first, facts.classes) if by_records else Marks(plan, first, spec.audit.canaries)
        if auditing is not None and isinstance(plan.sampling, InTurns):
            assert groups is not None  # of that sampling
            # Made-up units take turns too; nobody else's group depends on them.
            groups = torch.cat((groups, torch.arange(auditing.count) % plan.sampling.groups))
        groups = None if groups is None else groups.to(device)
        sites = tuple(
            Site(units.to(device), self.randomness(spec.seed, number, setting.team), groups) for number, units in enumerate(places)
        )
        content = partial(_model, loaded, architecture(spec, spec.model, facts))
        return PreparedNetwork(spec, plan, setting, loaded, clipped, auditing, sites, Descent.of(spec, plan), content, loaded.network)


def _keys(data: DataSet | DataSetOnDisk, users: Keys | None) -> Keys:
    """The units' keys, in the units' order: that of the users' keys, or that of the records where records are the units."""
    if users is not None:
        return np.unique(users)
    if isinstance(data, DataSetOnDisk):
        return np.concatenate([record_keys(*some) for some in data.training.pieces()])
    return record_keys(data.training_features, data.training_targets)


class Optimization(Protocol):
    """How a released gradient changes the parameters: post-processing."""

    def initial(self, parameters: Tensor, /) -> dict[str, Tensor]:
        """The state before the first step."""
        ...

    def updated(self, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
        """New parameters and state after ``step``, counted from 1; both depend on the arguments alone, so that a run can be resumed.

        The gradient may be overwritten.
        """
        ...


AVERAGE = "average"
"""In an optimizer's state: the parameters of the model that comes out, where these aren't the last step's."""


@final
@dataclass(frozen=True)
class Descent:
    """One of our own optimizers, for a run of so many steps; ``noise_std``: on each coordinate of the released gradient."""

    optimizer: AnyOptimizer
    steps: int
    noise_std: float
    averaging: ExponentialAveraging | None

    @staticmethod
    def of(spec: NetworkTraining, plan: ExecutionPlan) -> Descent:
        # Of the mean over sites of sums over a public constant: each site adds its whole noise, or a share of it.
        correlated, nodes = 1.0 if plan.strategy is None else plan.strategy.gradient_noise(plan.steps), plan.sampling.nodes
        shares = 1 if plan.aggregation is None else plan.aggregation.honest(nodes)
        noise_std = correlated * plan.noise_std / (plan.sampling.expected_batch_size * (nodes * shares) ** 0.5)
        return Descent(spec.descent, plan.steps, noise_std, spec.averaging)

    def initial(self, parameters: Tensor, /) -> dict[str, Tensor]:
        averaged = {} if self.averaging is None else {AVERAGE: parameters.clone()}
        return initial_state(self.optimizer, parameters) | averaged

    def updated(self, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
        into = gradient if gradient.dtype == parameters.dtype else None
        moved, own = update(self.optimizer, state, parameters, gradient, step, self.steps, self.noise_std, into)
        if self.averaging is not None:
            own[AVERAGE] = torch.lerp(moved, state[AVERAGE], self.averaging.kept(step))
        return moved, own


def _model(loaded: LoadedNetwork, described: str, state: TrainingState) -> Model:
    return Model(model_tensors(loaded.layout, state.parameters, loaded.front, loaded.network), described)


@final
class PreparedNetwork(PreparedRun):
    r"""The network, the clipping of its gradients, and the loop over the sites.

    Args:
      clipped: sums over the units of ``loaded``'s records, and canaries where there are any.
      auditing: the made-up units that audit the run.
      optimization: makes use of the released gradients.
      content: of the model file.
      forgetful: the network, where nobody else has it: it forgets its initial parameters before the first step, which begins with a vector
        of them.
    """

    def __init__(
        self,
        spec: SampledTraining,
        plan: ExecutionPlan,
        setting: Setting,
        loaded: LoadedNetwork,
        clipped: ClippedGradients,
        auditing: Canaries | Marks | None,
        sites: Sequence[Site],
        optimization: Optimization,
        content: Callable[[TrainingState], Model],
        forgetful: nn.Module | None = None,
    ) -> None:
        self._optimization, self._content, self._forgetful = optimization, content, forgetful
        self._spec, self._plan, self._setting, self._loaded = spec, plan, setting, loaded
        self._clipped, self._auditing = clipped, auditing
        self._origin = sites[0].randomness.origin
        shares = _shares(plan, loaded, setting.team)
        self._watch = NoiseWatch(plan.mechanism if shares is None else shares.share)
        loop = PrivateLoop(
            clipped=clipped,
            layout=loaded.layout,
            plan=plan,
            sites=sites,
            optimizer=optimization.updated,
            team=setting.team,
            draws_masks=clipped.is_random,
            spectra=clipped.spectra,
            watch=self._watch,
            canaries=auditing if isinstance(auditing, Canaries) else None,
            marks=auditing if isinstance(auditing, Marks) else None,
            shares=shares,
        )
        loop.check_sites()
        loop.check_noise()
        # A single site's next noise is drawn during its step. For a federation this would hold every node's noise at once.
        is_ahead = len(sites) == 1 and not sites[0].randomness.binds_noise and not loop.adds_what_it_draws()
        self._ahead = NoiseAhead(sites[0].randomness, plan.steps) if is_ahead else None
        self._loop = loop if self._ahead is None else replace(loop, sites=(replace(sites[0], randomness=self._ahead),))

    @property
    def evaluation(self) -> Evaluation:
        planned = self._plan.evaluation
        match self._spec.evaluation:
            case PublicHeldOut():
                classifies = self._setting.facts.task == "classification"

                def measured(state: TrainingState) -> MetricValues:
                    return self._loaded.held_out.metrics(self._outcome(state), classifies=classifies)

                return Evaluation("public", measured)
            case PrivateAccuracy():
                assert planned is not None  # the run compared plan and spec

                def release(state: TrainingState) -> MetricValues:
                    stream = partial(stream_of, self._spec, f"evaluation after step {state.step}")
                    found = self._loaded.held_out.noisy_accuracy(self._outcome(state), planned, stream)
                    write_down(state.step, [torch.tensor(list(found.values()), dtype=torch.float64)])
                    return found

                return Evaluation("private", release)
            case _:
                return Evaluation("none", _unasked)

    def initial_state(self) -> TrainingState:
        team, device = self._setting.team, self._setting.device
        parameters = self._loaded.layout.flatten(dict(self._loaded.network.named_parameters())).to(device)
        # Every process draws initial weights; all start from those of the first process.
        return self.state_from(team.sum(parameters if team.rank == 0 else torch.zeros_like(parameters)))

    def state_from(self, parameters: Tensor) -> TrainingState:
        """Before the first step, with these parameters, (coordinates,)."""
        canaries = {} if self._auditing is None else self._auditing.begin(stream_of(self._spec, "coins of the canaries"))
        return TrainingState(0, parameters, self._optimization.initial(parameters), self._plan.clipping.bound, canaries)

    def begin(self, start: TrainingState) -> None:
        check_contributions(self._clipped, self._plan, start.bound)
        if self._forgetful is not None:
            forget_values(self._forgetful)

    def working(self) -> AbstractContextManager[object]:
        return nullcontext() if self._ahead is None else self._ahead

    def step(self, state: TrainingState) -> TrainingState:
        return self._loop.step(state)

    @property
    def loop(self) -> PrivateLoop:
        """The parts of a step, for sites that take them in processes of their own."""
        return self._loop

    def model(self, state: TrainingState) -> Model:
        return self._content(self._outcome(state))

    def _outcome(self, state: TrainingState) -> TrainingState:
        return replace(state, parameters=state.optimizer.get(AVERAGE, state.parameters))

    def finish(self, state: TrainingState) -> Ending:
        plan, audit = self._plan, None
        noise_test = self._watch.findings(self._setting.team, self._setting.device)
        if self._auditing is not None:
            scores, claim = self._auditing.scores(state.canaries), accountants.profile(plan.event)
            audit = findings_of(self._auditing.KIND, scores, claim, plan.delta)
        sample_test = self._loop.samples.findings(self._setting.team, self._setting.device)
        return Ending(self._origin, GENERATOR, self._loaded.layout.real_parameters, noise_test, sample_test, audit)


def _shares(plan: ExecutionPlan, loaded: LoadedNetwork, team: Team) -> SharedNoise | None:
    if plan.aggregation is None:
        return None
    if team.size > 1:
        raise InvalidParameter("runtime.processes", "1 with secure aggregation", team.size)
    return SharedNoise(plan, releasing.numbers(plan.clipping, loaded.layout.coordinates))


def _unasked(_state: TrainingState) -> MetricValues:
    raise AssertionError("nothing about held-out records leaves this run")
