r"""Training of a complex-feature obfuscation spec: joint training, then the attacks, then the noisy release where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast, final, get_args

import numpy as np
import torch
from torch import Generator, Tensor

from mechanisms.errors import InvalidParameter
from mechanisms.sampling.source import RandomOrigin
from trainer.attacks import AttackFindings, AttackName, CurvePoint
from trainer.audit import NoiseFindings
from trainer.data import DataSetFacts, data_set_facts
from trainer.engine import (
    CHECKPOINT,
    MODEL,
    Alone,
    Checkpoint,
    Evaluation,
    Publisher,
    TrainingState,
    hardware,
    load_checkpoint,
    prepare_torch,
    save_checkpoint,
    versions,
    write_tensors,
)
from trainer.engine.checkpoint import discard_unfinished, write_atomically
from trainer.engine.metrics import classification_metrics
from trainer.engine.requests import request_digest
from trainer.errors import TrainingDiverged, TrainingStopped
from trainer.obfuscation.attacks import curve_figures, run_attacks
from trainer.obfuscation.encoding import generator_of
from trainer.obfuscation.methods import NoisyRotation
from trainer.obfuscation.networks import parameter_count
from trainer.obfuscation.plots import CURVE_FILE, curve_plot
from trainer.obfuscation.preparation import Prepared, stream_of
from trainer.obfuscation.release import check_size, release_encodings
from trainer.obfuscation.spec import Obfuscation
from trainer.obfuscation.target import Ground
from trainer.plans import AnyPlan, FeatureReleasePlan
from trainer.report import MetricValues, RunReport, Stage, Started, TrainingEvent
from trainer.spec import RuntimeSpec

GENERATOR = "batches and keys from AES-256 in counter mode; angles, counterparts and noise in training and attacks from torch's generators"
RELEASE_GENERATOR = "noise and angles of the encodings from AES-256 in counter mode; torch's generators in training and attacks"


def train(
    spec: Obfuscation,
    plan: AnyPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model.

    Raises:
      InvalidParameter: plan and spec disagree, network or data can't be trained, several processes or half precision were asked for, or
        the device isn't there.
      CheckpointRefused: the checkpoint belongs to something else.
      TrainingDiverged: something stopped being finite.
      TrainingStopped: on ``should_stop``, with the state in the checkpoint.
    """
    facts = data_set_facts(spec.data)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    _check(spec, plan, runtime, facts)
    device = prepare_torch(runtime)
    halt = _Halt(should_stop)
    digest, path = request_digest(spec, plan, facts), workdir / CHECKPOINT
    discard_unfinished(path)
    earlier = load_checkpoint(path, digest, device) if path.exists() else None
    halt.step = 0 if earlier is None else earlier.state.step
    prepared = Prepared.of(spec, plan, facts, device, halt.tick)
    if isinstance(plan, FeatureReleasePlan):
        check_size(plan, int(np.prod(prepared.network.divided.feature)))
    start = _starting_point(path, digest, prepared, earlier)
    publisher = Publisher(
        plan=plan,
        checkpoint_seconds=runtime.checkpoint_seconds,
        earlier=start,
        save=partial(save_checkpoint, path, digest=digest),
        evaluation=Evaluation(spec.held_out, partial(_measured, prepared)),
        report=report,
        should_stop=should_stop,
    )
    report(Started(resumed_from_step=start.state.step))
    publisher.start(start.state)
    state = _trained(prepared, start.state, publisher, halt)
    metrics = publisher.final_metrics(state)
    prepared.trained.network_changed()
    named = {name: value for source in (prepared.network.named_parameters(), prepared.network.named_buffers()) for name, value in source}
    write_tensors(workdir / MODEL, named, _architecture(spec, facts, prepared.classes))
    attacks = None if spec.attacks is None else _attacked(prepared, report, halt)
    if attacks is not None and attacks.curve:
        write_atomically(workdir / "artifacts" / CURVE_FILE, curve_plot(attacks.curve))
    if isinstance(plan, FeatureReleasePlan):
        report(Stage(doing=f"encoding {plan.units} records"))
    noise_test = _released(workdir, digest, plan, prepared, halt) if isinstance(plan, FeatureReleasePlan) else None
    return RunReport(
        steps_released=state.step,
        event=plan.event,
        noise_std=plan.noise_std,
        random_origin=RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED,
        generator=RELEASE_GENERATOR if isinstance(plan, FeatureReleasePlan) else GENERATOR,
        resumptions=start.resumptions,
        held_out=publisher.held_out,
        metrics=metrics,
        test_records=facts.test_records,
        training_records=facts.training_records,
        training_units=plan.units,
        checkpoints_released=publisher.checkpoints,
        parameters=parameter_count(prepared.network),
        versions=versions(),
        hardware=hardware(device),
        training_seconds=publisher.seconds,
        noise_test=noise_test,
        attacks=attacks,
    )


