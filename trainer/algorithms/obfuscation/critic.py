r"""The WGAN critic: its score of true features minus its score of features turned by a wrong angle (paper, eq. 8)."""

from __future__ import annotations

import math
from typing import Any, cast, final

import torch
from torch import Generator, Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.layers import aligned
from zetadp.trainer.models import real_layers
from zetadp.trainer.specs.models.layer_spec import Convolution, Linear
from zetadp.trainer.specs.models.parameter_counts import Shape
from zetadp.trainer.specs.obfuscation.methods import Critic, GradientPenalty

LEAK = 0.2
"""The slope of its activation below zero."""


@final
class CriticNetwork(nn.Module):
    """A convolution and a linear layer: features (records, channels, height, width) to scores (records,)."""

    def __init__(self, channels: int, feature: Shape, stream: RandomStream) -> None:
        super().__init__()
        # A stride of 2: otherwise three critic steps for each step of the network would cost more than the network.
        layer = Convolution(outputs=channels, kernel=3, stride=2, padding=1)
        self.convolution = real_layers.real_convolution(layer, feature, stream)
        numbers = channels * math.prod((size + 1) // 2 for size in feature[1:])
        self.linear = real_layers.real_linear(Linear(outputs=1), numbers, stream)

    def forward(self, feature: Tensor) -> Tensor:
        seen = nn.functional.leaky_relu(self.convolution(feature), LEAK)
        return self.linear(seen.flatten(1)).squeeze(1)


def wrong_angles(k: int, count: int, generator: Generator, device: torch.device) -> Tensor:
    r"""An angle Delta theta for each record, (count,): k - 1 of them, uniform in (0, pi), taken in turn.

    The paper draws them once, and iterates; here they are new in every step, so that all angles occur. Every record of a batch meets one.
    """
    drawn = math.pi * torch.rand(k - 1, generator=generator, device=generator.device).to(device)
    return drawn[torch.arange(count, device=device) % (k - 1)]


def faked(feature: Tensor, counterpart: Tensor, wrong: Tensor) -> Tensor:
    """a' = Re[(a + i b) e^(i Delta theta)], of the features' shape."""
    return aligned(wrong.cos(), feature) * feature - aligned(wrong.sin(), feature) * counterpart


def adversarial_loss(critic: nn.Module, feature: Tensor, fake: Tensor) -> Tensor:
    r"""L of eq. (8), which the critic makes large and the encoder small, over the root of the coordinates of a feature.

    A critic of slope 1 sees features as far apart as their l2 distance, which grows with that root: the task's loss would be negligible
    next to it. So the distance is the root mean square over coordinates, and a weight means the same for features of any size.
    """
    scores = critic(torch.cat((feature, fake)))
    return (scores[: len(feature)].mean() - scores[len(feature) :].mean()) / math.sqrt(feature[0].numel())


def critic_loss(critic: nn.Module, spec: Critic, feature: Tensor, fake: Tensor, generator: Generator) -> Tensor:
    """The loss that the critic minimises: -L, and the gradient penalty if it has one."""
    loss = -adversarial_loss(critic, feature, fake)
    if not isinstance(spec.constraint, GradientPenalty):
        return loss
    share = aligned(torch.rand(len(feature), generator=generator, device=generator.device).to(feature.device), feature)
    between = (share * feature + (1.0 - share) * fake).detach().requires_grad_()
    (slope,) = cast("Any", torch.autograd.grad)(critic(between).sum(), between, create_graph=True)
    return loss + spec.constraint.weight * (slope.flatten(1).norm(dim=1) - 1.0).square().mean()
