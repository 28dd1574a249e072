r"""Training of a SPOF spec: the rows are released once, and everything after that sees only what was released."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mechanisms import DuchiLinf
from mechanisms.errors import InvalidParameter
from mechanisms.sampling.source import RandomOrigin
from trainer.engine import NoiseWatch, TorchSource
from trainer.engine.autoencoders import (
    SLOPES,
    AutoencoderRun,
    Descent,
    Prepared,
    RowDescent,
    denoised,
    released_once,
    run_autoencoder,
    stream_of,
)
from trainer.plans import AnyPlan, RecordReleasePlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec
from trainer.spof.spec import Spof

GENERATOR = "AES-256-CTR"


def train(
    spec: Spof,
    plan: AnyPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run_autoencoder``."""
    run = AutoencoderRun(spec, plan, runtime, workdir, report, should_stop)
    return run_autoencoder(run, partial(_begin, run, spec, plan))


def _begin(run: AutoencoderRun, spec: Spof, plan: AnyPlan, prepared: Prepared) -> Descent:
    if not isinstance(plan, RecordReleasePlan):
        raise InvalidParameter("plan", "one release of each record", type(plan).__name__)
    # The only place that sees the rows as they are; the released ones are training's data from here on.
    watch = None if isinstance(plan.mechanism, DuchiLinf) else NoiseWatch(plan.mechanism)
    released = released_once(run.workdir, prepared, partial(release, spec, plan, prepared, watch))
    rows = denoised(released, plan.mechanism, spec.method.denoising).float()
    descent = RowDescent(
        network=prepared.network,
        inputs=rows,
        targets=rows,
        places=prepared.rows.places,
        slopes_of=SLOPES[spec.loss],
        optimizer=spec.optimizer,
        batch_size=spec.batch_size,
        steps=plan.steps,
    )
    origin = RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED
    return Descent(descent.step, origin, GENERATOR, watch)


def release(spec: Spof, plan: RecordReleasePlan, prepared: Prepared, watch: NoiseWatch | None = None) -> Tensor:
    """Every row through the plan's mechanism, once, (rows, n), float64: drawn on the processor."""
    rows = prepared.rows.features.to("cpu", torch.float64)
    source = TorchSource(stream_of(spec, "release of the rows"), rows.device)
    noisy = plan.mechanism.release(rows, source)
    if watch is not None:
        watch.see(rows, noisy)
    return noisy.to(prepared.device)
