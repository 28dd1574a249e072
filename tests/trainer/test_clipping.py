r"""Clipped sums: bounded, blind to broken units, in bounded memory, and the same however they are cut."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, ClippedGradients, ClippedSum
from zetadp.trainer.engine.gradients.per_unit import TapedRoute
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import ParameterLayout, forget_values
from zetadp.trainer.layers.rules.base import gram_squared_norms
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, FlatClipping, PerLayerClipping

RECORDS, FEATURES = 23, 6


class Network(nn.Module):
    """Complex and real parameters together; outputs in the hundreds for the largest records."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.first = nn.Linear(FEATURES, 4, dtype=torch.complex64)
        self.last = nn.Linear(4, 3, bias=False)
        with torch.no_grad():
            for parameter in self.parameters():
                pairs = torch.view_as_real(parameter) if parameter.is_complex() else parameter
                pairs.copy_(torch.randn(pairs.shape, generator=generator))

    def forward(self, z: Tensor) -> Tensor:
        return self.last(((1 + 2j) * self.first(z) ** 2).real)


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return outputs.sum(dim=1) * (1.0 + labels)


def _records(count: int = RECORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    sizes = torch.logspace(-3, 1, count)[:, None]
    features = sizes * torch.view_as_complex(torch.randn(count, FEATURES, 2, generator=generator))
    return features, torch.randint(0, 2, (count,), generator=generator)


def _problem(features: Tensor, members: Tensor | None = None) -> Problem:
    return Problem(Network(), losses, features, _records(len(features))[1], members)


def _sum(problem: Problem, units: Tensor, bound: float, microbatch_size: int = 8) -> ClippedSum:
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    return ClippedGradients(problem, FlatClipping(bound=bound), microbatch_size).sum(parameters, units, bound)


def _length(vector: Tensor) -> float:
    return float(vector.double().norm())


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_microbatch_size_does_not_change_the_sum(size: int) -> None:
    problem, units = _problem(_records()[0]), torch.arange(RECORDS)
    whole = _sum(problem, units, 1.0, RECORDS)
    parts = _sum(problem, units, 1.0, size)
    assert _length(parts.total.double() - whole.total) < 1e-5
    assert (parts.within, parts.zeroed) == (whole.within, whole.zeroed)


def test_one_microbatch_is_not_added_in_double_precision_and_several_are() -> None:
    problem, units = _problem(_records()[0]), torch.arange(RECORDS)
    assert _sum(problem, units, 1.0, 2 * RECORDS).total.dtype == torch.float32
    assert _sum(problem, units, 1.0, 5).total.dtype == torch.float64


@pytest.mark.parametrize("bound", [1e-10, 1e-3, 1.0, 1e6])
def test_one_record_never_moves_the_sum_by_more_than_the_bound(bound: float) -> None:
    problem = _problem(1e3 * _records(50)[0])
    clipped = ClippedGradients(problem, FlatClipping(bound=bound), 1)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    assert max(_length(clipped.sum(parameters, torch.tensor([row]), bound).total) for row in range(50)) <= bound


def test_layers_clipped_by_themselves_never_move_the_sum_by_more_than_the_bound() -> None:
    problem = _problem(1e3 * _records(50)[0])
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    clipped = ClippedGradients(problem, PerLayerClipping(bound=1.0), 1)
    lengths = [_length(clipped.sum(parameters, torch.tensor([row]), 1.0).total) for row in range(50)]
    assert 1.0 - 2.0 * CLIP_MARGIN <= max(lengths) <= 1.0


def test_two_thousand_equal_records_together_stay_within_their_bounds() -> None:
    # Float32 adds them one after another in the worst case: this is what the margin is for.
    features = (1e3 * _records()[0][-1:]).repeat(2048, 1)
    problem = Problem(Network(), losses, features, torch.ones(2048, dtype=torch.int64), None)
    assert _length(_sum(problem, torch.arange(2048), 1.0, 2048).total) <= 2048.0


def test_clipping_costs_less_than_two_margins_of_the_bound() -> None:
    assert _length(_sum(_problem(1e3 * _records()[0]), torch.tensor([RECORDS - 1]), 1.0).total) >= 1.0 - 2.0 * CLIP_MARGIN


def test_short_gradients_pass_unchanged() -> None:
    problem = _problem(_records()[0])
    loss = losses(problem.network(problem.features[:1]), problem.targets[:1]).sum()
    loss.backward()
    expected = ParameterLayout.of(problem.network).flatten(
        {name: p.grad for name, p in problem.network.named_parameters() if p.grad is not None}
    )
    assert _length(_sum(problem, torch.tensor([0]), 1e3).total - expected) < 1e-6 * _length(expected)


class Wide(nn.Module):
    """One output of very many equal inputs."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize("count", [4096, 1_000_017])
def test_bound_holds_for_very_long_gradients(count: int) -> None:
    # Equal entries are the worst case for a running float32 sum: over all of them it would stall, and the norm come out too small.
    problem = Problem(Wide(count), lambda outputs, _: outputs[:, 0], torch.full((1, count), 0.1), torch.zeros(1), None)
    assert 1.0 - 2.0 * CLIP_MARGIN <= _length(_sum(problem, torch.tensor([0]), 1.0).total) <= 1.0


def test_a_gradient_whose_factor_underflows_when_squared_is_still_clipped() -> None:
    # |g|^2 is 1e-48, which float32 takes for 0; with |a|^2 = 1e36 the gradient's norm is 1e-6, ten thousand times the bound.
    problem = Problem(Wide(1), lambda outputs, _: 1e-24 * outputs[:, 0], torch.full((1, 1), 1e18), torch.zeros(1), None)
    assert _length(_sum(problem, torch.tensor([0]), 1e-10).total) <= 1e-10


def test_positions_that_cancel_do_not_hide_a_norm_from_a_gram_matrix() -> None:
    # Outer products of length 1e6 that leave one of length 10: the matrices' float32 entries have rounding errors of 1e5.
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(50, 1, 8, generator=generator).repeat(1, 2, 1)
    g = 1e5 * torch.rand(50, 1, 8, generator=generator)
    g = torch.cat([g, torch.randn(50, 1, 8, generator=generator) - g], dim=1)
    true = (g.double().mT @ a.double()).flatten(1).square().sum(dim=1)
    assert bool((gram_squared_norms(a, g).double() >= true).all())


def _broken(outputs: Tensor, labels: Tensor) -> Tensor:
    """Infinite slope for records labelled 2."""
    ordinary = losses(outputs, labels)
    return torch.where(labels == 2, ordinary * torch.where(labels == 2, math.inf, 1.0), ordinary)


def _with_broken(row: int) -> Problem:
    features, labels = _records()
    labels[row] = 2
    # The first rows are what checks and planning look at; this one isn't among them.
    return Problem(Network(), _broken, features, labels, None)


@pytest.mark.parametrize("size", [2, 100])
def test_a_record_with_a_non_finite_gradient_has_no_influence(size: int) -> None:
    problem = _with_broken(9)
    with_it = _sum(problem, torch.tensor([3, 9, 14]), 1.0, size)
    without = _sum(problem, torch.tensor([3, 14]), 1.0, size)
    assert with_it.zeroed == 1
    assert with_it.within == without.within + 1
    assert _length(with_it.total.double() - without.total) < 1e-6


def test_a_sample_of_broken_records_alone_has_sum_zero() -> None:
    got = _sum(_with_broken(9), torch.tensor([9]), 1.0)
    assert got.zeroed == 1
    assert not got.total.any()


def test_a_broken_record_takes_its_users_gradient_and_no_one_elses() -> None:
    problem = _with_broken(9)
    users = Problem(problem.network, _broken, problem.features, problem.targets, torch.tensor([[3, 4], [9, 14], [15, -1]]))
    with_it = _sum(users, torch.tensor([0, 1, 2]), 1.0)
    assert with_it.zeroed == 1
    assert _length(with_it.total - _sum(users, torch.tensor([0, 2]), 1.0).total) < 1e-6


def test_a_gradient_whose_norm_overflows_has_a_bounded_influence() -> None:
    problem = _problem(_records()[0] * 1e12)
    assert _length(_sum(problem, torch.tensor([5]), 1.0).total) <= 1.0


def test_an_empty_sample_has_sum_zero() -> None:
    problem = _problem(_records()[0])
    got = _sum(problem, torch.tensor([], dtype=torch.int64), 1.0)
    assert got.total.shape == (ParameterLayout.of(problem.network).coordinates,)
    assert not got.total.any()
    assert (got.within, got.zeroed) == (0, 0)


def test_within_counts_units_up_to_the_bound() -> None:
    problem = _problem(_records()[0])
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    adaptive = AdaptiveClipping(initial_bound=1.0, quantile=0.5, learning_rate=0.2, count_share=0.1)
    clipped = ClippedGradients(problem, adaptive, 8)
    norms = sorted(_length(clipped.sum(parameters, torch.tensor([row]), 1e9).total) for row in range(RECORDS))
    assert clipped.sum(parameters, torch.arange(RECORDS), (norms[10] + norms[11]) / 2.0).within == 11


def test_a_user_is_clipped_as_one() -> None:
    features = 1e3 * _records()[0]
    members = torch.tensor([list(range(10)), [*range(10, 20)], [20, 21, 22, *[-1] * 7]])
    problem = _problem(features, members)
    assert problem.units == 3
    assert _length(_sum(problem, torch.tensor([1]), 1.0).total) == pytest.approx(1.0, abs=2.0 * CLIP_MARGIN)


def test_gradients_of_complex_and_real_parameters_count_together_in_the_norm() -> None:
    problem = _problem(1e3 * _records()[0])
    named = ParameterLayout.of(problem.network).unflatten(_sum(problem, torch.tensor([7]), 1.0).total)
    shares = [_length(torch.view_as_real(value) if value.is_complex() else value) for value in named.values()]
    assert min(shares) > 1e-3
    assert math.hypot(*shares) == pytest.approx(1.0, abs=2.0 * CLIP_MARGIN)


class Grows(nn.Module):
    """Changes the features themselves before the first layer sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mul_(100.0))


