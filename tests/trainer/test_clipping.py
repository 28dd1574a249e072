r"""Clipped sums: equal to the naive loop, bounded, blind to broken records, in bounded memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.engine import ParameterLayout, Problem, clipped_sum
from trainer.engine.clipping import NORM_CHUNK

RECORDS, FEATURES = 23, 6


class Network(torch.nn.Module):
    """Complex and real parameters together."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.view_as_complex(torch.randn(4, FEATURES, 2, generator=generator)))
        self.scale = torch.nn.Parameter(torch.randn(4, generator=generator))


def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
    outputs = parameters["weight"] @ record
    return (parameters["scale"] * ((1 + 2j) * outputs**2).real).sum() * (1.0 + label)


@pytest.fixture
def layout() -> ParameterLayout:
    return ParameterLayout.of(Network())


@pytest.fixture
def parameters() -> dict[str, Tensor]:
    return {name: value.detach() for name, value in Network().named_parameters()}


def _records(count: int = RECORDS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    sizes = torch.logspace(-3, 1, count)[:, None]
    features = sizes * torch.view_as_complex(torch.randn(count, FEATURES, 2, generator=generator))
    return features, torch.randint(0, 2, (count,), generator=generator)


def _naive_gradient(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
    """By one ordinary backward pass, flat, complex128; real parameters have no imaginary part."""
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss(leaves, record, label).backward()
    return torch.cat([leaf.grad.reshape(-1).to(torch.complex128) for leaf in leaves.values() if leaf.grad is not None])


def _length(vector: Tensor) -> float:
    return math.sqrt(torch.view_as_real(vector.to(torch.complex128)).square().sum().item())


def _problem(features: Tensor, labels: Tensor) -> Problem:
    return Problem(loss, ParameterLayout.of(Network()), features, labels)


def test_clipped_sum_equals_the_naive_loop_over_records(parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    rows = torch.tensor([0, 3, 4, 9, 15, 20, 22])
    gradients = [_naive_gradient(parameters, features[row], labels[row]) for row in rows]
    lengths = [_length(gradient) for gradient in gradients]
    assert min(lengths) < 1.0 < max(lengths)  # some are clipped and some aren't
    expected = torch.stack([gradient * min(1.0, 1.0 / length) for gradient, length in zip(gradients, lengths, strict=True)]).sum(dim=0)
    got = clipped_sum(_problem(features, labels), parameters, rows, 1.0, 3)
    assert _length(got - expected) <= 1e-4 * len(rows)


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_microbatch_size_does_not_change_the_sum(parameters: dict[str, Tensor], size: int) -> None:
    features, labels = _records()
    rows = torch.arange(RECORDS)
    reference = clipped_sum(_problem(features, labels), parameters, rows, 1.0, RECORDS)
    assert _length(clipped_sum(_problem(features, labels), parameters, rows, 1.0, size) - reference) < 1e-5


@pytest.mark.parametrize("bound", [1e-10, 1e-3, 1.0, 1e6])
def test_one_record_never_moves_the_sum_by_more_than_the_bound(parameters: dict[str, Tensor], bound: float) -> None:
    features, labels = _records(200)
    for row in range(200):
        assert _length(clipped_sum(_problem(1e3 * features, labels), parameters, torch.tensor([row]), bound, 1)) <= bound


def test_clipping_costs_less_than_a_ten_thousandth_of_the_bound(parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    assert _length(clipped_sum(_problem(1e3 * features, labels), parameters, torch.tensor([RECORDS - 1]), 1.0, 1)) >= 0.9999


def test_short_gradients_pass_unchanged(parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    got = clipped_sum(_problem(features, labels), parameters, torch.tensor([0]), 1e3, 1)
    assert _length(got - _naive_gradient(parameters, features[0], labels[0])) < 1e-6 * _length(got)


def test_bound_holds_for_vectors_much_longer_than_a_chunk() -> None:
    # Equal entries are the worst case for a running float32 sum: naively it stalls and the norm comes out too small.
    count = 1000 * NORM_CHUNK + 17
    layout = ParameterLayout(("w",), ((count,),), (True,))
    features = torch.full((1, 1), 0.1)
    problem = Problem(lambda p, x, _label: (p["w"].real + p["w"].imag).sum() * x[0], layout, features, torch.zeros(1, dtype=torch.int64))
    total = clipped_sum(problem, {"w": torch.zeros(count, dtype=torch.complex64)}, torch.tensor([0]), 1.0, 1)
    assert 0.9999 <= _length(total) <= 1.0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_record_with_a_non_finite_gradient_has_no_influence(parameters: dict[str, Tensor], broken: float) -> None:
    features, labels = _records()
    features[4, 2] = complex(broken, 0.0)
    with_it = clipped_sum(_problem(features, labels), parameters, torch.tensor([3, 4, 9]), 1.0, 2)
    without = clipped_sum(_problem(features, labels), parameters, torch.tensor([3, 9]), 1.0, 2)
    assert torch.isfinite(torch.view_as_real(with_it)).all()
    assert _length(with_it - without) < 1e-6


def test_a_gradient_whose_norm_overflows_has_a_bounded_influence(parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    total = clipped_sum(_problem(features * 1e15, labels), parameters, torch.tensor([5]), 1.0, 1)
    assert _length(total) <= 1.0


def test_an_empty_sample_has_sum_zero(layout: ParameterLayout, parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    total = clipped_sum(_problem(features, labels), parameters, torch.tensor([], dtype=torch.int64), 1.0, 4)
    assert total.dtype == torch.complex128
    assert total.shape == (layout.coordinates,)
    assert not total.any()


def test_real_parameters_lie_on_the_real_axis_and_count_in_the_norm(layout: ParameterLayout, parameters: dict[str, Tensor]) -> None:
    features, labels = _records()
    total = clipped_sum(_problem(1e3 * features, labels), parameters, torch.tensor([7]), 1.0, 1)
    named = {"scale": total[-4:], "weight": total[:-4]} if layout.names[-1] == "scale" else {"scale": total[:4], "weight": total[4:]}
    assert not named["scale"].imag.any()
    assert named["scale"].real.any()
    assert _length(total) == pytest.approx(1.0, abs=1e-4)


def test_layout_projects_the_noise_of_real_parameters_back_to_the_real_axis(layout: ParameterLayout) -> None:
    vector = torch.full((layout.coordinates,), 1 + 1j, dtype=torch.complex128)
    named = layout.unflatten(layout.project(vector))
    assert (named["scale"] == 1.0).all()
    assert (named["weight"] == 1 + 1j).all()
    assert layout.project(vector).imag.count_nonzero() == 4 * FEATURES
    assert layout.real_parameters == 2 * 4 * FEATURES + 4


class _LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes())
        return result


def _largest(parameters: dict[str, Tensor], lot: int, size: int) -> int:
    features, labels = _records(lot)
    with _LargestTensor() as mode:
        clipped_sum(_problem(features, labels), parameters, torch.arange(lot), 1.0, size)
    # The data themselves are there before and don't count; row numbers and labels are of their size.
    return mode.numbers


def test_gradient_memory_does_not_grow_with_the_sample(layout: ParameterLayout, parameters: dict[str, Tensor]) -> None:
    assert _largest(parameters, 24, 8) == _largest(parameters, 96, 8)
    assert _largest(parameters, 96, 32) > 3 * _largest(parameters, 96, 8)
