r"""Runs of the printed algorithms and, on request, a demonstration of what one of their updates gives away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from zetadp.trainer.data import data_set_facts
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.autoencoders.batches import Batches
from zetadp.trainer.engine.autoencoders.demonstration import demonstrated
from zetadp.trainer.engine.autoencoders.descent import descended
from zetadp.trainer.engine.autoencoders.preparation import AutoencoderAlgorithm, Descent, Prepared
from zetadp.trainer.engine.autoencoders.printed import PrintedSlopes, printed_gradient, sensed
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.noise.randomness import randomness_of, stream_of
from zetadp.trainer.engine.noise.torch_source import GENERATOR, TorchSource
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import UnprotectedPlan
from zetadp.trainer.specs.printed import PrintedTraining
from zetadp.trainer.specs.report import RunReport, TrainingEvent

DEMONSTRATION = "artifacts/demonstration.json"


def train_printed(
    spec: PrintedTraining,
    plan: UnprotectedPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    slopes_at: Callable[[float], PrintedSlopes],
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    """Runs ``plan`` with the algorithm's noisy derivatives at the spec's epsilon. Raises as ``run``."""
    if spec.recovery_demonstration:
        _demonstrate(spec, workdir, slopes_at)
    algorithm = AutoencoderAlgorithm(spec, plan, partial(_descent, spec, slopes_at(spec.epsilon)))
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)


def _descent(spec: PrintedTraining, slopes_of: PrintedSlopes, prepared: Prepared) -> Descent:
    network, rows = prepared.network, prepared.rows
    batches = Batches((rows.features, network.masks_of(rows.places)), spec.batch_size)
    randomness = randomness_of(spec.seed, 0, prepared.setting.team)

    def step(state: TrainingState) -> TrainingState:
        clean, masks = batches.after(state.step)
        source = randomness.noise_source(state.step + 1, state.parameters)
        seen = sensed(network, state.parameters, clean, masks, spec.environmental_noise_std, source)
        gradient = printed_gradient(network, state.parameters, seen, slopes_of(seen, clean, source))
        return descended(spec.optimizer, state, gradient, spec.steps)

    return Descent(step, randomness.origin, GENERATOR)


def _demonstrate(spec: PrintedTraining, workdir: Path, slopes_at: Callable[[float], PrintedSlopes]) -> None:
    """Runs before anything is trained, and uses the spec's sizes alone."""
    shape = spec.shape(data_set_facts(spec.data))  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)
    source = TorchSource(stream_of(spec, "demonstration"), torch.device("cpu"))
    shown = demonstrated(spec.algorithm_name(), type(spec).ERRATA, slopes_at, shape, spec.stabilisation, source)
    write_atomically(workdir / DEMONSTRATION, shown.model_dump_json(indent=2).encode())
