r"""Norms and clipped sums of block-circulant layers equal those of the naive loop, and rounding is never taken for a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.circulant import BlockCirculantLinear
from zetadp.trainer.layers.rules.base import Use, WritableGradients
from zetadp.trainer.layers.rules.circulant import block_circulant

RELATIVE_ERROR = 1e-5
"""Between two orders of summation in float32, with a Fourier transform on one side: some hundred roundings of 6e-8."""

# inputs, outputs, block, complex, bias, shape between records and features, records of a unit
CASES = {
    "real": (8, 12, 4, False, True, (), 1),
    "complex": (8, 12, 4, True, True, (), 1),
    "real, odd block, filled up": (7, 11, 3, False, True, (), 1),
    "complex, odd block, filled up, no bias": (7, 11, 3, True, False, (), 1),
    "block 1": (3, 4, 1, False, True, (), 1),
    "block 2, real": (5, 4, 2, False, True, (), 1),
    "block beyond both sizes": (3, 5, 8, False, True, (), 1),
    "real, positions": (8, 12, 4, False, True, (3,), 1),
    "complex, positions before a large weight": (24, 20, 2, True, True, (2,), 1),
    "real, positions before a large weight": (24, 20, 2, False, True, (2,), 1),
    "complex, users of 3 records": (8, 6, 4, True, True, (), 3),
    "real, more inputs than outputs": (40, 12, 10, False, True, (), 1),
    "real, block 16, positions, no bias": (40, 33, 16, False, False, (2,), 1),
    "real, long block, filled up": (300, 140, 130, False, True, (), 1),
    "real, long odd block, positions": (140, 131, 131, False, True, (2,), 1),
    "complex, long block": (70, 140, 66, True, True, (), 1),
}
Case = tuple[int, int, int, bool, bool, tuple[int, ...], int]
UNITS = 4


def prepared(case: Case) -> tuple[BlockCirculantLinear, Tensor]:
    inputs, outputs, block, is_complex, bias, between, records = case
    stream = RandomStream.from_seed(5, "layer")
    layer = BlockCirculantLinear(inputs, outputs, block, stream, is_complex=is_complex, bias=bias)
    parts = torch.from_numpy(stream.normal(2 * UNITS * records * inputs * max(1, *between, 1))).float()
    pairs = parts.reshape(UNITS * records, *between, inputs, 2)
    return layer, torch.view_as_complex(pairs) if is_complex else pairs[..., 0].contiguous()


def loss(output: Tensor) -> Tensor:
    values = torch.view_as_real(output) if output.is_complex() else output
    weights = torch.linspace(-1.0, 2.0, values[0].numel()).reshape(values[0].shape)
    return (weights * values.square() + torch.sin(values)).sum()


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_norms_and_weighted_sums_equal_the_loops(case: Case) -> None:
    layer, features = prepared(case)
    output = layer(features)
    (gradient,) = torch.autograd.grad(loss(output), [output])
    gradients = block_circulant(layer, [Use(features, gradient)], UNITS)
    factors = torch.tensor([0.5, 0.0, 2.0, 1.0])
    names = dict(layer.named_parameters())
    norms, expected = [], {name: torch.zeros_like(value) for name, value in names.items()}
    for unit, factor in zip(features.split(case[-1]), factors, strict=True):
        of_unit = dict(
            zip(
                names,
                torch.autograd.grad(torch.stack([loss(layer(record[None])) for record in unit]).sum(), list(names.values())),
                strict=True,
            )
        )
        norms.append(sum(float(value.abs().square().sum()) for value in of_unit.values()))
        expected = {name: value + float(factor) * of_unit[name] for name, value in expected.items()}
    slack = 4.0 * layer.block * 2.0**-23  # for what the transforms round; four times where the positions' gradients are orthogonal
    torch.testing.assert_close(gradients.squared_norms(), torch.tensor(norms), rtol=RELATIVE_ERROR + slack, atol=0.0)
    for name, value in gradients.weighted_sum(factors).items():
        assert (value.shape, value.dtype) == (expected[name].shape, expected[name].dtype)
        assert float((value - expected[name]).abs().square().sum().sqrt()) <= RELATIVE_ERROR * float(
            expected[name].abs().square().sum().sqrt()
        )


def test_two_calls_are_two_positions() -> None:
    layer, features = prepared(CASES["real"])
    first = Use(features, torch.ones(UNITS, 12))
    gradients = block_circulant(layer, [first, first], UNITS)
    once = block_circulant(layer, [first], UNITS)
    torch.testing.assert_close(gradients.squared_norms(), 4.0 * once.squared_norms(), rtol=RELATIVE_ERROR, atol=0.0)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("block", [8, 12, 5])
def test_a_gradient_that_a_transform_only_rounds_is_not_blown_up_to_the_bound(block: int, has_bias: bool) -> None:
    # Blocks of equal inputs have frequency 0 alone, output gradients that add to 0 in each block haven't got it: the product is 0.
    levels = torch.from_numpy(RandomStream.from_seed(2, "levels").normal(UNITS * 3).reshape(UNITS, 3, 1)).float()
    inputs = levels.expand(-1, -1, block).reshape(UNITS, 3 * block)
    steps = torch.from_numpy(RandomStream.from_seed(2, "steps").normal(UNITS * 2 * block).reshape(UNITS, 2, block)).float()
    gradients = (1e6 * (steps - steps.mean(dim=2, keepdim=True))).reshape(UNITS, 2 * block)
    layer = BlockCirculantLinear(3 * block, 2 * block, block, RandomStream.from_seed(2, "layer"), is_complex=False, bias=has_bias)
    of_units = block_circulant(layer, [Use(inputs, gradients)], UNITS)
    norms = of_units.squared_norms().sqrt()
    for unit in range(UNITS):
        alone = torch.zeros(UNITS)
        alone[unit] = 1.0 / norms[unit]
        total = of_units.weighted_sum(alone)
        assert float(total["weight"].norm()) <= 1.0 / 64


def test_what_is_not_finite_in_one_unit_stays_in_its_own_norm() -> None:
    layer, features = prepared(CASES["real"])
    features[1, 3] = torch.inf
    features[2, 5] = torch.nan
    norms = block_circulant(layer, [Use(features, torch.ones(UNITS, 12))], UNITS).squared_norms()
    assert norms.isfinite().tolist() == [True, False, False, True]


def test_an_underflow_of_all_squares_leaves_a_norm() -> None:
    layer, features = prepared(CASES["real"])
    norms = block_circulant(layer, [Use(1e-25 * features, torch.full((UNITS, 12), 1e15))], UNITS).squared_norms()
    assert bool((norms >= 1e-20).all())


def test_real_numbers_into_complex_weights_are_complex_numbers() -> None:
    layer, features = prepared(CASES["complex"])
    gradient = torch.view_as_complex(torch.linspace(-1.0, 2.0, UNITS * 12 * 2).reshape(UNITS, 12, 2))
    got = block_circulant(layer, [Use(features.real, gradient)], UNITS)
    expected = block_circulant(layer, [Use(features.real.to(features.dtype), gradient)], UNITS)
    torch.testing.assert_close(got.squared_norms(), expected.squared_norms())
    for name, value in got.weighted_sum(torch.ones(UNITS)).items():
        torch.testing.assert_close(value, expected.weighted_sum(torch.ones(UNITS))[name])


def test_sums_are_written_where_they_are_wanted() -> None:
    layer, features = prepared(CASES["real, odd block, filled up"])
    gradients = block_circulant(layer, [Use(features, torch.ones(UNITS, 11))], UNITS)
    assert isinstance(gradients, WritableGradients)
    factors = torch.tensor([0.5, 0.0, 2.0, 1.0])
    into = {name: torch.full_like(value, torch.nan) for name, value in layer.named_parameters()}
    with torch.no_grad():
        gradients.write_weighted_sum(factors, into)
    for name, value in gradients.weighted_sum(factors).items():
        torch.testing.assert_close(into[name], value, rtol=0.0, atol=0.0)
