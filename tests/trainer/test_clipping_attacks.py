r"""Networks and records made to carry a unit's share of the clipped sum past its bound; each once did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, LARGEST_WITH_POSITIONS, ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import TapedRoute, WholeNetworkRoute
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers import BlockCirculantLinear
from zetadp.trainer.layers.rules import patch_gradients
from zetadp.trainer.layers.rules.base import COMBINED, COMPLEX, REAL, added_at_once, adds_little
from zetadp.trainer.specs.execution_plan import FlatClipping

FEATURES, POSITIONS = 4, 64


def _clipped(problem: Problem) -> ClippedGradients:
    return ClippedGradients(problem, FlatClipping(bound=1.0), 64)


def _largest_move(problem: Problem, clipped: ClippedGradients, bound: float, changes: dict[str, Tensor] | None = None) -> float:
    """How far one unit more or less moves the sum, at most, as a share of the bound."""
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()} | (changes or {})
    units = torch.arange(problem.units)
    total = clipped.sum(parameters, units, bound).total.double()
    moves = [total - clipped.sum(parameters, units[units != unit], bound).total.double() for unit in units]
    return max(float(move.norm()) for move in moves) / bound


class RowsInOtherOrder(nn.Module):
    """One layer sees the records in another order than the other one."""

    def __init__(self, order: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self._order = order

    def forward(self, x: Tensor) -> Tensor:
        order = self._order(x)
        return self.second(torch.tanh(self.first(x))[order])[order.argsort()]


class StraightThrough(nn.Module):
    """The batch's mean has no value here, and a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        mean = hidden.mean(dim=0)
        return self.second(hidden + (mean - mean.detach()))


class SequenceFirst(nn.Module):
    """Gives a layer (positions, records, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


class BorrowsAfterTheStart(nn.Module):
    """Uses a layer's weight behind its back; as the last layer starts at 0, no gradient tells so at first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES, bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.linear(torch.tanh(self.layer(x)), self.layer.weight))


def _squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().flatten(1).sum(dim=1)


