r"""The loops for a linear layer's weighted sum: what they give, that its bits depend on neither registers nor threads, what is refused."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.trainer.layers.rules import outer
from zetadp.trainer.layers.rules.base import COMPLEX, REAL, ROUNDINGS, added_at_once

linear_rules = importlib.import_module("zetadp.trainer.layers.rules.linear")
"""The package gives its name to a function too."""

pytestmark = pytest.mark.skipif(outer.COMPILED is None, reason="no compiler, or a processor without AVX2")
both_kinds = pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])

SHAPES = {
    "whole panels and tiles": (64, 24, 64),
    "a last panel and a last tile that are smaller": (37, 31, 45),
    "fewer columns than a register": (9, 5, 3),
    "more outputs than are near at once": (20, 500, 33),
    "more units than a chain has": (300, 13, 40),
    "one unit": (1, 12, 32),
}


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


def wide(values: Tensor) -> Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def given(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes, factors and inputs."""
    units, outputs, inputs = SHAPES[name]
    return drawn((units, outputs), dtype), drawn((units,), torch.float32).abs(), drawn((units, inputs), dtype)


def summed(slopes: Tensor, factors: Tensor, inputs: Tensor, at_once: int = 100) -> tuple[Tensor, Tensor]:
    assert outer.is_taken(slopes, inputs)
    into = torch.full((slopes.shape[1], inputs.shape[1]), torch.nan, dtype=slopes.dtype)
    return into, outer.write_weighted_sum(slopes, factors, inputs, into, at_once)


@both_kinds
@pytest.mark.parametrize("name", SHAPES)
def test_sums_are_those_of_outer_products(name: str, dtype: torch.dtype) -> None:
    slopes, factors, inputs = given(name, dtype)
    weight, bias = summed(slopes, factors, inputs)
    weighted = wide(slopes) * factors.double()[:, None]
    torch.testing.assert_close(wide(weight), weighted.t() @ wide(inputs).conj(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bias, weighted.sum(dim=0), rtol=1e-6, atol=1e-6)


@both_kinds
@pytest.mark.parametrize("name", SHAPES)
def test_bits_depend_neither_on_registers_nor_on_threads(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = summed(*given(name, dtype))
    monkeypatch.setattr(outer, "WIDEST", 8)
    narrow = summed(*given(name, dtype))
    monkeypatch.setattr(outer, "SMALLEST_SHARE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for found in (narrow, summed(*given(name, dtype))):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@both_kinds
def test_units_are_added_in_parts_of_as_many_as_may_be(dtype: torch.dtype) -> None:
    """Ones are lost beside 2^24 in its chain, and their sum isn't from a chain of their own."""
    factors, inputs = torch.ones(6), torch.ones(6, 4, dtype=dtype)
    slopes = torch.tensor([2.0**24, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=dtype)[:, None].expand(6, 8).contiguous()
    assert summed(slopes, factors, inputs, at_once=6)[0].eq(2.0**24).all()
    assert summed(slopes, factors, inputs, at_once=2)[0].eq(2.0**24 + 2.0).all()


@pytest.mark.parametrize("each", [REAL, COMPLEX])
@pytest.mark.parametrize("units", [65, 100, 128, 200, 512, 600, 1024, 2048])
def test_shorter_chains_than_may_be_stay_within_the_proofs_bound(units: int, each: int) -> None:
    """Its claim, s (e n + m + 5), with the parts that are taken."""
    if not (most := added_at_once(units, units, each)):
        return
    taken = min(most, outer.DEPTH // (1 if each == REAL else 2))
    assert units * (each * taken + -(-units // taken) + 5) <= ROUNDINGS


@both_kinds
def test_views_of_any_strides_are_taken_as_they_are(dtype: torch.dtype) -> None:
    factors, inputs = torch.rand(10), drawn((10, 20), dtype)
    for slopes in (
        torch.ones((), dtype=dtype).expand(10, 6),
        drawn((1, 6), dtype).expand(10, 6),
        drawn((20, 12), dtype)[::2, ::2],
        drawn((6, 10), dtype).t(),
        drawn((10, 6), dtype).conj(),
    ):
        for seen in (inputs, inputs.conj(), drawn((20, 10), dtype).t()):
            expected = (wide(slopes.resolve_conj()) * factors.double()[:, None]).t() @ wide(seen.resolve_conj()).conj()
            torch.testing.assert_close(wide(summed(slopes, factors, seen)[0]), expected, rtol=1e-5, atol=1e-5)


@both_kinds
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("by_loops", [True, False])
def test_a_layers_sum_is_the_same_with_and_without_the_loops(
    by_loops: bool, precision: torch.dtype, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_loops:
        monkeypatch.setattr(outer, "COMPILED", None)
    slopes, factors, inputs = given("more units than a chain has", dtype)
    kind = torch.complex128 if dtype.is_complex and precision == torch.float64 else precision if not dtype.is_complex else dtype
    into = {"weight": torch.empty(13, 40, dtype=kind), "bias": torch.empty(13, dtype=kind)}
    taken: list[int] = []
    own = outer.write_weighted_sum
    monkeypatch.setattr(outer, "write_weighted_sum", lambda *given: taken.append(given[-1]) or own(*given))
    linear_rules.OuterProducts(inputs, slopes, has_bias=True, squares=None).write_weighted_sum(factors, into, 300)
    assert taken == ([added_at_once(300, 300, COMPLEX if dtype.is_complex else REAL)] if by_loops else [])
    weighted = wide(slopes) * factors.double()[:, None]
    torch.testing.assert_close(wide(into["weight"]), weighted.t() @ wide(inputs).conj(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(wide(into["bias"]), weighted.sum(dim=0), rtol=1e-5, atol=1e-5)


def test_what_the_loops_cannot_add_is_not_taken() -> None:
    slopes, inputs = torch.ones(4, 8), torch.ones(4, 6)
    assert outer.is_taken(slopes, inputs)
    for others in (
        (slopes[:, :3], inputs),
        (slopes[:0], inputs[:0]),
        (slopes.double(), inputs.double()),
        (slopes, inputs.to(torch.complex64)),
        (slopes.to("meta"), inputs.to("meta")),
    ):
        assert not outer.is_taken(*others)


@pytest.mark.parametrize("wrong", [{"units": 5}, {"outputs": 7}, {"inputs": 2}, {"parts": 3}, {"at_once": 0}])
def test_arrays_of_other_sizes_are_refused(wrong: dict[str, int]) -> None:
    sizes = {"units": 4, "outputs": 8, "inputs": 6, "parts": 1, "at_once": 4} | wrong
    slopes, factors, inputs, sums = (np.zeros(shape, np.float32) for shape in ((4, 8), (4,), (4, 6), (8, 6)))
    *shape, at_once = sizes.values()
    with pytest.raises(ValueError, match="other sizes"):
        outer.COMPILED.weighted_sum(slopes, factors, inputs, sums, np.zeros(8), tuple(shape), at_once, (16, 1))
