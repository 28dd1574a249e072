r"""The functional mechanism: one noisy vector of sums, and the weights that minimise the loss it represents."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from zetadp.mechanisms import Laplace
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine import NoiseWatch, TorchSource, TrainingState
from zetadp.trainer.engine.autoencoders import Descent, Prepared
from zetadp.trainer.engine.autoencoders.statistics import Code, fitted
from zetadp.trainer.engine.loop import NO_BOUND
from zetadp.trainer.engine.noise.randomness import origin_of, stream_of, write_down
from zetadp.trainer.engine.noise.releasing import held
from zetadp.trainer.engine.noise.torch_source import GENERATOR
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.plans import StatisticReleasePlan


def minimisation(spec: FunctionalMechanism, plan: StatisticReleasePlan, prepared: Prepared) -> Descent:
    r"""The only step releases the sums and minimises the loss.

    An attempt that is killed before its one checkpoint has published nothing: the next attempt releases anew, and that is the only release.
    """
    code = Code.of(prepared.network.shape.features, prepared.network.shape.hidden, spec.spread, stream_of(spec, "public code"))

    watch = NoiseWatch(plan.mechanism)

    def step(_state: TrainingState) -> TrainingState:
        noisy = released(plan, code, prepared.rows.features, partial(stream_of, spec, "release of the sums"), watch)
        write_down(1, [noisy])
        parameters = weights(spec, plan, code, noisy).to(prepared.setting.device)
        return TrainingState(1, parameters, {}, NO_BOUND)

    return Descent(step, origin_of(spec), GENERATOR, watch)


def released(
    plan: StatisticReleasePlan, code: Code, rows: Tensor, stream: Callable[[Tensor], RandomStream], watch: NoiseWatch | None = None
) -> Tensor:
    """The sums over the rows with the plan's noise, (numbers,) float64: the only thing computed from the rows.

    ``stream`` gives the one for the noise on these sums.
    """
    sums = held(plan.mechanism, code.sums(rows.cpu()))
    assert len(sums) == plan.numbers  # the plan was made for these sizes
    noisy = plan.mechanism.release(sums, TorchSource(stream(sums), sums.device))
    if watch is not None:
        watch.see(sums, noisy)
    return noisy


def weights(spec: FunctionalMechanism, plan: StatisticReleasePlan, code: Code, noisy: Tensor) -> Tensor:
    """The network's weights, (coordinates,) float32, from what was released: post-processing."""
    scale = plan.mechanism.noise_scale
    std = math.sqrt(2.0) * scale if isinstance(plan.mechanism, Laplace) else scale
    features, hidden = code.encoder.shape
    decoder = code.decoder(fitted(noisy, features, hidden, std, spec.ridge, spec.expansion))
    return torch.cat((code.encoder.reshape(-1), decoder.reshape(-1))).to(torch.float32)
