r"""Optimizers as pure functions of the released gradient: post-processing, so they cost no privacy.

State and parameters are flat real vectors; a complex parameter is stored as its real pairs, and each component is updated separately.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zetadp.trainer.specs.descent import Adam, AnyOptimizer, CorrectedAdam, FedAdam, NAdam, RmsProp, Sgd

LARGEST_RATE = 1e37

OptimizerState = dict[str, Tensor]

MOMENTUM, FIRST, SECOND, PRODUCT = "momentum", "first_moment", "second_moment", "momentum_product"


def initial_state(optimizer: AnyOptimizer, parameters: Tensor) -> OptimizerState:
    """The state before the first step, tensors of the parameters' shape (coordinates,): zeros, or what the optimizer's source says."""
    match optimizer:
        case Sgd():
            names = (MOMENTUM,) if optimizer.momentum else ()
        case RmsProp():
            names = (MOMENTUM, SECOND)
        case Adam() | NAdam() | CorrectedAdam() | FedAdam():
            names = (FIRST, SECOND)
    # Separate tensors: checkpoints can't hold one tensor under two names.
    state = {name: torch.zeros_like(parameters) for name in names}
    if isinstance(optimizer, NAdam):
        state[PRODUCT] = torch.ones((), dtype=torch.float64)
    if isinstance(optimizer, FedAdam):
        # Reddi et al. 2021, Algorithm 2: v_{-1} >= tau^2.
        state[SECOND].fill_(optimizer.tau**2)
    return state


def update(
    optimizer: AnyOptimizer,
    state: OptimizerState,
    parameters: Tensor,
    gradient: Tensor,
    step: int,
    steps: int,
    noise_std: float = 0.0,
    into: Tensor | None = None,
) -> tuple[Tensor, OptimizerState]:
    r"""Parameters and state after ``step`` (from 1) of ``steps``, as new tensors.

    Args:
      noise_std: on each coordinate of the gradient.
      into: memory for the new parameters, of their shape and type; it may be the gradient's.
    """
    rate = optimizer.learning_rate * optimizer.schedule.factor(step, steps)
    # A rate that float32 can't hold becomes infinite, and the run diverges, as it would in torch's own arithmetic.
    rate = rate if rate <= LARGEST_RATE else math.inf
    match optimizer:
        case Sgd():
            following = {MOMENTUM: torch.add(gradient, state[MOMENTUM], alpha=optimizer.momentum)} if optimizer.momentum else {}
            return torch.sub(parameters, following.get(MOMENTUM, gradient), alpha=rate, out=into), following
        case RmsProp():
            second = _square_mean(state[SECOND], gradient, optimizer.decay)
            scaled = gradient / second.sqrt().add_(optimizer.stabiliser)
            momentum = scaled.add_(state[MOMENTUM], alpha=optimizer.momentum)
            return torch.sub(parameters, momentum, alpha=rate, out=into), {MOMENTUM: momentum, SECOND: second}
        case Adam():
            first, second = _moments(state, gradient, optimizer.beta1, optimizer.beta2)
            scale = _unbiased_root(second, optimizer.beta2, step).add_(optimizer.stabiliser)
            moved = torch.addcdiv(parameters, first, scale, value=-rate / (1.0 - optimizer.beta1**step), out=into)
            return moved, {FIRST: first, SECOND: second}
        case CorrectedAdam():
            first, second = _moments(state, gradient, optimizer.beta1, optimizer.beta2)
            scale = (second / (1.0 - optimizer.beta2**step)).sub_(noise_std**2).clamp_(min=optimizer.floor).sqrt_()
            moved = torch.addcdiv(parameters, first, scale, value=-rate / (1.0 - optimizer.beta1**step), out=into)
            return moved, {FIRST: first, SECOND: second}
        case NAdam():
            return _nadam(optimizer, state, parameters, gradient, step, rate, into)
        case FedAdam():
            first, second = _moments(state, gradient, optimizer.beta1, optimizer.beta2)
            moved = torch.addcdiv(parameters, first, second.sqrt().add_(optimizer.tau), value=-rate, out=into)
            return moved, {FIRST: first, SECOND: second}


def _nadam(
    optimizer: NAdam, state: OptimizerState, parameters: Tensor, gradient: Tensor, step: int, rate: float, into: Tensor | None
) -> tuple[Tensor, OptimizerState]:
    # Dozat 2016, section 2.2, with torch's momentum schedule.
    momentum, following = (optimizer.beta1 * (1.0 - 0.5 * 0.96 ** (number * optimizer.momentum_decay)) for number in (step, step + 1))
    product = state[PRODUCT] * momentum
    first, second = _moments(state, gradient, optimizer.beta1, optimizer.beta2)
    scale = _unbiased_root(second, optimizer.beta2, step).add_(optimizer.stabiliser)
    moved = torch.addcdiv(parameters, gradient, scale, value=-rate * (1.0 - momentum) / (1.0 - product.item()), out=into)
    moved.addcdiv_(first, scale, value=-rate * following / (1.0 - product.item() * following))
    return moved, {FIRST: first, SECOND: second, PRODUCT: product}


def _moments(state: OptimizerState, gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    return torch.lerp(state[FIRST], gradient, 1.0 - beta1), _square_mean(state[SECOND], gradient, beta2)


def _square_mean(earlier: Tensor, gradient: Tensor, decay: float) -> Tensor:
    return torch.mul(earlier, decay).addcmul_(gradient, gradient, value=1.0 - decay)


def _unbiased_root(second: Tensor, beta2: float, step: int) -> Tensor:
    # Kingma and Ba 2015, section 3.
    return second.sqrt().div_((1.0 - beta2**step) ** 0.5)
