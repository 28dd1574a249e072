r"""DP-SGD of a distributed autoencoder: the one loop, with an autoencoder's clipped sums."""

from __future__ import annotations

import torch
from torch import Tensor

from zetadp.trainer.engine import NoiseWatch, PrivateLoop, Site, update
from zetadp.trainer.engine.autoencoders import SLOPES, ClippedRows, Descent, Prepared, layout_of
from zetadp.trainer.engine.gradients.contributions import check_contributions
from zetadp.trainer.engine.noise.randomness import randomness_of
from zetadp.trainer.engine.noise.torch_source import GENERATOR
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.execution_plan import ExecutionPlan


def noisy_descent(spec: DpSgdLaplace, plan: ExecutionPlan, prepared: Prepared) -> Descent:
    """A noisy sum in every step. Raises InvalidParameter if one row or user would move it by more than the plan says."""
    loop = private_loop(spec, plan, prepared)
    return Descent(loop.step, loop.sites[0].randomness.origin, GENERATOR, loop.watch, loop.samples)


def private_loop(spec: DpSgdLaplace, plan: ExecutionPlan, prepared: Prepared) -> PrivateLoop:
    """The loop over all units in one place."""

    def optimizer(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        return update(spec.optimizer, state, parameters, gradient, step, plan.steps)

    team = prepared.setting.team
    clipped = ClippedRows(prepared.network, prepared.rows, SLOPES[spec.loss], plan.clipping.norm, plan.sampling.expected_batch_size)
    prepared.setting.runtime.check_probe(keeps_its_bits=clipped.settle())
    check_contributions(clipped, plan, plan.clipping.bound)
    return PrivateLoop(
        clipped=clipped,
        layout=layout_of(prepared.network),
        plan=plan,
        sites=(Site(torch.arange(prepared.rows.units, device=prepared.setting.device), randomness_of(spec.seed, 0, team)),),
        optimizer=optimizer,
        team=team,
        watch=NoiseWatch(plan.mechanism),
    )
