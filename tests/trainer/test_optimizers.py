r"""Optimizers on real pairs, against torch's own on the same real numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer.engine import initial_state, update
from trainer.zeta_dp_sgd.spec import Adam, Sgd


def _gradients() -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.view_as_complex(torch.randn(6, 2, generator=generator)) for _ in range(5)]


def _ours(optimizer: Sgd | Adam, parameters: Tensor) -> Tensor:
    state = initial_state(optimizer, parameters)
    for number, gradient in enumerate(_gradients(), start=1):
        parameters, state = update(optimizer, state, parameters, gradient, number)
    return parameters


def _theirs(optimizer: torch.optim.Optimizer, leaf: Tensor) -> Tensor:
    for gradient in _gradients():
        leaf.grad = torch.view_as_real(gradient).clone()
        optimizer.step()
    return torch.view_as_complex(leaf.detach())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_moves_real_pairs_as_torch_moves_reals(momentum: float) -> None:
    leaf = torch.ones(6, 2)
    expected = _theirs(torch.optim.SGD([leaf], lr=0.1, momentum=momentum), leaf)
    assert torch.allclose(_ours(Sgd(learning_rate=0.1, momentum=momentum), torch.full((6,), 1 + 1j)), expected, atol=1e-6)


def test_adam_moves_real_pairs_as_torch_moves_reals() -> None:
    leaf = torch.ones(6, 2)
    expected = _theirs(torch.optim.Adam([leaf], lr=0.1, betas=(0.8, 0.95)), leaf)
    assert torch.allclose(_ours(Adam(learning_rate=0.1, beta1=0.8, beta2=0.95), torch.full((6,), 1 + 1j)), expected, atol=1e-5)


@pytest.mark.parametrize("optimizer", [Sgd(learning_rate=0.1, momentum=0.5), Adam(learning_rate=0.1)], ids=["sgd", "adam"])
def test_an_update_leaves_its_inputs_alone(optimizer: Sgd | Adam) -> None:
    parameters, gradient = torch.full((6,), 1 + 1j), _gradients()[0]
    state = initial_state(optimizer, parameters)
    update(optimizer, state, parameters, gradient, 1)
    assert (parameters == 1 + 1j).all()
    assert not any(value.any() for value in state.values())
