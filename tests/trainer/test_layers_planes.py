r"""Planes, heads and initial weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import FromPlanes, ToPlanes, from_planes, glorot, he, join, magnitude, magnitude_softmax, split, to_planes


def _numbers(*shape: int) -> Tensor:
    return torch.view_as_complex(torch.randn(*shape, 2, generator=torch.Generator().manual_seed(6)))


def test_planes_have_all_real_parts_before_all_imaginary_parts() -> None:
    z = torch.tensor([[1 + 2j, 3 + 4j]])
    assert to_planes(z).tolist() == [[1.0, 3.0, 2.0, 4.0]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 5, 4)], ids=str)
def test_both_formats_hold_the_same_numbers(shape: tuple[int, ...]) -> None:
    z = _numbers(*shape)
    assert torch.equal(from_planes(to_planes(z)), z)
    assert torch.equal(FromPlanes()(ToPlanes()(z)), z)
    assert torch.equal(join(*split(to_planes(z))), to_planes(z))


def test_conjugated_numbers_become_planes_of_the_conjugate() -> None:
    assert torch.equal(split(to_planes(_numbers(2, 3).conj()))[1], -_numbers(2, 3).imag)


def test_gradients_have_the_same_norm_in_both_formats() -> None:
    z = _numbers(2, 3, 4).requires_grad_()
    planes = to_planes(z.detach()).requires_grad_()
    (from_planes(planes) ** 2).real.sum().backward()
    (from_planes(to_planes(z)) ** 2).real.sum().backward()
    assert z.grad is not None
    assert planes.grad is not None
    assert torch.equal(to_planes(z.grad), planes.grad)


@pytest.mark.parametrize(
    "value", [torch.zeros(2, 3), torch.zeros(4), torch.zeros(2, 4, dtype=torch.complex64)], ids=["odd", "flat", "complex"]
)
def test_what_is_not_planes_is_refused(value: Tensor) -> None:
    with pytest.raises(InvalidParameter, match=r"2 \* channels"):
        from_planes(value)


def test_real_numbers_do_not_become_planes() -> None:
    with pytest.raises(InvalidParameter, match="complex tensor"):
        to_planes(torch.zeros(2, 4))


def test_magnitude_softmax_is_the_logarithm_of_the_softmax_of_magnitudes() -> None:
    z = _numbers(4, 3).to(torch.complex128)
    weights = np.exp(np.abs(z.numpy()))
    np.testing.assert_allclose(magnitude_softmax(z).numpy(), np.log(weights / weights.sum(axis=1, keepdims=True)), rtol=1e-12)


def test_cross_entropy_leaves_log_probabilities_as_they_are() -> None:
    scores = magnitude_softmax(_numbers(4, 3))
    torch.testing.assert_close(torch.log_softmax(scores, dim=-1), scores)


@pytest.mark.parametrize("z", [0j, 1e-45 + 0j, 1e-30 - 1e-30j, 1e30 + 1e30j], ids=str)
def test_magnitudes_and_their_gradients_are_exact_at_extremes(z: complex) -> None:
    number = torch.tensor([z, 0j], dtype=torch.complex64, requires_grad=True)
    length = magnitude(number)
    magnitude_softmax(number).sum().backward()
    assert length[0].item() == pytest.approx(abs(number[0].item()), rel=1e-6)
    assert number.grad is not None
    assert torch.isfinite(torch.view_as_real(number.grad)).all()


@pytest.mark.parametrize(
    ("shape", "groups", "power_of_glorot", "power_of_he"),
    [
        ((300, 100), 1, 2 / 400, 2 / 100),
        ((40, 30, 3, 3), 1, 2 / (70 * 9), 2 / 270),
        ((80, 30, 5), 4, 2 / (20 * 5 + 30 * 5), 2 / 150),
    ],
    ids=["linear", "convolution", "grouped"],
)
def test_initial_weights_have_half_of_their_power_in_each_part(
    shape: tuple[int, ...], groups: int, power_of_glorot: float, power_of_he: float
) -> None:
    for draw, power in ((glorot, power_of_glorot), (he, power_of_he)):
        weight = draw(shape, groups, RandomStream.from_seed(3, "test"))
        assert weight.dtype == torch.complex64
        assert weight.shape == shape
        # At least 10^4 numbers: a standard deviation is known to 1 %.
        for part in (weight.real, weight.imag):
            assert part.std().item() == pytest.approx(math.sqrt(power / 2.0), rel=0.03)
        assert abs((weight.real * weight.imag).mean().item()) < 0.03 * power


def test_groups_that_do_not_divide_the_outputs_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="groups = 3"):
        glorot((4, 2, 3), 3, RandomStream.from_seed(1, "test"))
