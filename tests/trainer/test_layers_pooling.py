r"""Pooling and dropout: a complex number is chosen, kept or dropped as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from tests.trainer.made_up import built, facts_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers import (
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    ComplexDropout,
    MaxPool,
    complex_dropout,
    from_planes,
    max_pool,
    to_planes,
)
from zetadp.trainer.layers.pooling import RectifiedMeans
from zetadp.trainer.specs.models.layer_spec import Activation, Convolution, Flatten, Linear
from zetadp.trainer.specs.models.layer_spec import AveragePool as AveragePoolSpec
from zetadp.trainer.specs.models.model_spec import Sequential

POOLS: dict[str, nn.Module] = {
    "average": AveragePool(2, 2),
    "max": MaxPool(2, 2),
    "overlapping_max": MaxPool(3, 1),
    "adaptive_average": AdaptiveAveragePool(3),
    "adaptive_max": AdaptiveMaxPool(3),
}


def _image(*shape: int) -> Tensor:
    return torch.view_as_complex(torch.randn(*shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))


def _windows(name: str, size: int) -> list[slice]:
    """The windows along one axis."""
    if name.startswith("adaptive"):
        return [slice(k * size // 3, -(-(k + 1) * size // 3)) for k in range(3)]
    kernel, stride = (3, 1) if name.startswith("overlapping") else (2, 2)
    return [slice(k, k + kernel) for k in range(0, size - kernel + 1, stride)]


def _pooled(name: str, z: np.ndarray) -> np.ndarray:
    """By loops over windows of the last axes after (records, channels): the formula itself."""
    flat = z[..., None] if z.ndim == 3 else z
    columns = [slice(0, 1)] if z.ndim == 3 else _windows(name, flat.shape[3])
    rows = _windows(name, flat.shape[2])
    out = np.empty((*flat.shape[:2], len(rows), len(columns)), dtype=complex)
    for place in np.ndindex(*out.shape):
        window = flat[place[0], place[1], rows[place[2]], columns[place[3]]].ravel()
        out[place] = window[np.argmax(np.abs(window))] if name.endswith("max") else window.mean()
    return out[..., 0] if z.ndim == 3 else out


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("name", sorted(POOLS))
def test_pooling_of_images_is_that_of_the_windows(name: str, layout: torch.memory_format) -> None:
    z = _image(2, 3, 7, 6)
    got = from_planes(POOLS[name](to_planes(z).contiguous(memory_format=layout)))
    np.testing.assert_allclose(got.numpy(), _pooled(name, z.numpy()), rtol=1e-13)


@pytest.mark.parametrize("name", sorted(POOLS))
def test_pooling_of_series_is_that_of_the_windows(name: str) -> None:
    z = _image(2, 3, 8)
    np.testing.assert_allclose(from_planes(POOLS[name](to_planes(z))).numpy(), _pooled(name, z.numpy()), rtol=1e-13)


def test_the_maximum_is_a_number_of_the_input_and_not_two_maxima() -> None:
    z = torch.tensor([[[3 + 0j, 0 + 4j, -5 + 0j, 1 + 1j]]])
    assert from_planes(max_pool(to_planes(z), 4, 4)).tolist() == [[[-5 + 0j]]]


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 7, 6)])
def test_padding_is_never_the_largest(shape: tuple[int, ...]) -> None:
    z = _image(*shape)
    small = z.abs() * 1e-3  # the largest of non-negative numbers is the largest in magnitude
    got = from_planes(max_pool(to_planes(torch.complex(small, torch.zeros_like(small))), 3, 2, 1))
    pooled = (nn.functional.max_pool1d if len(shape) == 3 else nn.functional.max_pool2d)(small, 3, 2, 1)
    assert torch.equal(got, torch.complex(pooled, torch.zeros_like(pooled)))


def test_the_maximum_holds_where_squares_would_overflow_or_underflow() -> None:
    z = torch.tensor([[[1e30 + 0j, 3e30 + 0j, 1e-30 + 0j, 3e-30j]]], dtype=torch.complex64)
    torch.testing.assert_close(from_planes(max_pool(to_planes(z), 2, 2)), torch.tensor([[[3e30 + 0j, 3e-30j]]]), rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(POOLS))
def test_derivatives_agree_with_finite_differences(name: str) -> None:
    x = to_planes(_image(1, 2, 5, 4)).requires_grad_()
    assert torch.autograd.gradcheck(POOLS[name], (x,))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_adaptive_average_hands_on_gradients_with_channels_last(size: int) -> None:
    """Whichever windows it has, they are torch's."""
    x = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    pooled = AdaptiveAveragePool(size)(x)
    torch.testing.assert_close(pooled, nn.functional.adaptive_avg_pool2d(x, size))
    (slope,) = torch.autograd.grad(pooled.sum(), x)
    assert slope.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(slope, torch.full_like(x, size * size / 36.0))


