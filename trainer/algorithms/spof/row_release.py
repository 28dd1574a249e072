r"""SPOF in its sound form: the rows are released once, and everything after that sees only what was released."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from zetadp.mechanisms import DuchiLinf
from zetadp.trainer.engine import NoiseWatch, TorchSource
from zetadp.trainer.engine.autoencoders import SLOPES, Descent, Prepared, RowDescent, denoised, released_once
from zetadp.trainer.engine.noise.randomness import origin_of, stream_of, write_down
from zetadp.trainer.engine.noise.run_key import ONCE
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.plans import RecordReleasePlan

GENERATOR = "AES-256-CTR"


def descent_on_released_rows(spec: Spof, plan: RecordReleasePlan, prepared: Prepared) -> Descent:
    """Releases the rows, or finds those of an earlier attempt. Raises CheckpointRefused as ``released_once``."""
    # The only place that sees the rows as they are; the released ones are training's data from here on.
    watch = None if isinstance(plan.mechanism, DuchiLinf) else NoiseWatch(plan.mechanism)
    released = released_once(prepared.setting, partial(release, spec, plan, prepared, watch))
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
    return Descent(descent.step, origin_of(spec), GENERATOR, watch)


def release(spec: Spof, plan: RecordReleasePlan, prepared: Prepared, watch: NoiseWatch | None = None) -> Tensor:
    """Every row through the plan's mechanism, once, (rows, n), float64: drawn on the processor."""
    rows = prepared.rows.features.to("cpu", torch.float64)
    source = TorchSource(stream_of(spec, "release of the rows", rows), rows.device)
    noisy = plan.mechanism.release(rows, source)
    if watch is not None:
        watch.see(rows, noisy)
    write_down(ONCE, [noisy])
    return noisy.to(prepared.setting.device)
