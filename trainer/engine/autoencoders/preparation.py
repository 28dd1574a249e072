r"""What all methods of training an autoencoder share. They differ in the step, and in what is released before the first step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch

from zetadp.mechanisms.sampling.source import RandomOrigin
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine.autoencoders.network import Autoencoder, initial_parameters
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.engine.autoencoders.scores import HeldOutRows
from zetadp.trainer.engine.gradients.sample_watch import SampleWatch
from zetadp.trainer.engine.loop import NO_BOUND, TrainingState
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.randomness import stream_of
from zetadp.trainer.engine.optimizers import initial_state
from zetadp.trainer.engine.publisher import Evaluation
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting
from zetadp.trainer.specs.autoencoder import AutoencoderDescent, AutoencoderSpec
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.report import MetricValues


@final
@dataclass(frozen=True)
class Prepared:
    r"""The input of a method's ``descent``.

    Attributes:
      rows: the private training rows, as they are.
    """

    setting: Setting
    network: Autoencoder
    rows: TrainingRows


class Descent(NamedTuple):
    r"""The result of a method's ``descent``.

    Attributes:
      step: gives the state after one more step.
      origin: where the noise and samples come from.
      generator: how they were computed from their keys, in words.
      watch: has seen, or will see, the noise of this attempt; None where noise isn't added to numbers.
      samples: the same of its samples; None where steps don't sample units by chance.
    """

    step: Callable[[TrainingState], TrainingState]
    origin: RandomOrigin
    generator: str
    watch: NoiseWatch | None = None
    samples: SampleWatch | None = None


@final
@dataclass(frozen=True)
class AutoencoderAlgorithm:
    r"""See ``Algorithm``.

    Attributes:
      descent: called once in every attempt, before anything is published: it releases what training will see, or loads what an earlier
        attempt released.
    """

    spec: AutoencoderSpec
    plan: Plan
    descent: Callable[[Prepared], Descent]

    @property
    def steps_release(self) -> bool:
        """They do in some methods."""
        return True

    def prepare(self, setting: Setting) -> PreparedAutoencoder:
        """Reads the rows."""
        network = Autoencoder.of(self.spec.shape(setting.facts), setting.device)
        data = self.spec.data.read()
        rows = TrainingRows.of(self.spec, setting.facts, data, setting.device)
        held_out = HeldOutRows(network, torch.from_numpy(np.ascontiguousarray(data.test_features)).to(setting.device))
        return PreparedAutoencoder(self, Prepared(setting, network, rows), held_out)


@final
class PreparedAutoencoder(PreparedRun):
    """The network and, from ``begin`` on, its method's descent."""

    def __init__(self, algorithm: AutoencoderAlgorithm, prepared: Prepared, held_out: HeldOutRows) -> None:
        self._algorithm, self._prepared, self._held_out = algorithm, prepared, held_out
        self._descent: Descent | None = None

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(self._algorithm.spec.held_out, self._measured)

    def initial_state(self) -> TrainingState:
        spec, plan, network = self._algorithm.spec, self._algorithm.plan, self._prepared.network
        device = network.masks.device
        if not isinstance(spec, AutoencoderDescent):
            # There is no descent and so no starting point: the method's own step computes the weights.
            return TrainingState(0, torch.zeros(network.shape.coordinates, device=device), {}, NO_BOUND)
        parameters = initial_parameters(spec, network.shape, stream_of(spec, "model initialisation")).to(device)
        bound = NO_BOUND if plan.initial_bound is None else plan.initial_bound
        return TrainingState(0, parameters, initial_state(spec.optimizer, parameters), bound)

    def begin(self, start: TrainingState) -> None:
        del start
        self._descent = self._algorithm.descent(self._prepared)

    def step(self, state: TrainingState) -> TrainingState:
        return self._begun.step(state)

    def model(self, state: TrainingState) -> Model:
        tensors = self._prepared.network.split(state.parameters)
        return Model(tensors, _architecture(self._algorithm.spec, self._prepared.setting.facts))

    def finish(self, state: TrainingState) -> Ending:
        del state
        begun, setting = self._begun, self._prepared.setting
        noise_test = None if begun.watch is None else begun.watch.findings(setting.team, setting.device)
        sample_test = None if begun.samples is None else begun.samples.findings(setting.team, setting.device)
        return Ending(begun.origin, begun.generator, self._prepared.network.shape.coordinates, noise_test, sample_test)

    @property
    def _begun(self) -> Descent:
        assert self._descent is not None  # the run begins before its first step
        return self._descent

    def _measured(self, state: TrainingState) -> MetricValues:
        return self._held_out.metrics(state.parameters, state.step)


def _architecture(spec: AutoencoderSpec, facts: DataSetFacts) -> str:
    """What a reader of the model file needs to build the network again, as JSON."""
    return json.dumps(
        {
            "format": "zetadp model 2",
            "algorithm": spec.algorithm_name(),
            "model": {"kind": "distributed_autoencoder", **spec.shape(facts).model_dump(mode="json")},
            "shape": list(facts.shape),
            "is_complex": facts.is_complex,
            "task": facts.task,
            "classes": facts.classes,
            "layout": "float32; encoders (m, features, hidden), decoder (m, hidden, features); "
            "output sigmoid(sigmoid(x encoders[j]) decoder[j]) for a row x of encoder j",
        },
        sort_keys=True,
    )
