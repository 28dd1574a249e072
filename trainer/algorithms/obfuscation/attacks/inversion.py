r"""Images from what is sent: with an angle, estimated or true, and straight from both planes (paper, section 4.3).

Errors are means of squared differences per pixel of images in [0, 1]: from the smallest to the largest pixel of the public images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.attacks.networks import Reconstruction, train, weights_of
from zetadp.trainer.algorithms.obfuscation.target import Encoded
from zetadp.trainer.specs.findings.attacks import AttackFigure

Planes = Callable[[Encoded], Tensor]
"""What a reconstruction is made from (records, channels, ...)."""

_ROWS = 64


def with_angle(encoded: Encoded) -> Tensor:
    """a as it was turned, with its noise: what the right angle gives back."""
    return encoded.feature


def as_sent(encoded: Encoded) -> Tensor:
    """Both planes of x."""
    return both_planes(encoded.sent)


def both_planes(sent: Tensor) -> Tensor:
    """Re x and Im x as channels."""
    return torch.cat([sent.real, sent.imag], dim=1)


class Pixels:
    """Images brought to [0, 1], and how far others are off."""

    def __init__(self, public: Tensor) -> None:
        self._low = public.min()
        span = public.max() - self._low
        self._span = torch.where(span > 0.0, span, 1.0)
        self.mean = self.of(public).mean(dim=0)

    def of(self, images: Tensor) -> Tensor:
        """Victims' pixels beyond the public range stay beyond it."""
        return (images - self._low) / self._span

    def errors(self, guesses: Tensor, images: Tensor) -> Tensor:
        """Mean squared errors (records,) of guesses in [0, 1]."""
        return (guesses - self.of(images)).square().flatten(1).mean(dim=1)


def learn(attacker: Attacker, planes: Planes, pixels: Pixels, purpose: str) -> Reconstruction:
    """A U-net trained on fresh encodings of public images."""
    generator = attacker.seed_stream(purpose)
    images, effort = attacker.ground.public_images, attacker.effort
    first = attacker.encode(images[: 4 * effort.batch_size], generator)
    module = Reconstruction(planes(first), tuple(images.shape[1:]), generator).to(images.device)

    def loss() -> Tensor:
        with torch.no_grad():
            batch = images[attacker.batch_of(len(images), generator)]
            known = planes(attacker.scheme.encode(batch, generator))
        return functional.mse_loss(module(known), pixels.of(batch))

    train(module, loss, steps=effort.inversion_steps, learning_rate=effort.learning_rate, tick=attacker.tick)
    return module


def reconstructed(attacker: Attacker, module: Reconstruction, planes: Tensor) -> Tensor:
    """Images in [0, 1]; NaN, from an attacker that diverged, becomes black and counts."""
    return attacker.in_chunks(lambda part: module(part).nan_to_num(nan=0.0).clamp(0.0, 1.0), planes, _ROWS)


def mean_image_errors(attacker: Attacker, pixels: Pixels) -> Tensor:
    """The errors of somebody who sees nothing (victims,)."""
    return pixels.errors(pixels.mean, attacker.ground.victim_images)


def mean_image_figure(errors: Tensor, figures: Figures) -> AttackFigure:
    """The chance level, as a figure of its own."""
    return figures.mean("inversion_mean_image", "mean_squared_error", errors, chance=float(errors.double().mean()))


def in_words(module: Reconstruction, attacker: Attacker, source: str) -> str:
    """A description of the attacker, for the findings."""
    steps = attacker.effort.inversion_steps
    return f"U-net of two sizes, {weights_of(module)} weights, {steps} steps of Adam from {source} of fresh encodings of public images"