def _problem(network: nn.Module, members: Tensor | None = None) -> Problem:
    """Records and targets of sizes from 0.001 to 1000, some of them short."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 3, 12)[:, None]
    features, targets = (sizes * torch.randn(12, FEATURES, generator=generator) for _ in range(2))
    features[::2, 2:] = 0.0
    return Problem(network, _squared_errors, features, targets.flip(0), members)


def _reversed(x: Tensor) -> Tensor:
    return torch.arange(len(x)).flip(0)


def _by_length(x: Tensor) -> Tensor:
    return (x != 0).sum(dim=1).argsort(stable=True)


@pytest.mark.parametrize("order", [_reversed, _by_length])
@pytest.mark.parametrize("members", [None, torch.arange(12).reshape(6, 2)])
def test_a_layer_that_sees_records_in_another_order_does_not_lend_one_units_factor_to_another(
    order: Callable[[Tensor], Tensor], members: Tensor | None
) -> None:
    problem = _problem(RowsInOtherOrder(order), members)
    clipped = _clipped(problem)
    assert isinstance(clipped.route, WholeNetworkRoute)
    assert _largest_move(problem, clipped, 0.1) <= 1.0


def test_gradients_that_mix_where_values_do_not_stay_within_the_bound() -> None:
    problem = _problem(StraightThrough())
    assert _largest_move(problem, _clipped(problem), 1.0) <= 1.0


@pytest.mark.parametrize("positions", [2, 3, 4, 5])
def test_positions_are_never_taken_for_records_however_many_there_are(positions: int) -> None:
    features = torch.randn(9, positions, FEATURES, generator=torch.Generator().manual_seed(0))
    problem = Problem(SequenceFirst(), _squared_errors, features, torch.zeros_like(features), None)
    assert isinstance(_clipped(problem).route, WholeNetworkRoute)


def test_a_network_whose_gradients_start_at_zero_is_judged_by_later_ones() -> None:
    assert isinstance(_clipped(_problem(BorrowsAfterTheStart())).route, WholeNetworkRoute)


def test_a_layer_with_a_weight_of_another_name_takes_the_general_route() -> None:
    layer = nn.Linear(FEATURES, FEATURES)
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    problem = _problem(nn.Sequential(layer))
    assert _largest_move(problem, _clipped(problem), 0.1) <= 1.0


def _cancelling(outputs: Tensor, broken: Tensor) -> Tensor:
    """Slopes of 10^8 that add to 0 over the positions of one record; outputs (n, positions, outputs)."""
    half = torch.randint(-(2**20), 2**20, (POSITIONS // 2,), generator=torch.Generator().manual_seed(1)).float()
    slopes = 700.0 * torch.cat([half, -half.flip(0)])
    return torch.where(broken > 0, (outputs.sum(dim=2) * slopes).sum(dim=1), outputs.sum(dim=(1, 2)))


class OneConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mT).mT


def _circulant() -> nn.Module:
    return BlockCirculantLinear(3, 4, 1, RandomStream.from_seed(1, "attack"), is_complex=False)


@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 4), OneConvolution, _circulant])
def test_rounding_errors_of_positions_that_cancel_stay_far_within_the_bound(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    # All positions of the record are equal: its gradient is 0, and rounding leaves 10 or so, in the norm another 10 than in the sum.
    monkeypatch.setattr(patch_gradients, "HELD_NUMBERS", 0)  # what is held is the same for norm and sum
    torch.manual_seed(0)
    features = torch.randn(40, POSITIONS, 3)
    features[20] = torch.tensor([1.0, 2.0, -0.3])
    broken = torch.zeros(40)
    broken[20] = 1.0
    problem = Problem(make(), _cancelling, features, broken, None)
    clipped = _clipped(problem)
    assert isinstance(clipped.route, TapedRoute)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    assert float(clipped.sum(parameters, torch.tensor([20]), 0.01).total.norm()) <= 0.01 / 16


@pytest.mark.parametrize("bound", [1e-22, 1e-26, 1e-30])
def test_a_bound_below_what_squares_can_tell_apart_is_kept(bound: float) -> None:
    # Both factors' squares are above the smallest float32, and their product isn't.
    problem = Problem(
        nn.Linear(1, 1, bias=False), lambda outputs, _: 1e-11 * outputs[:, 0], torch.full((1, 1), 1e-12), torch.zeros(1), None
    )
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    assert float(_clipped(problem).sum(parameters, torch.tensor([0]), bound).total.double().norm()) <= bound


def test_many_units_of_many_positions_round_each_others_sum_within_the_margin() -> None:
    generator = torch.Generator().manual_seed(0)
    count = LARGEST_WITH_POSITIONS
    features = torch.randn(1, 1, 4, generator=generator).expand(count, 784, 4) * (
        10.0 + 10.0 * torch.rand(count, 1, 1, generator=generator)
    )
    problem = Problem(nn.Linear(4, 2), lambda outputs, _: outputs.square().flatten(1).sum(dim=1), features, torch.zeros(count), None)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), count)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    total = clipped.sum(parameters, torch.arange(count), 1.0).total.double()
    # One fewer in front moves every other one to another place.
    assert float((total - clipped.sum(parameters, torch.arange(1, count), 1.0).total.double()).norm()) <= 1.0 - CLIP_MARGIN / 2.0


def _one_after_another(first: torch.Tensor, second: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """A matrix product by a library that adds in the order of memory, in float32, and nothing more clever."""
    one, other = (values.detach().resolve_conj().numpy() for values in (first, second))
    if not first.is_complex():
        return out.copy_(torch.from_numpy(_added_in_turn(one[:, :, None] * other[None, :, :])))
    # All that the real parts give first, whose sum every later one is rounded beside.
    real, imaginary = (
        np.concatenate((one.real[:, :, None] * there[None], sign * one.imag[:, :, None] * here[None]), axis=1)
        for there, here, sign in ((other.real, other.imag, -1.0), (other.imag, other.real, 1.0))
    )
    return out.copy_(torch.from_numpy(_added_in_turn(real) + 1j * _added_in_turn(imaginary)))


def _added_in_turn(terms: np.ndarray) -> np.ndarray:
    return np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
@pytest.mark.parametrize(
    ("count", "positions", "at_once"),
    thinned(
        [(64, 1, 64), (240, 1, 240), (512, 1, 512), (900, 1, 900), (2048, 1, 2048), (2048, 1, 128), (256, 784, 256), (2048, 16, 64)],
        every=4,
    ),
)
def test_the_simplest_library_rounds_within_the_margin_too(
    count: int, positions: int, at_once: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (count, positions, 4) if positions > 1 else (count, 4)
    scales = torch.linspace(20.0, 10.0, count).view(-1, *(1 for _ in shape[1:]))
    features = (torch.tensor([1.3, 0.7, 1.1, 0.9]).expand(shape) * scales).to(kind)
    network = nn.Linear(4, 2, dtype=kind)
    nn.init.constant_(network.weight, 0.37)
    problem = Problem(network, lambda outputs, _: outputs.abs().square().flatten(1).sum(dim=1), features, torch.zeros(count), None)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), at_once)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    monkeypatch.setattr(torch, "mm", _one_after_another)
    # The first is clipped and most others aren't, so that their products differ.
    bound = float(clipped.sum(parameters, torch.arange(count), 1.0).norms[0]) * 0.99
    total = clipped.sum(parameters, torch.arange(count), bound).total.double()
    without = clipped.sum(parameters, torch.arange(1, count), bound).total.double()
    assert 1.0 - 2.0 * CLIP_MARGIN <= float((total - without).norm()) / bound <= 1.0 - CLIP_MARGIN / 2.0


@pytest.mark.parametrize("each", [REAL, COMPLEX, COMBINED])
@pytest.mark.parametrize("units", thinned([1, 16, 17, 64, 100, 512, 700, 2048], every=4))
@pytest.mark.parametrize("more", [1, 2, 16])
def test_float32_adds_as_many_units_at_once_as_its_rounding_allows(units: int, more: int, each: int) -> None:
    """The bound of mechanisms/proofs/clipped_sum.md, as large as clipping's margin leaves room for."""
    sample, at_once = units * more, added_at_once(units, units * more, each)

    def moved(together: int) -> float:
        return sample * (each * together + -(-units // together) + 5) * 2.0**-24

    room = CLIP_MARGIN * 59 / 64
    assert adds_little(units, sample, each) == (moved(units) <= room)
    if at_once:
        assert moved(at_once) <= room
        assert at_once == units or moved(at_once + 8) > room
    else:
        assert all(moved(together) > room for together in range(20, units + 1))


def test_float32_adds_no_more_units_than_the_whole_sample_allows() -> None:
    assert added_at_once(100, 0, COMPLEX) == added_at_once(100, 100, COMPLEX) == 100
    assert added_at_once(100, 512, COMPLEX) < 100
    assert added_at_once(100, 10**5, REAL) == 0


def test_a_norm_before_everything_else_on_images_in_channels_last_does_not_end_the_process() -> None:
    features = torch.randn(6, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    network = nn.Sequential(nn.GroupNorm(2, 2), nn.Flatten(), nn.Linear(32, 2))
    problem = Problem(network, lambda outputs, _: outputs.square().sum(dim=1), features, torch.zeros(6), None)
    assert isinstance(_clipped(problem).route, TapedRoute)


class RareCounter(nn.Module):
    """Counts large records in a buffer: no made-up record shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x > 1e4).any()):
            self.seen += 1.0
        return self.linear(x)


def test_a_buffer_that_only_rare_data_change_stops_the_run() -> None:
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    problem = Problem(RareCounter(), lambda outputs, _: outputs.square().sum(dim=1), features, torch.zeros(5), None)
    clipped = _clipped(problem)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    clipped.sum(parameters, torch.arange(5), 1.0)
    features[2] = 1e5
    with pytest.raises(InvalidParameter, match="changes no parameter and no buffer"):
        clipped.sum(parameters, torch.arange(5), 1.0)


@pytest.mark.parametrize(
    ("network", "shape", "parts"),
    [
        (nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), (8,), 1),
        (nn.Sequential(nn.Unflatten(1, (4, 2)), nn.Linear(2, 2), nn.Flatten()), (8,), 2),
    ],
)
def test_more_records_are_added_in_float32_only_where_they_have_one_position_each(
    network: nn.Module, shape: tuple[int, ...], parts: int
) -> None:
    features = torch.randn(LARGEST_WITH_POSITIONS + 1, *shape, generator=torch.Generator().manual_seed(1))
    problem = Problem(network, lambda outputs, _: outputs.square().sum(dim=1), features, torch.zeros(len(features)), None)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 10_000)
    total = clipped.sum({name: value.detach() for name, value in network.named_parameters()}, torch.arange(len(features)), 1.0).total
    assert total.dtype == (torch.float32 if parts == 1 else torch.float64)
