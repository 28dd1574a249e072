r"""Norms and clipped sums of block-circulant layers equal those of the naive loop, and the layer is the dense one with circulant blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mechanisms.errors import InvalidParameter
from mechanisms.source import RandomStream
from trainer.engine.rules.base import Use
from trainer.engine.rules.circulant import block_circulant
from trainer.layers.circulant import BlockCirculantLinear

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


def dense(layer: BlockCirculantLinear) -> Tensor:
    rows, columns, block = layer.weight.shape
    whole = layer.weight.new_zeros(rows * block, columns * block)
    for row in range(rows * block):
        for column in range(columns * block):
            whole[row, column] = layer.weight[row // block, column // block, (row % block - column % block) % block]
    return whole[: layer.outputs, : layer.inputs]


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
    torch.testing.assert_close(gradients.squared_norms(), torch.tensor(norms), rtol=RELATIVE_ERROR, atol=0.0)
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


@pytest.mark.parametrize("name", ["real", "complex", "real, odd block, filled up", "complex, odd block, filled up, no bias"])
def test_the_layer_is_a_dense_one_of_circulant_blocks(name: str) -> None:
    layer, features = prepared(CASES[name])
    with torch.no_grad():
        expected = torch.nn.functional.linear(features, dense(layer), layer.bias)
        torch.testing.assert_close(layer(features), expected, rtol=1e-5, atol=1e-5)


def test_a_block_of_no_length_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="must be integers >= 1"):
        BlockCirculantLinear(3, 3, 0, RandomStream.from_seed(1, "layer"), is_complex=False)
