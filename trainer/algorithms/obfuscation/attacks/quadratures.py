r"""The learned angle attack: which turn makes both planes of x genuine (errata O9)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from zetadp.trainer.algorithms.obfuscation.attacks.angles import TURN
from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.attacks.networks import Quadratures, train, weights_of

TURNS = 12
"""Angles that are compared for each encoding in a step of training, ``CLOSE`` of them near the true one."""

CLOSE = 6
_SPREAD = 0.3
"""Standard deviation of the close ones, in radians."""

SHARPNESS = 30.0
"""kappa: the score to learn is kappa cos(phi - theta) + const, so that a parabola fits its peak."""

_AT_ONCE = 2**22
"""How many numbers of a layer are held at once in a sweep."""


def learn(attacker: Attacker, purpose: str) -> Quadratures:
    r"""A discriminator trained on encodings of public images, whose angles the attacker drew.

    Of some turns phi of each x, those nearer to theta are to be preferred: cross-entropy of softmax scores against softmax of
    kappa cos(phi - theta).
    """
    generator = attacker.seed_stream(purpose)
    images = attacker.ground.public_images
    first = attacker.encode(images[: 4 * attacker.effort.batch_size], generator)
    module = Quadratures(tuple(first.sent.shape[1:]), _scale(first.sent), generator).to(images.device)

    def loss() -> Tensor:
        with torch.no_grad():
            known = attacker.scheme.encode(images[attacker.batch_of(len(images), generator)], generator)
            off = _offsets(len(known.sent), generator).to(images.device)
            wanted = (SHARPNESS * off.cos()).softmax(dim=1)
        return functional.cross_entropy(module(known.sent, known.theta[:, None] + off), wanted)

    train(module, loss, steps=attacker.effort.steps, learning_rate=attacker.effort.learning_rate, tick=attacker.tick)
    return module


def sweep(attacker: Attacker, module: Quadratures, sent: Tensor) -> Tensor:
    r"""Estimates of theta (records,): the best of the angles, refined by the parabola through it and its two neighbours."""
    count = attacker.effort.angles
    angles = torch.arange(count, device=sent.device, dtype=sent.real.dtype) * (TURN / count)
    rows = max(1, _AT_ONCE // (count * max(64, module.outputs)))
    return attacker.in_chunks(lambda part: _peak(module(part, angles.expand(len(part), count)), TURN / count), sent, rows)


def in_words(module: Quadratures, attacker: Attacker) -> str:
    """A description of the attacker, for the findings."""
    effort = attacker.effort
    return (
        f"two-quadrature discriminator, {weights_of(module)} weights, {effort.steps} steps of Adam on fresh encodings of public images; "
        f"{effort.angles} angles per victim and a parabola fit"
    )


def _peak(scores: Tensor, spacing: float) -> Tensor:
    """Of scores (records, angles) at equally spaced angles around the circle from 0 on."""
    count = scores.shape[1]
    best = scores.argmax(dim=1)
    around = torch.stack([(best - 1) % count, best, (best + 1) % count], dim=1)
    before, at, after = scores.gather(1, around).double().unbind(dim=1)
    bend = before - 2.0 * at + after
    # Equal scores have no peak between them: the angle itself is the guess.
    shift = torch.where(bend < 0.0, 0.5 * (before - after) / torch.where(bend < 0.0, bend, -1.0), 0.0).clamp(-0.5, 0.5)
    return spacing * (best + shift)


def _offsets(records: int, generator: Generator) -> Tensor:
    """phi - theta (records, turns): near 0, and one in each equal part of the circle."""
    close = _SPREAD * torch.randn(records, CLOSE, generator=generator, device=generator.device)
    wide = TURNS - CLOSE
    places = torch.arange(wide, device=generator.device)
    spread = (places + torch.rand(records, wide, generator=generator, device=generator.device)) * (TURN / wide)
    return torch.cat([close, spread], dim=1)


def _scale(sent: Tensor) -> Tensor:
    """Root mean square of each channel's magnitudes, which no turn changes; 1 for a channel that is always 0."""
    axes = [axis for axis in range(sent.dim()) if axis != 1]
    size = sent.abs().square().mean(dim=axes, keepdim=True).sqrt()[0]
    return torch.where(size > 0.0, size, 1.0)
