"""A unit's norms have the same bits in every sample, at every place and beside any others, of every layer type."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.layer_cases import CASES, LayerCase, problem_of
from tests.trainer.test_microbatches import flat_losses
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.microbatches import lengths
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.products import PROCESSOR, is_intels
from zetadp.trainer.layers.rules import standardised
from zetadp.trainer.layers.standardised import StandardisedConv2d
from zetadp.trainer.specs.execution_plan import FlatClipping

RECORDS, LOT, MICROBATCH = 90, 14, 48
MEMBERS = torch.arange(RECORDS).reshape(-1, 3).masked_fill(torch.arange(RECORDS).reshape(-1, 3) % 15 == 14, -1)
FIRST_OF_LENET = LayerCase(lambda _: nn.Sequential(StandardisedConv2d(1, 6, 5), nn.Tanh()), (1, 12, 12))


def different(case: LayerCase, members: Tensor | None, samples: int) -> tuple[int, int]:
    """Comparisons of a unit's norm with the one in an earlier sample, and how many differed."""
    problem = problem_of(case, members, RECORDS)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), MICROBATCH, lot=LOT)
    clipped.settle()
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    known: dict[int, float] = {}
    compared = wrong = 0
    for _ in range(samples):
        count = int(torch.randint(1, min(problem.units, 2 * LOT) + 1, (1,), generator=generator))
        units = torch.randperm(problem.units, generator=generator)[:count]
        found = clipped.sum(parameters, units, 1.0)
        assert not found.zeroed
        for unit, norm in zip(units.tolist(), found.norms.tolist(), strict=True):
            compared += unit in known
            wrong += known.setdefault(unit, norm) != norm
    return compared, wrong


@pytest.mark.parametrize("name", CASES)
def test_a_units_norm_has_the_same_bits_in_every_sample(name: str) -> None:
    compared, wrong = different(CASES[name], None, 10)
    assert compared > 30
    assert not wrong


@pytest.mark.parametrize("name", ["Linear, complex", "Conv2d", "ComplexLinear", "StandardisedLinear", "a module without a rule"])
def test_so_has_a_users(name: str) -> None:
    compared, wrong = different(CASES[name], MEMBERS, 12)
    assert compared > 30
    assert not wrong


def test_a_first_layer_with_few_channels_has_them_too() -> None:
    compared, wrong = different(FIRST_OF_LENET, None, 25)
    assert compared > 100
    assert not wrong


@pytest.mark.parametrize(("units", "outputs"), [(37, 6), (64, 3), (128, 5)])
def test_what_standardised_filters_take_away_is_the_same_wherever_a_unit_stands(units: int, outputs: int) -> None:
    """Sums of a kernel's rows, added at once, had other last bits for the last units."""
    torch.manual_seed(1)
    values = torch.randn(5, units, 5, 1, outputs)
    order = torch.randperm(units)
    assert torch.equal(standardised._sums(values[:, order].contiguous()), standardised._sums(values)[:, order])


@pytest.mark.parametrize("units", [3, 17, 64, 100])
def test_layers_are_added_in_the_same_order_for_every_unit(units: int) -> None:
    """Added at once, those of the last units were added in another order than the rest."""
    torch.manual_seed(1)
    squares = torch.rand(12, units).square()
    columns = [lengths(squares[:, unit : unit + 1].clone()) for unit in range(units)]
    assert torch.equal(lengths(squares), torch.cat(columns))


class LeftOver(nn.Module):
    """As libraries multiply complex numbers: what is left of sixteens at the end is rounded otherwise, which changes one in thirty."""

    def forward(self, z: Tensor) -> Tensor:
        left = torch.arange(z.numel()).reshape(z.shape) >= z.numel() // 16 * 16
        some = left & (z.detach().real.mul(1024.0).frac().abs() < 1.0 / 30.0)
        return torch.where(some, z * (1.0 + 1e-6), z).abs()


def test_sizes_that_leave_complex_numbers_over_are_found_out_however_many_numbers_a_record_has() -> None:
    torch.manual_seed(7)
    of = Problem(
        nn.Sequential(nn.Linear(3000, 5, dtype=torch.complex64), LeftOver()),
        flat_losses,
        torch.randn(60, 3000, dtype=torch.complex64),
        torch.zeros(60),
        None,
    )
    clipped = ClippedGradients(of, FlatClipping(bound=1.0), 64, lot=48)
    assert clipped.settle()
    assert clipped._candidates.each == (24, 32, 40, 48, 56, 64)
    assert clipped._sizes.each == (32, 48, 64)


PRODUCTS = """
import torch
import zetadp.trainer.engine.products
torch.manual_seed(1)
some, others = torch.randn(24, 9, 9), torch.randn(24, 9, 5)
order = torch.randperm(24)
assert torch.equal(torch.bmm(some, others)[order], torch.bmm(some[order], others[order]))
"""


@pytest.mark.skipif(is_intels(PROCESSOR), reason="the library is told nothing on its own maker's processors, where units kept their bits")
def test_a_small_product_has_the_same_bits_wherever_in_memory_its_matrices_begin() -> None:
    """In a process of its own: a library is told before its first product."""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    done = subprocess.run([sys.executable, "-c", PRODUCTS], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
