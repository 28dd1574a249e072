r"""A block-circulant layer is the dense one of its matrix, forwards and backwards, whichever of its three ways it goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap  # pyright: ignore[reportPrivateImportUsage]

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import circulant
from zetadp.trainer.layers.block_spectra import LARGEST_MATRIX, BlockSpectra
from zetadp.trainer.layers.circulant import BlockCirculantLinear

RELATIVE_ERROR = 2e-6
"""In l2, float32 against float64: transforms and sums of some hundred numbers, each rounded to 6e-8."""

# inputs, outputs, block
SHAPES = [
    (16, 24, 8),
    (17, 23, 5),
    (30, 21, 10),
    (160, 10, 16),
    (33, 20, 1),
    (5, 9, 2),
    (40, 50, 64),
    (20, 9, 32),
    (150, 140, 129),
    (3, 5, 8),
]
LONG = (300, 270, LARGEST_MATRIX + 2)


def layer_of(shape: tuple[int, int, int], *, is_complex: bool = False, bias: bool = True) -> BlockCirculantLinear:
    layer = BlockCirculantLinear(*shape, RandomStream.from_seed(3, "circulant"), is_complex=is_complex, bias=bias)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.copy_(normal((shape[1],), is_complex))
    return layer


def normal(shape: tuple[int, ...], is_complex: bool) -> Tensor:
    pairs = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(sum(shape)))
    return torch.view_as_complex(pairs) if is_complex else pairs[..., 0].contiguous()


def dense(weight: Tensor, inputs: int, outputs: int) -> Tensor:
    block = weight.shape[2]
    shift = (torch.arange(block)[:, None] - torch.arange(block)) % block
    return weight[:, :, shift].transpose(1, 2).flatten(2, 3).flatten(0, 1)[:outputs, :inputs]


def error(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).detach().abs().square().sum().sqrt() / expected.detach().abs().square().sum().sqrt())


@pytest.mark.parametrize("small", [True, False], ids=["as a matrix", "by spectra"])
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("shape", [*SHAPES, LONG])
def test_outputs_and_gradients_are_those_of_the_dense_layer(
    shape: tuple[int, int, int], is_complex: bool, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circulant, "SMALL_MATRIX", shape[0] * shape[1] if small else 0)
    layer = layer_of(shape, is_complex=is_complex)
    assert layer.bias is not None
    x = normal((4, 3, shape[0]), is_complex).requires_grad_()
    got = layer(x)
    slope = normal(tuple(got.shape), is_complex)
    kind = torch.complex128 if is_complex else torch.float64
    exact = [value.detach().to(kind).requires_grad_() for value in (x, layer.weight, layer.bias)]
    expected = torch.nn.functional.linear(exact[0], dense(exact[1], *shape[:2]), exact[2])
    assert error(got, expected) <= RELATIVE_ERROR
    gradients = torch.autograd.grad(got, [x, layer.weight, layer.bias], slope)
    for mine, theirs in zip(gradients, torch.autograd.grad(expected, exact, slope.to(kind)), strict=True):
        assert mine.shape == theirs.shape
        assert error(mine, theirs) <= RELATIVE_ERROR


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("small", [True, False])
def test_gradients_of_each_record_by_vmap_are_those_of_one_after_another(
    small: bool, is_complex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circulant, "SMALL_MATRIX", 10**6 if small else 0)
    layer = layer_of((17, 23, 5), is_complex=is_complex)
    values = {name: value.detach() for name, value in layer.named_parameters()}
    x = normal((3, 17), is_complex)

    def loss(parameters: dict[str, Tensor], record: Tensor) -> Tensor:
        return functional_call(layer, parameters, (record[None],)).abs().square().sum()

    together = vmap(grad(loss), in_dims=(None, 0))(values, x)
    for number, record in enumerate(x):
        alone = torch.autograd.grad(layer(record).abs().square().sum(), list(layer.parameters()))
        for name, value in zip(values, alone, strict=True):
            assert error(together[name][number], value) <= RELATIVE_ERROR


def test_complex_weights_take_real_numbers() -> None:
    layer = layer_of((40, 50, 8), is_complex=True)
    x = normal((3, 40), False)
    torch.testing.assert_close(layer(x), layer(x.to(torch.complex64)))


@pytest.mark.parametrize("shape", [(16, 24, 8), (300, 200, 8), LONG])
def test_half_precision_around_it_does_not_reach_its_products(shape: tuple[int, int, int]) -> None:
    layer, x = layer_of(shape), normal((4, shape[0]), False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x.bfloat16()).dtype == torch.float32
        inside = layer(x)
    torch.testing.assert_close(inside, layer(x), rtol=0.0, atol=0.0)


def test_a_block_of_no_length_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="inputs, outputs and block must be integers >= 1"):
        layer_of((3, 3, 0))


@pytest.mark.parametrize("block", [4, LARGEST_MATRIX + 2])
def test_another_number_of_features_than_it_was_made_for_is_refused(block: int) -> None:
    # It would fill up the same blocks.
    with pytest.raises(InvalidParameter, match="x must be a tensor with 7 features, the number the layer was made for"):
        layer_of((7, 300, block))(torch.zeros(2, 8))


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("block", [1, 2, 5, 8, LARGEST_MATRIX + 1, LARGEST_MATRIX + 2])
def test_coordinates_have_the_length_of_their_blocks_and_slopes_its_multiple(block: int, is_complex: bool) -> None:
    spectra = BlockSpectra.whole(block, is_complex=is_complex)
    blocks = normal((3, block), is_complex)
    own = spectra.singles + 2 * spectra.pairs
    assert own == spectra.numbers
    squares = blocks.abs().square().sum(dim=1)
    torch.testing.assert_close(spectra.factors(blocks)[:own].square().sum(dim=0), squares)
    torch.testing.assert_close(spectra.slopes(blocks)[:own].square().sum(dim=0), spectra.numbers * squares)
