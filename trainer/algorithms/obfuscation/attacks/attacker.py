r"""Who attacks: everything that an attack may use, and how it draws batches and encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from zetadp.trainer.algorithms.obfuscation.target import Encoded, Ground, Scheme
from zetadp.trainer.specs.findings.attacks import AttackEffort

CHUNK = 256
"""The number of records that go through the network at once."""


@final
@dataclass(frozen=True)
class Attacker:
    r"""Scheme, images and effort of one round of attacks.

    Attributes:
      scheme: the scheme under attack.
      ground: its victims are exactly those that are attacked.
      effort: how hard the learned attacks try.
      seed_stream: a generator for each purpose, so that no attack's draws depend on which others run.
      tick: called between pieces of work; raises to stop.
    """

    scheme: Scheme
    ground: Ground
    effort: AttackEffort
    seed_stream: Callable[[str], Generator]
    tick: Callable[[], None]

    def encode(self, images: Tensor, generator: Generator) -> Encoded:
        """Encodes any number of images in chunks; a counterpart then comes from the same chunk."""
        parts: list[Encoded] = []
        with torch.no_grad():
            for start, chunk in self._chunks(images):
                part = self.scheme.encode(chunk, generator)
                counterparts = None if part.counterparts is None else part.counterparts + start
                parts.append(Encoded(part.sent, part.theta, part.feature, part.counterpart, counterparts))
        return joined(parts)

    def features(self, images: Tensor) -> Tensor:
        """a = g(I) without noise (records, *feature)."""
        with torch.no_grad():
            return torch.cat([self.scheme.features(chunk) for _, chunk in self._chunks(images)])

    def in_chunks(self, work: Callable[[Tensor], Tensor], rows: Tensor, size: int = CHUNK) -> Tensor:
        """``work`` on all rows, some at a time, without gradients."""
        parts: list[Tensor] = []
        with torch.no_grad():
            for part in rows.split(size):
                parts.append(work(part))
                self.tick()
        return torch.cat(parts)

    def batch_of(self, count: int, generator: Generator) -> Tensor:
        """Different indices below ``count``, as many as a batch has."""
        order = torch.randperm(count, generator=generator, device=generator.device)
        return order[: self.effort.batch_size].to(self.ground.public_images.device)

    def _chunks(self, images: Tensor) -> Iterator[tuple[int, Tensor]]:
        start = 0
        while start < len(images):
            # No chunk of one record: it would have no other as counterpart.
            size = CHUNK if len(images) - start != CHUNK + 1 else CHUNK + 1
            yield start, images[start : start + size]
            start += size
            self.tick()


def joined(parts: list[Encoded]) -> Encoded:
    """The parts, concatenated."""
    counterparts = [part.counterparts for part in parts if part.counterparts is not None]
    return Encoded(
        torch.cat([part.sent for part in parts]),
        torch.cat([part.theta for part in parts]),
        torch.cat([part.feature for part in parts]),
        torch.cat([part.counterpart for part in parts]),
        torch.cat(counterparts) if len(counterparts) == len(parts) else None,
    )


def turned_back(sent: Tensor, angles: Tensor) -> Tensor:
    """Re[x e^(-i angle)] of (records, *any) and angles (records,)."""
    shape = (len(sent), *[1] * (sent.dim() - 1))
    return sent.real * angles.cos().view(shape) + sent.imag * angles.sin().view(shape)


def most_frequent(labels: Tensor, of: int) -> int:
    """The guess of somebody who sees nothing but the public labels."""
    return int(torch.bincount(labels, minlength=of).argmax())
