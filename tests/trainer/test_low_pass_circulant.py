r"""Low-passed gradients of block-circulant layers: norms and sums of each unit's gradient after an explicit projection of every block."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.circulant import BlockCirculantLinear
from zetadp.trainer.layers.rules.base import Use
from zetadp.trainer.layers.rules.circulant import BlockCirculantGradients, block_circulant

RELATIVE_ERROR = 1e-5
"""Between two orders of summation in float32, with a transform on one side: some hundred roundings of 6e-8."""

NORM_SLACK = 2e-3
"""Above the truth squared norms may be further: by what a transform's rounding might add, of whole blocks where little is kept of them."""

UNITS = 4
FACTORS = torch.tensor([0.5, 0.0, 2.0, 1.0])

# inputs, outputs, block, bias, shape between records and features, records of a unit
CASES = {
    "block 5": (20, 15, 5, True, (), 1),
    "block 5, filled up, no bias": (17, 14, 5, False, (), 1),
    "block 8": (16, 24, 8, True, (), 1),
    "block 8, filled up, no bias": (19, 21, 8, False, (), 1),
    "block 8, positions before a small weight": (16, 16, 8, True, (3,), 1),
    "block 10, filled up": (33, 12, 10, True, (), 1),
    "block 10, positions before a large weight": (120, 100, 10, False, (2,), 1),
    "block 16, users of 3 records": (40, 20, 16, True, (), 3),
    "block 1": (3, 4, 1, True, (), 1),
    "block 2": (5, 4, 2, True, (), 1),
    "long even block": (150, 140, 130, True, (), 1),
    "long odd block, positions": (131, 140, 131, False, (2,), 1),
}
Case = tuple[int, int, int, bool, tuple[int, ...], int]


