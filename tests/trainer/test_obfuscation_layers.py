"""Layers on parts: each turns with its input, in value and gradient what their formulas say, finite at zero, frozen in evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.obfuscation.layers import (
    Delta,
    JointDropout,
    MagnitudeNorm,
    MaxPool,
    delta,
    from_parts,
    to_parts,
    turned,
    turned_back,
)
from zetadp.trainer.algorithms.obfuscation.networks.building import SkipConnection
from zetadp.trainer.algorithms.obfuscation.networks.checks import turning_error

TOLERANCE = 1e-5
SHAPE = (4, 8, 8)


def _generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _complex(*shape: int, seed: int = 5) -> Tensor:
    return torch.complex(*torch.randn((2, *shape), generator=_generator(seed)))


def _norm(channels: int) -> MagnitudeNorm:
    norm = MagnitudeNorm(channels)
    norm.running_square.copy_(0.3 + torch.rand(channels, generator=_generator()))
    return norm


def _convolution(*, bias: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return nn.Conv2d(4, 4, 3, padding=1, bias=bias)


EQUIVARIANT: dict[str, Callable[[], nn.Module]] = {
    "convolution": _convolution,
    "linear": lambda: nn.Sequential(nn.Flatten(1), nn.Linear(256, 10, bias=False)),
    "delta": lambda: Delta(0.7),
    "delta_channel_mean": lambda: Delta("channel_mean"),
    "delta_of_flat": lambda: nn.Sequential(nn.Flatten(1), Delta("channel_mean")),
    "norm": lambda: _norm(4),
    "max_pool": lambda: MaxPool(2, 2),
    "overlapping_max_pool": lambda: MaxPool(3, 2),
    "average_pool": lambda: nn.AvgPool2d(2, 2),
    "dropout": lambda: JointDropout(0.4),
    "skip": lambda: SkipConnection(nn.Sequential(_convolution(), _norm(4), Delta(1.0)), nn.Identity()),
    "skip_with_shortcut": lambda: SkipConnection(nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1, bias=False)), nn.Conv2d(4, 6, 1, 2, bias=False)),
}

BROKEN: dict[str, Callable[[], nn.Module]] = {
    "bias": lambda: _convolution(bias=True),
    "relu": nn.ReLU,
    "max_pool_of_each_part": lambda: nn.MaxPool2d(2, 2),
    "batch_norm": lambda: nn.BatchNorm2d(4).train(),
    "skip_with_bias": lambda: SkipConnection(nn.Sequential(_convolution(bias=True)), nn.Identity()),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", EQUIVARIANT)
@pytest.mark.parametrize("theta", [0.4, math.pi / 2, 3.9])
def test_every_layer_turns_with_its_input(name: str, theta: float, training: bool) -> None:
    module = EQUIVARIANT[name]().train(training)

    def seeded(parts: Tensor) -> Tensor:
        torch.manual_seed(3)  # the same masks for both inputs
        return module(parts)

    wrapped = _Function(seeded)
    assert turning_error(wrapped, _complex(3, *SHAPE), theta) < TOLERANCE


@pytest.mark.parametrize("name", BROKEN)
def test_what_isnt_equivariant_is_seen(name: str) -> None:
    assert turning_error(BROKEN[name](), _complex(3, *SHAPE), 0.9) > 0.01


class _Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, parts: Tensor) -> Tensor:
        return self._function(parts)


def test_delta_is_the_papers_formula() -> None:
    z = _complex(2, 3, 4, 4)
    expected = z.abs() / z.abs().clamp(min=0.7) * z
    assert torch.allclose(from_parts(delta(to_parts(z), 0.7)), expected, rtol=1e-5, atol=1e-7)
    mean = z.abs().mean(dim=(2, 3), keepdim=True)
    expected = z.abs() / torch.maximum(z.abs(), mean) * z
    assert torch.allclose(from_parts(delta(to_parts(z), "channel_mean")), expected, rtol=1e-5, atol=1e-7)


def test_a_channels_mean_is_of_the_record_alone() -> None:
    z = _complex(3, 4, 5, 5)
    among = from_parts(delta(to_parts(z), "channel_mean"))[:1]
    assert torch.equal(from_parts(delta(to_parts(z[:1]), "channel_mean")), among)


@pytest.mark.parametrize("threshold", ["channel_mean", 0.6, 1.0])
@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (6, 7)])
def test_deltas_gradient_is_its_derivative(threshold: float | str, shape: tuple[int, ...]) -> None:
    parts = torch.randn(shape, generator=_generator(), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: delta(x, threshold), (parts,))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (6, 3)])
def test_the_norms_gradient_is_its_derivative(shape: tuple[int, ...]) -> None:
    norm = MagnitudeNorm(3).double()
    parts = torch.randn(shape, generator=_generator(), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(norm, (parts,))


@pytest.mark.parametrize("threshold", ["channel_mean", 1.0])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-10, 1e15])
def test_gradients_are_finite_from_zero_to_huge(threshold: float | str, scale: float) -> None:
    parts = (scale * torch.randn((4, 3, 4, 4), generator=_generator())).requires_grad_()
    outputs = MagnitudeNorm(3)(delta(parts, threshold))  # pyright: ignore[reportArgumentType]
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert parts.grad is not None
    assert parts.grad.isfinite().all()


def test_gradients_are_finite_where_some_numbers_are_zero() -> None:
    parts = torch.randn((4, 3, 4, 4), generator=_generator())
    parts[:, :, 0] = 0.0
    for threshold in ("channel_mean", 1.0):
        given = parts.clone().requires_grad_()
        delta(given, threshold).square().sum().backward()
        assert given.grad is not None
        assert given.grad.isfinite().all()
        assert (given.grad[:, :, 0] == 0.0).all()


def test_the_norm_divides_by_the_root_mean_square_of_the_batch() -> None:
    norm, z = MagnitudeNorm(4), 3.0 * _complex(5, *SHAPE)
    expected = z / z.abs().square().mean(dim=(0, 2, 3), keepdim=True).sqrt()
    assert torch.allclose(from_parts(norm(to_parts(z))), expected, rtol=1e-4)
    statistic = 0.9 + 0.1 * z.abs().square().mean(dim=(0, 2, 3))
    assert torch.allclose(norm.running_square, statistic, rtol=1e-4)


def test_frozen_statistics_keep_records_apart() -> None:
    norm = _norm(4)
    z = _complex(2, *SHAPE)
    other = z.clone()
    other[0] *= 10.0
    training = [from_parts(norm.train()(to_parts(features)))[1] for features in (z, other)]
    assert (training[0] - training[1]).abs().max() > 0.1  # that is what freezing is for
    before = norm.running_square.clone()
    frozen = [from_parts(norm.eval()(to_parts(features)))[1] for features in (z, other)]
    assert torch.equal(frozen[0], frozen[1])
    assert torch.equal(norm.running_square, before)


def test_max_pool_picks_whole_numbers_by_magnitude() -> None:
    z = torch.tensor([[[[1.0 + 0.0j, -3.0 + 1.0j], [0.0 + 2.0j, 2.5 + 1.5j]]]])
    assert from_parts(MaxPool(2, 2)(to_parts(z))).item() == -3.0 + 1.0j


def test_dropout_drops_both_parts_and_keeps_the_mean() -> None:
    torch.manual_seed(2)
    z = torch.full((40, 100), 1.0 + 2.0j)
    dropped = from_parts(JointDropout(0.3)(to_parts(z)))
    gone = dropped == 0
    assert torch.allclose(dropped[~gone], z[~gone] / 0.7)
    # 4000 draws: a standard deviation of .0072
    assert abs(float(gone.float().mean()) - 0.3) < 0.03
    assert torch.equal(JointDropout(0.3).eval()(to_parts(z)), to_parts(z))


def test_turning_there_and_back_gives_the_real_part() -> None:
    z, theta = _complex(4, *SHAPE), torch.tensor([0.1, 2.0, 4.0, 6.2])
    assert torch.allclose(from_parts(turned(z.real, z.imag, theta)), torch.exp(1j * theta).reshape(-1, 1, 1, 1) * z, atol=1e-6)
    assert torch.allclose(turned_back(turned(z.real, z.imag, theta), theta), z.real, atol=1e-5)


def test_what_no_layer_takes_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="threshold must be a positive number"):
        delta(torch.zeros(2, 3), 0.0)
    with pytest.raises(InvalidParameter, match="parts must be a real tensor"):
        from_parts(torch.zeros(3, 2))
    with pytest.raises(InvalidParameter, match="z must be a complex tensor"):
        to_parts(torch.zeros(3, 2))
    with pytest.raises(InvalidParameter, match=r"probability must be a number in \[0, 1\)"):
        JointDropout(1.0)
    with pytest.raises(InvalidParameter, match="4 channels"):
        MagnitudeNorm(4)(torch.zeros(2, 3, 2, 2))