def test_norms_of_the_data_are_not_taken_for_those_of_changed_data() -> None:
    problem = Problem(Grows(), lambda outputs, _: outputs[:, 0], torch.ones(5, 3), torch.zeros(5), None)
    assert _length(_sum(problem, torch.tensor([0]), 10.0).total) <= 10.0


def test_changed_data_need_no_gradient_of_each_record() -> None:
    problem = Problem(Grows(), lambda outputs, _: outputs[:, 0], torch.ones(5, 3), torch.zeros(5), None)
    assert isinstance(ClippedGradients(problem, FlatClipping(bound=1.0), 5).route, TapedRoute)


def test_clipping_keeps_its_bound_where_the_forward_pass_runs_in_half_precision() -> None:
    network = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 3))
    features = torch.view_as_real(_records()[0])[..., 0].contiguous()
    problem = Problem(network, losses, 1e3 * features, _records()[1], None)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 1)
    with torch.autocast("cpu", torch.bfloat16):
        lengths = [_length(clipped.sum(parameters, torch.tensor([row]), 1.0).total) for row in range(RECORDS)]
    assert 1.0 - 2.0 * CLIP_MARGIN <= max(lengths) <= 1.0


def test_dropout_draws_a_mask_for_every_record() -> None:
    network = nn.Sequential(nn.Linear(4, 400), nn.Dropout(0.5))
    features = torch.ones(2, 4)
    problem = Problem(network, lambda outputs, _: outputs.sum(dim=1), features, torch.zeros(2), None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        total = _sum(problem, torch.arange(2), 1e6).total
    kept = ParameterLayout.of(network).unflatten(total)["0.bias"] / 2.0
    assert set(kept.tolist()) == {0.0, 1.0, 2.0}


def test_layout_is_real_pairs_with_complex_parameters_first() -> None:
    network = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(2, 2, dtype=torch.complex64)})
    layout = ParameterLayout.of(network)
    assert layout.names == ("b.weight", "b.bias", "a.weight", "a.bias")
    assert layout.coordinates == layout.real_parameters == 2 * 6 + 4
    vector = torch.arange(16.0)
    named = layout.unflatten(vector)
    assert named["b.weight"][0, 1].item() == 2 + 3j
    assert torch.equal(layout.flatten(named), vector)


