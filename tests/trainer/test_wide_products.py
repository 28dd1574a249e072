"""Products by oneDNN: the same numbers as torch's own, rows that keep their bits, and no part where they may not be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.tape import Tape
from zetadp.trainer.layers import products

wide = pytest.mark.skipif(products._WIDE is None, reason="oneDNN isn't in torch here, or the processor has no AVX-512")
both_kinds = pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "FEWEST_ROWS", 0)
    monkeypatch.setattr(products, "LARGE_WEIGHT", 0)
    monkeypatch.setattr(products, "_LINEAR", products._WIDE)  # also where it doesn't pay
    torch.manual_seed(1)


def doubled(*values: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.to(torch.complex128 if value.is_complex() else torch.float64) for value in values)


def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what is multiplied from now on."""
    shapes: list[tuple[int, ...]] = []
    own = products._WIDE

    def recorded(first: Tensor, *rest: object) -> Tensor:
        shapes.append(tuple(first.shape))
        return own(first, *rest)

    monkeypatch.setattr(products, "_LINEAR", recorded)
    return shapes


@wide
@both_kinds
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_slopes_are_those_of_a_linear_layer(dtype: torch.dtype, bias: bool) -> None:
    values, weight, shift = (
        torch.randn(37, 29, dtype=dtype, requires_grad=True),
        torch.randn(11, 29, dtype=dtype),
        torch.randn(11, dtype=dtype),
    )
    target = torch.randn(37, 11, dtype=dtype)
    found = products.linear(values, weight, shift if bias else None)
    (slopes,) = torch.autograd.grad((found - target).abs().square().sum(), values)
    exact_values = doubled(values.detach())[0].requires_grad_()
    exact_weight, exact_shift, exact_target = doubled(weight, shift, target)
    exact = nn.functional.linear(exact_values, exact_weight, exact_shift if bias else None)
    (exact_slopes,) = torch.autograd.grad((exact - exact_target).abs().square().sum(), exact_values)
    torch.testing.assert_close(*doubled(found.detach()), exact.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*doubled(slopes), exact_slopes, rtol=1e-5, atol=1e-3)


@wide
@both_kinds
def test_a_row_s_bits_depend_neither_on_its_place_nor_on_other_rows(dtype: torch.dtype) -> None:
    values, weight = torch.randn(64, 784, dtype=dtype), torch.randn(256, 784, dtype=dtype)
    found = products.linear(values, weight, None)
    order = torch.randperm(64)
    assert torch.equal(products.linear(values[order], weight, None), found[order])
    assert torch.equal(products.linear(torch.cat((values[:1], torch.randn(63, 784, dtype=dtype))), weight, None)[0], found[0])


