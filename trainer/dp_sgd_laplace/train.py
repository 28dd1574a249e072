r"""Training of a DP-SGD spec: the one loop, with an autoencoder's clipped sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mechanisms.errors import InvalidParameter
from trainer.dp_sgd_laplace.spec import DpSgdLaplace
from trainer.engine import Alone, NoiseWatch, PrivateLoop, Site, update
from trainer.engine.autoencoders import SLOPES, AutoencoderRun, ClippedRows, Descent, Prepared, layout_of, run_autoencoder
from trainer.engine.contributions import check_contributions
from trainer.engine.randomness import randomness_of
from trainer.engine.torch_source import GENERATOR
from trainer.plan import ExecutionPlan, L1Clipping
from trainer.plans import AnyPlan
from trainer.report import RunReport, TrainingEvent
from trainer.spec import RuntimeSpec


def train(
    spec: DpSgdLaplace,
    plan: AnyPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, from the checkpoint where there is one, and writes the model. Raises as ``run_autoencoder``."""
    return run_autoencoder(AutoencoderRun(spec, plan, runtime, workdir, report, should_stop), partial(_begin, spec, plan))


def _begin(spec: DpSgdLaplace, plan: AnyPlan, prepared: Prepared) -> Descent:
    if not isinstance(plan, ExecutionPlan):
        raise InvalidParameter("plan", "a noisy sum in every step", type(plan).__name__)
    loop = private_loop(spec, plan, prepared)
    return Descent(loop.step, loop.sites[0].randomness.origin, GENERATOR, loop.watch)


def private_loop(spec: DpSgdLaplace, plan: ExecutionPlan, prepared: Prepared) -> PrivateLoop:
    """The loop over all units at one place."""

    def optimizer(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        return update(spec.optimizer, state, parameters, gradient, step, plan.steps)

    norm = "l1" if isinstance(plan.clipping, L1Clipping) else "l2"
    team = Alone()
    clipped = ClippedRows(prepared.network, prepared.rows, SLOPES[spec.loss], norm, plan.sampling.expected_batch_size)
    prepared.runtime.check_probe(keeps_its_bits=clipped.settle())
    check_contributions(clipped, plan, plan.clipping.bound)
    return PrivateLoop(
        clipped=clipped,
        layout=layout_of(prepared.network),
        plan=plan,
        sites=(Site(torch.arange(prepared.rows.units, device=prepared.device), randomness_of(spec.seed, 0, team)),),
        optimizer=optimizer,
        team=team,
        watch=NoiseWatch(plan.mechanism),
    )
