r"""Complex-feature obfuscation as an algorithm of ``run``: joint training, then the attacks, then the noisy release if there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast, final, get_args

import numpy as np
import torch
from torch import Generator, Tensor

from zetadp.trainer.algorithms.obfuscation.attacks import curve_figures, run_attacks
from zetadp.trainer.algorithms.obfuscation.encoding import generator_of
from zetadp.trainer.algorithms.obfuscation.networks import parameter_count
from zetadp.trainer.algorithms.obfuscation.plots import CURVE_FILE, curve_plot
from zetadp.trainer.algorithms.obfuscation.preparation import Prepared
from zetadp.trainer.algorithms.obfuscation.release import check_size, release_encodings
from zetadp.trainer.algorithms.obfuscation.target import Ground
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import Evaluation, TrainingState
from zetadp.trainer.engine.epochs import Epochs
from zetadp.trainer.engine.metrics import classification_metrics
from zetadp.trainer.engine.noise.randomness import origin_of, stream_of
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting
from zetadp.trainer.errors import TrainingDiverged, TrainingStopped
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.findings.attacks import AttackFindings, AttackName, CurvePoint
from zetadp.trainer.specs.findings.runs import NoiseFindings
from zetadp.trainer.specs.obfuscation.methods import NoisyRotation
from zetadp.trainer.specs.plans import FeatureReleasePlan, UnprotectedPlan
from zetadp.trainer.specs.report import MetricValues, Stage, TrainingEvent

GENERATOR = "batches and keys from AES-256 in counter mode; angles, counterparts and noise in training and attacks from torch's generators"
RELEASE_GENERATOR = "noise and angles of the encodings from AES-256 in counter mode; torch's generators in training and attacks"


@final
@dataclass(frozen=True)
class ObfuscationTraining:
    """See ``Algorithm``."""

    spec: Obfuscation
    plan: FeatureReleasePlan | UnprotectedPlan

    @property
    def steps_release(self) -> bool:
        """The steps use public records; the release comes after them."""
        return False

    def prepare(self, setting: Setting) -> PreparedObfuscation:
        """Reads the data and builds the networks. Raises TrainingStopped if a stop is requested meanwhile."""
        halt = Halt(setting.should_stop, setting.resumed_from or 0)
        prepared = Prepared.of(self.spec, self.plan, setting.facts, setting.device, halt.tick)
        released = self.plan if isinstance(self.plan, FeatureReleasePlan) else None
        if released is not None:
            check_size(released, int(np.prod(prepared.network.divided.feature)))
        return PreparedObfuscation(setting, prepared, released, halt)


@final
class Halt:
    """Checks between pieces of work whether to stop. ``step``: the last one that is in the checkpoint or can be put there."""

    def __init__(self, should_stop: Callable[[], bool], step: int) -> None:
        self._should_stop = should_stop
        self.step = step

    def tick(self) -> None:
        """Raises TrainingStopped if a stop was requested."""
        if self._should_stop():
            raise TrainingStopped(self.step)


@final
class PreparedObfuscation(PreparedRun):
    r"""The networks, and what is done with them.

    Args:
      released: the plan, if encodings of the protected records are released.
    """

    def __init__(self, setting: Setting, prepared: Prepared, released: FeatureReleasePlan | None, halt: Halt) -> None:
        self._setting, self._prepared, self._released_plan, self._halt = setting, prepared, released, halt
        rows = torch.arange(len(prepared.kinds), device=prepared.kinds.device)
        self._epochs = Epochs(rows, prepared.spec.batch_size, partial(stream_of, prepared.spec))

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(self._prepared.spec.held_out, self._measured)

    def initial_state(self) -> TrainingState:
        return self._prepared.training.begin()

    def begin(self, start: TrainingState) -> None:
        if self._setting.resumed_from is not None:
            self._prepared.training.load(start)

    def step(self, state: TrainingState) -> TrainingState:
        training = self._prepared.training
        batch = self._prepared.batch(self._epochs.after(state.step))
        try:
            following = training.step(state, batch, stream_of(self._prepared.spec, f"step {state.step + 1}"))
        except TrainingStopped:
            # Norms may have seen the batch already.
            training.load(state)
            raise
        self._halt.step = following.step
        return following

    def model(self, state: TrainingState) -> Model:
        del state  # the networks are in it
        network = self._prepared.network
        tensors = {name: value for source in (network.named_parameters(), network.named_buffers()) for name, value in source}
        return Model(tensors, _architecture(self._prepared.spec, self._setting.facts, self._prepared.classes))

    def finish(self, state: TrainingState) -> Ending:
        del state
        prepared, plan = self._prepared, self._released_plan
        prepared.trained.network_changed()
        attacks = None if prepared.spec.attacks is None else _attacked(prepared, self._setting.report, self._halt)
        if attacks is not None and attacks.curve:
            write_atomically(self._setting.workdir / "artifacts" / CURVE_FILE, curve_plot(attacks.curve))
        if plan is not None:
            self._setting.report(Stage(doing=f"encoding {plan.units} records"))
        noise_test = None if plan is None else self._released(plan)
        generator = GENERATOR if plan is None else RELEASE_GENERATOR
        return Ending(origin_of(prepared.spec), generator, parameter_count(prepared.network), noise_test, attacks=attacks)

    def _measured(self, state: TrainingState) -> MetricValues:
        """Metrics on the public held-out records for someone who has the key; the networks hold ``state`` when this is called."""
        prepared = self._prepared
        assert prepared.victims is not None  # they are the held-out records where those are public
        generator = _generator(prepared, f"evaluation after step {state.step}")
        prepared.trained.network_changed()
        logits = prepared.trained.answers(prepared.victims.images, generator)
        if not bool(logits.isfinite().all()):
            raise TrainingDiverged(state.step)
        return cast("MetricValues", classification_metrics(logits.cpu().numpy(), prepared.victims.labels.cpu().numpy()))

    def _released(self, plan: FeatureReleasePlan) -> NoiseFindings:
        prepared = self._prepared
        assert prepared.protected is not None  # the method protects the held-out records
        generator = _generator(prepared, "counterparts of the encodings")

        def counterparts(count: int) -> Tensor:
            return prepared.trained.public_counterparts(count, generator)

        watch = release_encodings(
            self._setting.workdir,
            self._setting.digest,
            plan,
            prepared.protected.images,
            prepared.trained.unclipped,
            counterparts,
            isinstance(prepared.spec.method, NoisyRotation) and prepared.spec.method.noisy_counterpart,
            partial(stream_of, prepared.spec),
            self._halt.tick,
        )
        return watch.findings(self._setting.team, self._setting.device)


def _generator(prepared: Prepared, purpose: str) -> Generator:
    return generator_of(stream_of(prepared.spec, purpose), prepared.kinds.device)


def _attacked(prepared: Prepared, report: Callable[[TrainingEvent], None], halt: Halt) -> AttackFindings:
    """The attacks on the features as sent, and at the noise levels of the curve, all against the trained network."""
    spec, victims = prepared.spec, prepared.victims
    assert spec.attacks is not None
    assert victims is not None  # checked by the spec
    ground = Ground(
        public_images=prepared.records.images,
        public_labels=prepared.records.labels,
        public_properties=prepared.records.properties,
        victim_images=victims.images,
        victim_labels=victims.labels,
        victim_properties=victims.properties,
        classes=prepared.classes,
        properties=prepared.properties,
    )

    def streams(at: str, purpose: str) -> Generator:
        if purpose in get_args(AttackName):
            report(Stage(doing=f"attack {purpose.replace('_', ' ')}, {at}"))
        return _generator(prepared, f"attack {at} {purpose}")

    turned = prepared.trained.turned
    sent = partial(streams, "as sent")
    found = run_attacks(prepared.trained, ground, spec.attacks, seed_stream=sent, turned=turned, tick=halt.tick)
    if not isinstance(spec.method, NoisyRotation) or not spec.curve:
        return found
    points: list[CurvePoint] = []
    for multiplier in spec.curve:
        std = multiplier * 2.0 * spec.method.clipping_norm
        noisier = prepared.trained.with_noise(std)
        at = partial(streams, f"at noise multiplier {multiplier!r}")
        figures = curve_figures(noisier, ground, spec.attacks, seed_stream=at, tick=halt.tick)
        points.append(CurvePoint(noise_multiplier=multiplier, std=std, figures=figures))
    return AttackFindings.model_validate(found.model_dump() | {"curve": tuple(point.model_dump() for point in points)})


def _architecture(spec: Obfuscation, facts: DataSetFacts, classes: int) -> str:
    """What a reader of the model file needs to build the network again, as JSON."""
    return json.dumps(
        {
            "format": "zetadp model 2",
            "algorithm": spec.algorithm_name(),
            "model": spec.network.model_dump(mode="json"),
            "method": spec.method.model_dump(mode="json"),
            "shape": list(facts.shape),
            "is_complex": facts.is_complex,
            "task": facts.task,
            "classes": classes,
            "layout": "float32; encoder, processing and decoder, with their norms' frozen statistics beside the weights",
        },
        sort_keys=True,
    )