@pytest.mark.parametrize("name", sorted(POOLS))
def test_a_records_pooling_does_not_depend_on_the_others(name: str) -> None:
    x = to_planes(_image(3, 2, 6, 6))
    alone = torch.cat([POOLS[name](record[None]) for record in x])
    assert torch.equal(POOLS[name](x), alone)
    assert torch.equal(vmap(lambda record: POOLS[name](record[None])[0])(x), alone)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), (3, 2)])
def test_rectified_means_and_their_slopes_have_the_bits_of_relu_and_then_means(
    kernel: int, stride: int, layout: torch.memory_format
) -> None:
    images = torch.randn(3, 4, 7, 6, generator=torch.Generator().manual_seed(3)).contiguous(memory_format=layout).requires_grad_()
    joined, apart = RectifiedMeans(kernel, stride)(images), nn.functional.avg_pool2d(torch.relu(images), kernel, stride)
    slopes = torch.randn(joined.shape, generator=torch.Generator().manual_seed(5))
    (found,), (expected,) = torch.autograd.grad(joined, images, slopes), torch.autograd.grad(apart, images, slopes)
    assert torch.equal(joined, apart)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()


def test_rectified_means_have_derivatives_of_any_order_and_of_each_record() -> None:
    images = to_planes(_image(2, 2, 5, 4)).requires_grad_()
    assert torch.autograd.gradcheck(RectifiedMeans(2, 2), (images,))
    assert torch.autograd.gradgradcheck(RectifiedMeans(2, 2), (images,))
    each = vmap(grad(lambda record: RectifiedMeans(2, 2)(record[None]).square().sum()))(images.detach())
    (whole,) = torch.autograd.grad(RectifiedMeans(2, 2)(images).square().sum(), images)
    assert torch.equal(each, whole)


@pytest.mark.parametrize(
    ("numbers", "name", "joined"), [("real", "relu", 1), ("complex", "crelu", 1), ("real", "tanh", 0), ("complex", "zrelu", 0)]
)
def test_a_network_takes_means_right_behind_a_relu_in_one_module(numbers: Any, name: Any, joined: int) -> None:
    head = "magnitude" if numbers == "complex" else "none"
    layers = (Convolution(outputs=2, kernel=3), Activation(name=name), AveragePoolSpec(kernel=2, stride=2), Flatten(), Linear(outputs=3))
    network = built(Sequential(numbers=numbers, layers=layers, head=head), facts_of((1, 8, 8), 3, is_complex=numbers == "complex"))
    assert sum(isinstance(module, RectifiedMeans) for module in network.modules()) == joined


def test_pooling_a_flat_record_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="height, width"):
        max_pool(torch.zeros(2, 4), 2, 2)


@pytest.mark.parametrize("kernel", [0, (2, 2, 2), (2,)])
def test_a_window_that_does_not_fit_the_axes_is_refused(kernel: int | tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match="kernel must be a positive integer, or 2 of them"):
        AveragePool(kernel, 2)(torch.zeros(1, 4, 6, 6))


def _ones(form: str) -> Tensor:
    z = torch.full((40, 10, 25), 1 + 2j, dtype=torch.complex64)
    return to_planes(z) if form == "planes" else z


def _native(form: str, y: Tensor) -> Tensor:
    return from_planes(y) if form == "planes" else y


@pytest.mark.parametrize("form", ["native", "planes"])
def test_dropout_drops_or_scales_a_number_as_a_whole(form: str) -> None:
    y = _native(form, complex_dropout(_ones(form), 0.2, torch.Generator().manual_seed(1)))
    kept = y != 0
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], (1 + 2j) / 0.8))
    # 10^4 numbers: the kept share has standard deviation 0.004.
    assert kept.double().mean().item() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("form", ["native", "planes"])
def test_dropouts_gradient_is_its_mask(form: str) -> None:
    z = _ones(form).requires_grad_()
    y = complex_dropout(z, 0.5, torch.Generator().manual_seed(2))
    y.backward(torch.ones_like(y))
    assert z.grad is not None
    assert torch.equal(_native(form, z.grad) != 0, _native(form, y) != 0)


@pytest.mark.parametrize("form", ["native", "planes"])
def test_dropout_under_vmap_has_a_mask_for_each_record(form: str) -> None:
    def alone(z: Tensor) -> Tensor:
        return complex_dropout(z[None], 0.5, None)[0]

    torch.manual_seed(5)
    kept = _native(form, vmap(alone, randomness="different")(_ones(form))) != 0
    assert not torch.equal(kept[0], kept[1])
    assert kept.double().mean().item() == pytest.approx(0.5, abs=0.025)


def test_dropout_is_the_identity_in_evaluation_and_at_probability_0() -> None:
    z = _ones("planes")
    assert torch.equal(ComplexDropout(0.9).eval()(z), z)
    assert torch.equal(ComplexDropout(0.0)(z), z)
    assert not torch.equal(ComplexDropout(0.9)(z), z)


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_a_probability_outside_0_to_1_is_refused(probability: float) -> None:
    with pytest.raises(InvalidParameter, match=r"\[0, 1\)"):
        ComplexDropout(probability)
