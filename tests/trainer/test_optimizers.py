r"""Optimizers and schedules on real vectors, against torch's own on the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR

from zetadp.trainer.engine import initial_state, update
from zetadp.trainer.specs.descent import (
    Adam,
    AnyOptimizer,
    CorrectedAdam,
    Cosine,
    FedAdam,
    NAdam,
    RmsProp,
    Sgd,
    StepDecay,
)

STEPS = 9
TOLERANCE = 2e-6
"""Two or three float32 operations a step in another order, over nine steps of size 0.1."""

Theirs = Callable[[list[Tensor]], torch.optim.Optimizer]


def _gradients() -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(12, generator=generator) for _ in range(STEPS)]


def _ours(optimizer: AnyOptimizer) -> Tensor:
    parameters = torch.ones(12)
    state = initial_state(optimizer, parameters)
    for number, gradient in enumerate(_gradients(), start=1):
        parameters, state = update(optimizer, state, parameters, gradient, number, STEPS)
    return parameters


def _theirs(make: Theirs, schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None) -> Tensor:
    leaf = torch.ones(12)
    optimizer = make([leaf])
    scheduler = None if schedule is None else schedule(optimizer)
    for gradient in _gradients():
        leaf.grad = gradient.clone()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return leaf.detach()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Sgd(learning_rate=0.1), lambda leaves: torch.optim.SGD(leaves, lr=0.1)),
        (Sgd(learning_rate=0.1, momentum=0.9), lambda leaves: torch.optim.SGD(leaves, lr=0.1, momentum=0.9)),
        (Adam(learning_rate=0.1, beta1=0.8, beta2=0.95), lambda leaves: torch.optim.Adam(leaves, lr=0.1, betas=(0.8, 0.95))),
        (Adam(learning_rate=0.1, stabiliser=0.3), lambda leaves: torch.optim.Adam(leaves, lr=0.1, eps=0.3)),
        (NAdam(learning_rate=0.1), lambda leaves: torch.optim.NAdam(leaves, lr=0.1)),
        (
            NAdam(learning_rate=0.1, beta1=0.7, momentum_decay=0.1),
            lambda leaves: torch.optim.NAdam(leaves, 0.1, (0.7, 0.999), 1e-8, 0, 0.1),
        ),
        (RmsProp(learning_rate=0.1), lambda leaves: torch.optim.RMSprop(leaves, lr=0.1)),
        (RmsProp(learning_rate=0.1, decay=0.8, momentum=0.5), lambda leaves: torch.optim.RMSprop(leaves, lr=0.1, alpha=0.8, momentum=0.5)),
    ],
    ids=["sgd", "momentum", "adam", "adam stabiliser", "nadam", "nadam decay", "rmsprop", "rmsprop momentum"],
)
def test_an_optimizer_moves_as_torchs_own_does(ours: AnyOptimizer, theirs: Theirs) -> None:
    assert torch.allclose(_ours(ours), _theirs(theirs), rtol=0.0, atol=TOLERANCE)


def test_a_cosine_schedule_is_torchs() -> None:
    expected = _theirs(lambda leaves: torch.optim.SGD(leaves, lr=0.1), lambda found: CosineAnnealingLR(found, T_max=STEPS, eta_min=0.02))
    assert torch.allclose(_ours(Sgd(learning_rate=0.1, schedule=Cosine(final_share=0.2))), expected, rtol=0.0, atol=TOLERANCE)


def test_a_schedule_of_steps_is_torchs() -> None:
    expected = _theirs(lambda leaves: torch.optim.Adam(leaves, lr=0.1), lambda found: MultiStepLR(found, milestones=[3, 7], gamma=0.1))
    assert torch.allclose(_ours(Adam(learning_rate=0.1, schedule=StepDecay(after=(3, 7)))), expected, rtol=0.0, atol=TOLERANCE)


def test_steps_must_ascend() -> None:
    with pytest.raises(ValidationError, match=r"schedule\.after must be ascending step numbers"):
        StepDecay(after=(7, 3))


def test_fed_adam_is_reddis_second_algorithm() -> None:
    # Written out by hand for one coordinate: no bias correction, v starts at tau^2, tau beside the root.
    optimizer = FedAdam(learning_rate=0.5, beta1=0.6, beta2=0.9, tau=0.25)
    x, m, v = 1.0, 0.0, 0.25**2
    for gradient in _gradients():
        g = gradient[5].item()
        m, v = 0.6 * m + 0.4 * g, 0.9 * v + 0.1 * g * g
        x -= 0.5 * m / (math.sqrt(v) + 0.25)
    assert _ours(optimizer)[5].item() == pytest.approx(x, abs=5e-6)


def test_corrected_adam_takes_the_noises_variance_off_the_second_moment() -> None:
    # Written out by hand, as in algorithm 1 of Tang et al. 2023.
    optimizer = CorrectedAdam(learning_rate=0.5, beta1=0.6, beta2=0.9, floor=0.01)
    noise_std, found, state = 0.8, torch.ones(12), initial_state(optimizer, torch.ones(12))
    x, m, v, floored = 1.0, 0.0, 0.0, set[bool]()
    for step, gradient in enumerate(_gradients(), start=1):
        found, state = update(optimizer, state, found, gradient, step, STEPS, noise_std)
        g = gradient[5].item()
        m, v = 0.6 * m + 0.4 * g, 0.9 * v + 0.1 * g * g
        rest = v / (1.0 - 0.9**step) - noise_std**2
        floored.add(rest < 0.01)
        x -= 0.5 * m / (1.0 - 0.6**step) / math.sqrt(max(rest, 0.01))
    assert floored == {True, False}
    assert found[5].item() == pytest.approx(x, abs=5e-6)


ALL = [
    Sgd(learning_rate=0.1, momentum=0.5),
    Adam(learning_rate=0.1),
    CorrectedAdam(learning_rate=0.1, floor=1e-3),
    NAdam(learning_rate=0.1),
    RmsProp(learning_rate=0.1),
    FedAdam(learning_rate=0.1),
]


@pytest.mark.parametrize("optimizer", ALL, ids=lambda optimizer: optimizer.kind)
def test_an_update_leaves_its_inputs_alone(optimizer: AnyOptimizer) -> None:
    parameters, gradient = torch.ones(12), _gradients()[0]
    state = initial_state(optimizer, parameters)
    before = {name: value.clone() for name, value in state.items()}
    update(optimizer, state, parameters, gradient, 1, STEPS)
    assert (parameters == 1.0).all()
    assert torch.equal(gradient, _gradients()[0])
    assert all(torch.equal(state[name], value) for name, value in before.items())


def test_descent_without_momentum_keeps_nothing() -> None:
    """A copy of the last gradient would be as large as the parameters, in memory and in every checkpoint."""
    optimizer, parameters = Sgd(learning_rate=0.1), torch.ones(3)
    assert initial_state(optimizer, parameters) == {}
    assert update(optimizer, {}, parameters, torch.ones(3), 1, 10)[1] == {}
