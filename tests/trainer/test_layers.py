r"""Complex layers: values at known points, gradients everywhere and at 0, against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers import ACTIVATIONS, ComplexLinear, Elementwise, cardioid, crelu, magnitude, magnitude_softmax, real_part

HEADS = {"magnitude": magnitude, "real_part": real_part, "magnitude_softmax": magnitude_softmax}
NETWORKS = [("cardioid", "magnitude"), ("crelu", "real_part"), ("igaussian", "magnitude_softmax"), ("conj_mish", "magnitude")]


def _network(activation: str, head: str) -> torch.nn.Module:
    stream, layers = RandomStream.from_seed(5, "test"), torch.nn.Sequential()
    for inputs, outputs in ((3, 5), (5, 4), (4, 2)):
        layers.append(ComplexLinear(inputs, outputs, stream))
        layers.append(ACTIVATIONS[activation](outputs) if outputs != 2 else Elementwise(HEADS[head]))
    return layers


@pytest.mark.parametrize(
    ("z", "expected"),
    [(2 + 0j, 2 + 0j), (-2 + 0j, 0j), (2j, 1j), (3 + 4j, 0.8 * (3 + 4j)), (0j, 0j)],
    ids=["east", "west", "north", "general", "zero"],
)
def test_cardioid_weighs_by_half_of_one_plus_cosine_of_the_angle(z: complex, expected: complex) -> None:
    assert cardioid(torch.tensor(z)).item() == pytest.approx(expected, abs=1e-6)


def test_crelu_rectifies_both_parts() -> None:
    assert crelu(torch.tensor([1 - 2j, -1 + 2j])).tolist() == [1 + 0j, 0 + 2j]


def test_heads_give_magnitude_and_real_part() -> None:
    z = torch.tensor([3 + 4j, -1 + 0j, 0j])
    assert magnitude(z).tolist() == [5.0, 1.0, 0.0]
    assert real_part(z).tolist() == [3.0, -1.0, 0.0]


@pytest.mark.parametrize(
    "function",
    [lambda z: cardioid(z).real, lambda z: crelu(z).real, magnitude, real_part],
    ids=["cardioid", "crelu", "magnitude", "real_part"],
)
@pytest.mark.parametrize("z", [0j, 1e-30 + 0j, 1e-23 + 1e-23j, -1e-20j], ids=str)
def test_gradient_is_finite_at_and_near_zero(function: Callable[[Tensor], Tensor], z: complex) -> None:
    gradient = vmap(grad(lambda x: function(x).sum()))(torch.tensor([z], dtype=torch.complex64))
    assert torch.isfinite(torch.view_as_real(gradient)).all()
    assert gradient.abs().item() <= 1.5


@pytest.mark.parametrize(("activation", "head"), NETWORKS)
def test_gradient_of_a_black_record_through_zero_weights_is_finite(activation: str, head: str) -> None:
    network = _network(activation, head)
    zeros = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    gradients = grad(
        lambda p: torch.nn.functional.cross_entropy(functional_call(network, p, (torch.zeros(3, dtype=torch.complex64),)), torch.tensor(0))
    )(zeros)
    assert all(torch.isfinite(torch.view_as_real(gradient)).all() for gradient in gradients.values())


def test_linear_layer_takes_no_conjugate() -> None:
    layer = ComplexLinear(1, 1, RandomStream.from_seed(1, "test"))
    parameters = {"weight": torch.tensor([[2 + 1j]]), "bias": torch.tensor([1j])}
    assert functional_call(layer, parameters, (torch.tensor([1j]),)).item() == (2 + 1j) * 1j + 1j


@pytest.mark.parametrize(("activation", "head"), NETWORKS)
def test_gradient_is_the_full_real_gradient_by_finite_differences(activation: str, head: str) -> None:
    # (1 + 2i) W is not symmetric under conjugation: JAX's convention or a missing conjugate would fail here.
    network = _network(activation, head)
    generator = torch.Generator().manual_seed(0)
    record = torch.view_as_complex(torch.randn(3, 2, dtype=torch.float64, generator=generator))
    parameters = {
        name: value.detach().to(torch.complex128)
        + 0.1 * torch.view_as_complex(torch.randn(*value.shape, 2, dtype=torch.float64, generator=generator))
        for name, value in network.named_parameters()
    }

    def loss(p: dict[str, Tensor]) -> Tensor:
        twisted = {name: (1 + 2j) * value if name == "0.weight" else value for name, value in p.items()}
        return torch.nn.functional.cross_entropy(functional_call(network, twisted, (record,)), torch.tensor(1))

    gradients = grad(loss)(parameters)
    h = 1e-6
    for name, value in parameters.items():
        for index in range(value.numel()):
            for direction, part in ((1.0, "real"), (1j, "imag")):
                move = torch.zeros(value.numel(), dtype=torch.complex128)
                move[index] = h * direction
                ahead, behind = (loss({**parameters, name: value + sign * move.reshape(value.shape)}).item() for sign in (1.0, -1.0))
                got = getattr(gradients[name].reshape(-1)[index], part).item()
                assert got == pytest.approx((ahead - behind) / (2 * h), abs=1e-7), (name, index, part)


def test_gradient_of_a_squared_magnitude_is_twice_the_number() -> None:
    assert grad(lambda z: (z * z.conj()).real)(torch.tensor(3 + 4j)).item() == 6 + 8j


def test_initial_weights_have_glorot_variance_in_each_real_component() -> None:
    weight = ComplexLinear(300, 100, RandomStream.from_seed(2, "test")).weight.detach()
    expected = 1.0 / math.sqrt(400)
    assert weight.real.std().item() == pytest.approx(expected, rel=0.02)
    assert weight.imag.std().item() == pytest.approx(expected, rel=0.02)
    assert abs((weight.real * weight.imag).mean().item()) < 0.02 * expected**2