def normal(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(RandomStream.from_seed(8, name).normal(int(np.prod(shape))).reshape(shape)).float()


def prepared(case: Case) -> tuple[BlockCirculantLinear, Use]:
    inputs, outputs, block, bias, between, records = case
    layer = BlockCirculantLinear(inputs, outputs, block, RandomStream.from_seed(8, "layer"), is_complex=False, bias=bias)
    rows = (UNITS * records, *between)
    return layer, Use(normal("inputs", (*rows, inputs)), normal("gradients", (*rows, outputs)))


def whole(layer: BlockCirculantLinear, use: Use) -> BlockCirculantGradients:
    gradients = block_circulant(layer, [use], UNITS)
    assert isinstance(gradients, BlockCirculantGradients)
    return gradients


def unit_gradients(layer: BlockCirculantLinear, use: Use) -> list[dict[str, NDArray[np.float64]]]:
    """Each unit's, by autograd, in double precision."""
    double = BlockCirculantLinear(
        layer.inputs, layer.outputs, layer.block, RandomStream.from_seed(8, "layer"), is_complex=False, bias=layer.bias is not None
    ).double()
    names = dict(double.named_parameters())
    units: list[dict[str, NDArray[np.float64]]] = []
    for inputs, gradient in zip(use.input.double().chunk(UNITS), use.gradient.double().chunk(UNITS), strict=True):
        values = torch.autograd.grad(double(inputs), list(names.values()), gradient)
        units.append({name: value.numpy() for name, value in zip(names, values, strict=True)})
    return units


def keep_choices(block: int) -> list[int]:
    return sorted({1, 2, (block // 2 + 1) // 2, block // 2, block // 2 + 1} & set(range(1, block // 2 + 2)))


@pytest.mark.parametrize(("case", "kept"), [(case, kept) for case in CASES.values() for kept in keep_choices(case[2])])
def test_norms_and_sums_are_those_of_projected_gradients_of_each_unit(case: Case, kept: int) -> None:
    layer, use = prepared(case)
    low_pass = LowPass((layer.block,), (kept,))
    projected = [{**unit, "weight": low_pass.project(unit["weight"])} for unit in unit_gradients(layer, use)]
    gradients = whole(layer, use).low_passed(kept)
    squares = torch.tensor([sum(float(np.square(value).sum()) for value in unit.values()) for unit in projected])
    norms = gradients.squared_norms()
    assert bool((norms >= (1.0 - RELATIVE_ERROR) * squares).all())
    assert bool((norms <= (1.0 + NORM_SLACK) * squares).all())
    total = gradients.weighted_sum(FACTORS)
    assert list(total) == [name for name, _ in layer.named_parameters()]
    for name, value in total.items():
        expected = sum(float(factor) * unit[name] for factor, unit in zip(FACTORS, projected, strict=True))
        assert value.shape == layer.get_parameter(name).shape
        assert np.linalg.norm(value.numpy() - expected) <= RELATIVE_ERROR * np.linalg.norm(expected)


@pytest.mark.parametrize("block", [5, 8, 10, 16, 130])
def test_sums_have_the_rank_of_the_projection_and_nothing_above_it(block: int) -> None:
    layer, use = prepared((4 * block, 4 * block, block, True, (), 1))
    kept = block // 4 + 1
    weight = whole(layer, use).low_passed(kept).weighted_sum(FACTORS)["weight"]
    spectra = torch.fft.rfft(weight.double(), norm="ortho").abs()
    assert float(spectra[..., kept:].max()) <= 1e-5 * float(spectra.max())
    assert int(torch.linalg.matrix_rank(weight.double().flatten(0, 1), rtol=1e-4)) == min(LowPass((block,), (kept,)).kept_dimensions, 16)


@pytest.mark.parametrize("block", [5, 8])
def test_all_frequencies_are_the_unfiltered_gradients(block: int) -> None:
    layer, use = prepared((16, 24, block, True, (), 1))
    filtered, gradients = whole(layer, use).low_passed(block // 2 + 1), whole(layer, use)
    torch.testing.assert_close(filtered.squared_norms(), gradients.squared_norms(), rtol=0.0, atol=0.0)
    for name, value in filtered.weighted_sum(FACTORS).items():
        torch.testing.assert_close(value, gradients.weighted_sum(FACTORS)[name], rtol=0.0, atol=0.0)


def test_what_the_filter_drops_is_rounded_without_being_blown_up_to_the_bound() -> None:
    # Nothing but the highest frequency, which is dropped: what is left of the weight's gradient are rounding errors.
    layer, _ = prepared((24, 16, 8, False, (), 1))
    highest = torch.tensor([1.0, -1.0] * 4)
    inputs = (normal("levels", (UNITS, 3, 1)) * highest).flatten(1)
    gradients = (1e6 * normal("steps", (UNITS, 2, 1)) * highest).flatten(1)
    of_units = whole(layer, Use(inputs, gradients)).low_passed(4)
    total = of_units.weighted_sum(of_units.squared_norms().rsqrt())
    assert float(total["weight"].norm()) <= UNITS / 64


@pytest.mark.parametrize("kept", [0, -1, 6])
def test_more_frequencies_than_there_are_or_none_are_refused(kept: int) -> None:
    layer, use = prepared(CASES["block 8"])
    with pytest.raises(InvalidParameter, match=rf"kept must be at least 1 and at most 5 frequencies of a block of 8, got {kept}"):
        whole(layer, use).low_passed(kept)


def test_a_filter_does_not_give_back_what_another_dropped() -> None:
    layer, use = prepared(CASES["block 8"])
    with pytest.raises(InvalidParameter, match="kept must be at least 1 and at most 2 frequencies of a block of 8, got 3"):
        whole(layer, use).low_passed(2).low_passed(3)


def test_complex_weights_are_refused() -> None:
    layer = BlockCirculantLinear(8, 8, 4, RandomStream.from_seed(8, "layer"), is_complex=True)
    rows = torch.ones(UNITS, 8, dtype=torch.complex64)
    with pytest.raises(InvalidParameter, match="low_passed must be a layer with real weights: complex ones have no conjugate pairs"):
        whole(layer, Use(rows, rows)).low_passed(1)
