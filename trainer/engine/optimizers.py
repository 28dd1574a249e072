r"""Optimizers as pure functions of the released gradient: post-processing, so they cost no privacy.

State and parameters are flat complex vectors; an optimizer that squares works on their real pairs, each component by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.zeta_dp_sgd.spec import Adam, Sgd

ADAM_EPSILON = 1e-8
"""Kingma and Ba 2015, Algorithm 1: keeps the quotient finite where no gradient has been seen yet."""

OptimizerState = dict[str, Tensor]


def initial_state(optimizer: Sgd | Adam, parameters: Tensor) -> OptimizerState:
    """Zeros, of shape (coordinates, 2), float32."""
    names = ("momentum",) if isinstance(optimizer, Sgd) else ("first_moment", "second_moment")
    return {name: torch.zeros_like(torch.view_as_real(parameters)) for name in names}


def update(optimizer: Sgd | Adam, state: OptimizerState, parameters: Tensor, gradient: Tensor, step: int) -> tuple[Tensor, OptimizerState]:
    """Parameters and state after ``step`` (counted from 1), as new tensors."""
    pairs, slope = torch.view_as_real(parameters), torch.view_as_real(gradient)
    if isinstance(optimizer, Sgd):
        momentum = optimizer.momentum * state["momentum"] + slope
        return torch.view_as_complex(pairs - optimizer.learning_rate * momentum), {"momentum": momentum}
    first = optimizer.beta1 * state["first_moment"] + (1.0 - optimizer.beta1) * slope
    second = optimizer.beta2 * state["second_moment"] + (1.0 - optimizer.beta2) * slope.square()
    unbiased = (second / (1.0 - optimizer.beta2**step)).sqrt()
    move = optimizer.learning_rate / (1.0 - optimizer.beta1**step) * first / (unbiased + ADAM_EPSILON)
    return torch.view_as_complex(pairs - move), {"first_moment": first, "second_moment": second}
