r"""Random networks of all kinds of layers: their clipped sums, and what one unit moves these by, even if its gradient isn't finite."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.layer_cases import squared_errors, unit_gradients
from tests.trainer.made_up import built, facts_of
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import TapedRoute
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    ChannelAffine,
    Convolution,
    Flatten,
    GroupNorm,
    LayerSpec,
    Linear,
    MaxPool,
    PlainLayer,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention

UNITS, CLASSES = 10, 3


def images(draw: Random, active: Activation) -> tuple[tuple[int, ...], list[LayerSpec]]:
    """Blocks with grouped convolutions, norms, and pools."""
    groups = draw.choice((1, 2))
    channels = groups * draw.choice((2, 3))
    layers: list[LayerSpec] = [Convolution(outputs=channels, kernel=3, padding=1, bias=draw.random() < 0.5)]
    for _ in range(draw.randint(1, 2)):
        norm: PlainLayer = draw.choice((GroupNorm(groups=groups), ChannelAffine()))
        outputs, stride = groups * draw.choice((1, 2, 4)), draw.choice((1, 2))
        around: PlainLayer = Convolution(outputs=outputs, kernel=1, stride=stride, bias=False)
        inner = Convolution(outputs=outputs, kernel=3, padding=1, stride=stride, groups=groups)
        layers.append(Residual(layers=(norm, active, inner), shortcut=(around,)))
    layers += [MaxPool(kernel=3, stride=2, padding=1), Flatten()]
    return (draw.randint(1, 3), draw.randint(5, 8), draw.randint(5, 8)), layers


def sequences(draw: Random, active: Activation) -> tuple[tuple[int, ...], list[LayerSpec]]:
    """Attention or recurrence, behind an embedding or a convolution."""
    heads = draw.choice((1, 2))
    channels, length = heads * draw.choice((3, 4)), draw.randint(3, 7)
    takes_words = draw.random() < 0.5
    first = Embedding(entries=draw.randint(2, 5), outputs=channels) if takes_words else Convolution(outputs=channels, kernel=1)
    layers: list[LayerSpec] = [first, PositionEmbedding()]
    if draw.random() < 0.5:
        layers.append(Residual(layers=(PositionNorm(), SelfAttention(heads=heads, width=heads * 2))))
        layers.append(Residual(layers=(PositionNorm(), Convolution(outputs=channels, kernel=1), active)))
    layers.append(Recurrent(cell=draw.choice(("rnn", "gru")), outputs=draw.randint(2, 4), returns="last"))
    return (length,) if takes_words else (draw.randint(2, 4), length), layers


def problem_of(seed: int) -> Problem:
    r"""Units whose records are from 1e-4 to 1e2 long; of the last two one is so long that its gradient overflows, and one is NaN.

    Such records can't come from a data set, whose numbers are checked; gradients that aren't finite can.
    """
    draw = Random(seed)
    numbers: Numbers = draw.choice(("real", "complex"))
    active = Activation(name="crelu" if numbers == "complex" else "relu")
    shape, layers = (images if seed % 2 else sequences)(draw, active)
    is_complex = numbers == "complex" and len(shape) > 1
    facts = facts_of(shape, CLASSES, is_complex=is_complex)
    head = "magnitude" if numbers == "complex" else "none"
    network = built(Sequential(numbers=numbers, layers=(*layers, Linear(outputs=CLASSES)), head=head), facts, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            real: Tensor = as_real(parameter)
            real.add_(0.3 * torch.randn(real.shape, generator=generator))
    parts = torch.randn((UNITS, *shape, 2), generator=generator)
    features = torch.view_as_complex(parts) if is_complex else parts[..., 0]
    sizes = torch.logspace(-4, 2, UNITS)[torch.randperm(UNITS, generator=generator)].reshape(-1, *(1 for _ in shape))
    return Problem(network, squared_errors, features * sizes, 3.0 * torch.randn(UNITS, CLASSES, generator=generator), None)


def doubled(problem: Problem) -> Problem:
    """The same in double precision."""
    for tensor in (*problem.network.parameters(), *problem.network.buffers()):
        tensor.data = _double(tensor.data)
    return Problem(problem.network, problem.losses, _double(problem.features), _double(problem.targets), None)


def _double(values: Tensor) -> Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def with_broken(problem: Problem) -> Problem:
    """The targets of the last two are such that their gradients aren't finite."""
    targets: Any = problem.targets.clone()
    targets[-1], targets[-2] = math.nan, 1e38
    return Problem(problem.network, problem.losses, problem.features, targets, None)


@pytest.mark.parametrize("seed", thinned(range(40), every=10))
def test_a_random_networks_clipped_sum_is_the_loops(seed: int) -> None:
    # In double precision: some random networks divide by small spreads, where float32 tells nothing about a rule.
    problem = doubled(problem_of(seed))
    units = list(unit_gradients(problem))
    lengths = [math.sqrt(sum(float(as_real(value).square().sum()) for value in unit.values())) for unit in units]
    bound = sorted(lengths)[UNITS // 2]
    clipped = ClippedGradients(problem, FlatClipping(bound=bound), 64)
    assert isinstance(clipped.route, TapedRoute)
    found = clipped.sum({name: value.detach() for name, value in problem.network.named_parameters()}, torch.arange(UNITS), bound)
    aim = bound * (1.0 - 2.0**-8)
    wanted = sum(
        clipped.layout.flatten(unit | _missing(problem.network, unit)) * min(1.0, aim / length)
        for unit, length in zip(units, lengths, strict=True)
    )
    assert isinstance(wanted, Tensor)
    assert float((found.total.double() - wanted).norm()) <= 1e-6 * float(wanted.norm())


def _missing(network: nn.Module, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Zeros for what a unit's loss doesn't depend on."""
    return {name: torch.zeros_like(value.detach()) for name, value in network.named_parameters() if name not in found}


@pytest.mark.parametrize("seed", thinned(range(40), every=10))
def test_no_unit_moves_a_random_networks_sum_by_more_than_the_bound(seed: int) -> None:
    problem, bound = with_broken(problem_of(seed)), 10.0 ** Random(seed).uniform(-3, 1)
    clipped = ClippedGradients(problem_of(seed), FlatClipping(bound=bound), 64)
    clipped.problem = problem  # as a network may come to it on the way: no check refuses it before
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    units = torch.arange(UNITS)
    everybody = clipped.sum(parameters, units, bound)
    assert everybody.zeroed >= 1
    assert bool(everybody.total.isfinite().all())
    for unit in units:
        rest = clipped.sum(parameters, units[units != unit], bound)
        assert float((everybody.total.double() - rest.total.double()).norm()) <= bound


@pytest.mark.parametrize("seed", thinned(range(40), every=10))
def test_a_random_networks_sum_is_the_same_in_one_microbatch_and_in_several(seed: int) -> None:
    """Up to how it is rounded, padded or not, beside units that aren't finite; in double precision, as above."""
    problem, bound = with_broken(doubled(problem_of(seed))), 10.0 ** Random(seed).uniform(-3, 1)
    clipped = ClippedGradients(doubled(problem_of(seed)), FlatClipping(bound=bound), 64)
    clipped.problem = problem
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    units = torch.arange(UNITS)
    alone = torch.stack([clipped.sum(parameters, unit, bound).total for unit in units.split(1)]).sum(dim=0)
    assert float((alone - clipped.sum(parameters, units, bound).total).norm()) <= 1e-6 * bound * UNITS