@final
class _Halt:
    """Asks between pieces of work whether to stop. ``step``: the last one that is in the checkpoint or can be put there."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop
        self.step = 0

    def tick(self) -> None:
        """Raises TrainingStopped where a stop was asked for."""
        if self._should_stop():
            raise TrainingStopped(self.step)


def _check(spec: Obfuscation, plan: AnyPlan, runtime: RuntimeSpec, facts: DataSetFacts) -> None:
    if plan != spec.replanned(facts, plan):
        raise InvalidParameter("plan", "the one that the spec comes to", type(plan).__name__)
    if runtime.processes != 1:
        raise InvalidParameter("runtime.processes", "1 for complex-feature obfuscation", runtime.processes)
    if runtime.precision != "float32":
        raise InvalidParameter("runtime.precision", "'float32' for complex-feature obfuscation", runtime.precision)


def _starting_point(path: Path, digest: str, prepared: Prepared, earlier: Checkpoint | None) -> Checkpoint:
    if earlier is None:
        return Checkpoint(prepared.training.begin(), resumptions=0, written=0, seconds=0.0, evaluated=None)
    prepared.training.load(earlier.state)
    resumed = Checkpoint(earlier.state, earlier.resumptions + 1, earlier.written, earlier.seconds, None)
    save_checkpoint(path, resumed, digest)  # so that an attempt which dies before its own first checkpoint is counted too
    return resumed


def _trained(prepared: Prepared, state: TrainingState, publisher: Publisher, halt: _Halt) -> TrainingState:
    """From ``state`` to the last step."""
    spec, records = prepared.spec, len(prepared.kinds)
    in_epoch = records // spec.batch_size
    order, ordered = torch.arange(records), -1
    while state.step < spec.steps:
        epoch, place = divmod(state.step, in_epoch)
        if epoch != ordered:
            # What doesn't fill a batch is left out, another part of the records in every epoch.
            keys = stream_of(spec, f"epoch {epoch}").uniform(records)
            order, ordered = torch.from_numpy(np.argsort(keys, kind="stable")).to(prepared.kinds.device), epoch
        batch = prepared.batch(order[place * spec.batch_size : (place + 1) * spec.batch_size])
        try:
            following = prepared.training.step(state, batch, stream_of(spec, f"step {state.step + 1}"))
        except TrainingStopped:
            # The step is as if never begun: norms may have seen its batch already.
            prepared.training.load(state)
            publisher.start(state)
            continue
        state = following
        halt.step = state.step
        publisher.after_step(state)
    return state


def _measured(prepared: Prepared, state: TrainingState) -> MetricValues:
    """On the public held-out records, of whoever has the key; the networks are in ``state`` when this is asked."""
    assert prepared.victims is not None  # they are the held-out records where those are public
    generator = _generator(prepared, f"evaluation after step {state.step}")
    prepared.trained.network_changed()
    logits = prepared.trained.answers(prepared.victims.images, generator)
    if not bool(logits.isfinite().all()):
        raise TrainingDiverged(state.step)
    return cast("MetricValues", classification_metrics(logits.cpu().numpy(), prepared.victims.labels.cpu().numpy()))


def _generator(prepared: Prepared, purpose: str) -> Generator:
    return generator_of(stream_of(prepared.spec, purpose), prepared.kinds.device)


def _attacked(prepared: Prepared, report: Callable[[TrainingEvent], None], halt: _Halt) -> AttackFindings:
    """The attacks on the features as they are sent, and at the noises of the curve, all against the network as it was trained."""
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


def _released(workdir: Path, digest: str, plan: FeatureReleasePlan, prepared: Prepared, halt: _Halt) -> NoiseFindings:
    assert prepared.protected is not None  # the method protects the held-out records
    generator = _generator(prepared, "counterparts of the encodings")

    def counterparts(count: int) -> Tensor:
        return prepared.trained.public_counterparts(count, generator)

    watch = release_encodings(
        workdir,
        digest,
        plan,
        prepared.protected.images,
        prepared.trained.unclipped,
        counterparts,
        isinstance(prepared.spec.method, NoisyRotation) and prepared.spec.method.noisy_counterpart,
        partial(stream_of, prepared.spec),
        halt.tick,
    )
    return watch.findings(Alone(), prepared.kinds.device)


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