@wide
@both_kinds
def test_large_layers_of_a_network_take_them(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(784, 256, dtype=dtype), nn.Linear(256, 10, dtype=dtype)).requires_grad_(requires_grad=False)
    shapes = taken(monkeypatch)
    values = torch.randn(128, 784, dtype=dtype)
    tape = Tape({"0": network[0], "1": network[1]}, values, None)
    outputs = tape.forward(network)
    uses, _ = tape.backward(outputs.abs().square().sum(), [])
    assert len(shapes) == 1
    torch.testing.assert_close(outputs.detach(), network(values), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(uses["0"][0].gradient, (2.0 * network(values)) @ network[1].weight.conj(), rtol=1e-4, atol=1e-5)


@wide
@both_kinds
def test_views_of_any_strides_are_multiplied_as_they_are(dtype: torch.dtype) -> None:
    """Autograd's slopes of a sum are one number, seen everywhere; what all records share is one row."""
    weight = torch.randn(30, 40, dtype=dtype)
    for values in (
        torch.randn(1, 40, dtype=dtype).expand(64, 40),
        torch.ones((), dtype=dtype).expand(64, 40),
        torch.randn(128, 80, dtype=dtype)[::2, ::2],
        torch.randn(40, 64, dtype=dtype).t(),
        torch.randn(64, 40, dtype=dtype).conj(),
    ):
        exact = nn.functional.linear(*doubled(values.resolve_conj(), weight))
        torch.testing.assert_close(*doubled(products.linear(values, weight, None).detach()), exact, rtol=1e-5, atol=1e-5)
    values = torch.randn(64, 40, dtype=dtype, requires_grad=True)
    found, expected = (
        torch.autograd.grad((torch.view_as_real(of) if of.is_complex() else of).sum(), values)[0]
        for of in (products.linear(values, weight, None), nn.functional.linear(values, weight))
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("columns", "dtype"), [(5, torch.float32), (4, torch.complex64), (4, torch.float64)])
def test_what_does_not_fit_together_is_refused_as_by_torch(columns: int, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError) as own:
        nn.functional.linear(torch.randn(8, columns, dtype=dtype), torch.randn(3, 4))
    with pytest.raises(RuntimeError) as found:
        products.linear(torch.randn(8, columns, dtype=dtype), torch.randn(3, 4), None)
    assert str(found.value) == str(own.value)


def test_how_a_layer_is_multiplied_is_the_same_for_all_larger_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a record's bits would differ between a lot's sizes of microbatches, of which few are left to use then."""
    monkeypatch.undo()
    monkeypatch.setattr(products, "_LINEAR", lambda *_given: None)
    for dtype, few, many in ((torch.float32, 127, 259), (torch.complex64, 31, 65)):
        weight = torch.zeros(1, dtype=dtype)
        assert not any(products.is_fast(rows, few, 256, weight) for rows in (1, 128, 512, 2048))
        assert [products.is_fast(rows, many, 127, weight) for rows in (64, 127, 128, 192, 448, 512, 2048)] == [False] * 2 + [True] * 5


@wide
@both_kinds
def test_a_number_that_is_not_finite_stays_in_its_row(dtype: torch.dtype) -> None:
    values, weight = torch.randn(64, 784, dtype=dtype), torch.randn(256, 784, dtype=dtype)
    sound = products.linear(values, weight, None)
    values[7, 3] = torch.inf
    found = products.linear(values, weight, None)
    assert not found[7].isfinite().any()
    assert torch.equal(found[torch.arange(64) != 7], sound[torch.arange(64) != 7])


def test_half_precision_double_precision_and_sequences_take_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_LINEAR", None if products._LINEAR is None else lambda *_given: pytest.fail("taken"))
    for dtype in (torch.bfloat16, torch.float64):
        values, weight = torch.randn(8, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
        assert torch.equal(products.linear(values, weight, None), nn.functional.linear(values, weight))
    values, weight = torch.randn(8, 5, 4), torch.randn(3, 4)
    assert torch.equal(products.linear(values, weight, None), nn.functional.linear(values, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert products.linear(values[:, 0], weight, None).dtype == torch.bfloat16


def test_a_layer_that_does_something_else_is_asked_itself() -> None:
    layer = nn.Linear(4, 3).requires_grad_(requires_grad=False)
    layer.forward = lambda values: values[:, :3] * 2.0 + layer.weight.sum()  # type: ignore[method-assign]
    values = torch.randn(8, 4)
    assert torch.equal(Tape({"0": layer}, values, None).forward(nn.Sequential(layer)), values[:, :3] * 2.0 + layer.weight.sum())


def test_pairs_and_planes_of_the_complex_layer_agree() -> None:
    values = torch.randn(5, 7, dtype=torch.complex64)
    assert torch.equal(torch.view_as_complex(products.pairs(values).unflatten(1, (-1, 2))), values)
    assert torch.equal(torch.complex(*products.planes(values).chunk(2)), values)
    real, imaginary = (torch.view_as_complex(half.unflatten(1, (-1, 2))) for half in products.turned(values).chunk(2))
    assert torch.equal(real, values.conj().resolve_conj())
    assert torch.equal(imaginary, torch.complex(values.imag, values.real))