def test_named_parameters_are_views_of_the_flat_vector() -> None:
    layout = ParameterLayout.of(Network())
    vector = torch.zeros(layout.coordinates)
    for value in layout.unflatten(vector).values():
        value.fill_(1.0)
    assert vector.sum().item() == sum(math.prod(shape) for shape in layout.shapes)


class _LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


def _largest(network: nn.Module, lot: int, size: int) -> int:
    problem = Problem(network, lambda outputs, _: outputs.square().sum(dim=1), torch.ones(lot, 64), torch.zeros(lot), None)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), size)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    units = torch.arange(lot)
    with _LargestTensor() as mode:
        clipped.sum(parameters, units, 1.0)
    return mode.bytes


def test_memory_does_not_grow_with_the_sample() -> None:
    network = nn.Linear(64, 256)
    assert _largest(network, 512, 256) == _largest(network, 1024, 256)
    assert _largest(network, 1024, 1024) > _largest(network, 1024, 256)


def test_no_unit_has_a_gradient_of_its_own_in_memory() -> None:
    # One gradient is 64 KiB in float32; 64 of them would be 4 MiB. The flat sum is in float32 too, as there is one microbatch.
    network = nn.Sequential(nn.Linear(64, 256, bias=False), nn.ReLU())
    assert _largest(network, 64, 64) == 4 * 64 * 256


def test_a_network_that_forgot_its_parameters_clips_and_sums_as_before() -> None:
    problem, units = _problem(_records()[0]), torch.arange(RECORDS)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 8)
    before = clipped.layout.flatten(dict(problem.network.named_parameters()))
    expected = clipped.sum(clipped.layout.unflatten(before), units, 1.0).total
    forget_values(problem.network)
    assert torch.equal(clipped.sum(clipped.layout.unflatten(before), units, 1.0).total, expected)
    assert ParameterLayout.of(problem.network) == clipped.layout
    assert [parameter.untyped_storage().nbytes() for parameter in problem.network.parameters()] == [8, 8, 4]
