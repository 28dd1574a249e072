r"""Toy networks whose truth is known: features that are drawn, or random kernels on digits with a decoder fitted by least squares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Generator, Tensor
from torch.nn import functional

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.target import Encoded, Ground, Scheme
from zetadp.trainer.data.digits import Digits
from zetadp.trainer.specs.findings.attacks import AttackEffort

TURN = 2.0 * math.pi


def generator(seed: int) -> Generator:
    """On the CPU."""
    return torch.Generator().manual_seed(seed)


def seed_stream(seed: int) -> Callable[[str], Generator]:
    """The same generator for the same purpose."""
    return lambda purpose: generator(1000 * seed + sum(purpose.encode()))


def turned(feature: Tensor, counterpart: Tensor, theta: Tensor) -> Tensor:
    """e^(i theta) (a + i b)."""
    phase = torch.polar(torch.ones_like(theta), theta).view(-1, *[1] * (feature.dim() - 1))
    return phase * torch.complex(feature, counterpart)


@final
class Plain:
    r"""a is the image itself, flattened; b another record's, or drawn anew.

    Args:
      drawn: makes a b (records, coordinates) of its own; None for another record of the same call.
      noise: standard deviation on a.
      dtype: of features; complex of the same precision.
    """

    def __init__(
        self, drawn: Callable[[tuple[int, int], Generator], Tensor] | None = None, noise: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        self._drawn, self._noise, self._dtype = drawn, noise, dtype

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(1).to(self._dtype)

    def encode(self, images: Tensor, generator: Generator) -> Encoded:
        feature = self.features(images)
        feature = feature + self._noise * torch.randn(feature.shape, generator=generator, dtype=self._dtype)
        theta = TURN * torch.rand(len(images), generator=generator, dtype=self._dtype)
        if self._drawn is not None:
            counterpart = self._drawn((len(feature), feature.shape[1]), generator).to(self._dtype)
            return Encoded(turned(feature, counterpart, theta), theta, feature, counterpart, None)
        others = another(len(images), generator)
        counterpart = self.features(images)[others]
        return Encoded(turned(feature, counterpart, theta), theta, feature, counterpart, others)

    def process(self, sent: Tensor) -> Tensor:
        return sent

    def decide(self, processed: Tensor) -> Tensor:
        return processed[:, :2]


@final
class RandomConvolution:
    r"""Fixed random 3 x 3 kernels and ReLU; Phi is the identity, d the least-squares classifier of public features.

    Args:
      ground: whose public images and labels fit d.
      noise: standard deviation on a; ``on_b``: on b.
      counterparts: of a public record where "public", else of another record of the same call.
      plain: x is a itself, at angle 0.
    """

    def __init__(self, ground: Ground, *, noise: float = 0.0, on_b: float = 0.0, public: bool = False, plain: bool = False) -> None:
        self._kernels = torch.randn((8, 1, 3, 3), generator=generator(1)) / 3.0
        self._noise, self._on_b, self._plain = noise, on_b, plain
        features = self.features(ground.public_images)
        self._public = features if public else None
        wanted = functional.one_hot(ground.public_labels, ground.classes).double()
        rows = _with_one(features.flatten(1).double())
        gram = rows.T @ rows + 10.0 * torch.eye(rows.shape[1], dtype=torch.float64)
        self._weights = torch.linalg.solve(gram, rows.T @ wanted).float()

    def features(self, images: Tensor) -> Tensor:
        return functional.conv2d(images, self._kernels, padding=1).relu()

    def encode(self, images: Tensor, generator: Generator) -> Encoded:
        clean = self.features(images)
        feature = clean + self._noise * torch.randn(clean.shape, generator=generator)
        theta = TURN * torch.rand(len(images), generator=generator)
        if self._plain:
            return Encoded(torch.complex(feature, torch.zeros_like(feature)), 0.0 * theta, feature, torch.zeros_like(feature), None)
        if self._public is None:
            others = another(len(images), generator)
            counterpart = clean[others]
        else:
            others, places = None, torch.randint(len(self._public), (len(images),), generator=generator)
            counterpart = self._public[places]
        counterpart = counterpart + self._on_b * torch.randn(clean.shape, generator=generator)
        return Encoded(turned(feature, counterpart, theta), theta, feature, counterpart, others)

    def process(self, sent: Tensor) -> Tensor:
        return sent

    def decide(self, processed: Tensor) -> Tensor:
        return 10.0 * (_with_one(processed.flatten(1)) @ self._weights)


def another(records: int, source: Generator) -> Tensor:
    """For each record a different one."""
    shift = torch.randint(1, records, (records,), generator=source)
    return (torch.arange(records) + shift) % records


def digits(victims: int = 597) -> Ground:
    """1176 public digits and up to 597 victims; the property is whether a digit is even."""
    data = Digits(split_seed=0, test_fraction=0.332, split_by="position").read()
    public, labels = torch.from_numpy(data.training_features), torch.from_numpy(data.training_targets)
    held_out, truth = torch.from_numpy(data.test_features)[:victims], torch.from_numpy(data.test_targets)[:victims]
    return Ground(public, labels, labels % 2, held_out, truth, truth % 2, 10, 2)


def made_up(public: Tensor, victims: Tensor) -> Ground:
    """Rows (records, coordinates) as images of one channel and one column; labels are 0 and 1 in turn."""

    def images(rows: Tensor) -> Tensor:
        return rows[:, None, :, None]

    def labels(rows: Tensor) -> Tensor:
        return torch.arange(len(rows)) % 2

    return Ground(images(public), labels(public), labels(public), images(victims), labels(victims), labels(victims), 2, 2)


def attacker(scheme: Scheme, ground: Ground, effort: AttackEffort | None = None) -> Attacker:
    """Who is never stopped."""
    return Attacker(scheme, ground, effort or AttackEffort(), seed_stream(7), lambda: None)


def _with_one(rows: Tensor) -> Tensor:
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
