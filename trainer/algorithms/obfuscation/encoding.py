r"""From a feature to what is sent: clipped, noisy, with a counterpart, rotated. Differentiable, so that training uses the same path.

Random numbers come from torch's generators, seeded by the caller. They aren't cryptographic: what is released of protected records isn't
encoded here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.layers import aligned
from zetadp.trainer.specs.obfuscation.methods import Method, Noisy, NoisyRotation

REDRAWS = 16
"""Attempts at drawing counterparts before those that are still alike are chosen one by one."""

LARGEST_ANGLE = 6.2831845
"""The float32 before 2 pi's own, which is above 2 pi."""


def angles(count: int, generator: Generator, device: torch.device) -> Tensor:
    """Secret angles in [0, 2 pi), float32 (count,)."""
    drawn = torch.rand(count, generator=generator, device=generator.device) * (2.0 * math.pi)
    # torch's uniforms are below 1 by 2^-24 at least, which a float32 near 2 pi may lose.
    return drawn.clamp_(max=LARGEST_ANGLE).to(device)


def others(images: Tensor, generator: Generator) -> Tensor:
    r"""For each record another one with a different image, int64 (records,): one cycle through all records where images differ.

    Args:
      images: which image each record has, (records,), the same number for the same image; at least two different ones.
    """
    kinds = images.cpu()
    chosen, alike = _cycle(kinds, generator)
    for _ in range(REDRAWS):
        if not len(alike):
            return chosen.to(images.device)
        chosen, alike = _cycle(kinds, generator)
    # Too many are alike for a draw to separate them: each of them gets any record with another image.
    for place in alike.tolist():
        different = (kinds != kinds[place]).nonzero().reshape(-1)
        chosen[place] = different[_integers(len(different), 1, generator)]
    return chosen.to(images.device)


def _cycle(kinds: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The next record in one random cycle through all of them, and the records whose next one has the same image."""
    order = torch.randperm(len(kinds), generator=generator, device=generator.device).cpu()
    following = torch.empty_like(order)
    following[order] = order.roll(-1)
    return following, (kinds[following] == kinds).nonzero().reshape(-1)


def strangers(images: Tensor, public: Tensor, generator: Generator) -> Tensor:
    r"""For each image the number of a public one that isn't the same image, int64 (records,), uniform but for that.

    Args:
      images: (records, channels, height, width).
      public: likewise, at least two different ones.
    """
    chosen = _integers(len(public), len(images), generator).to(public.device)
    for _ in range(REDRAWS):
        alike = (public[chosen] == images).flatten(1).all(dim=1).nonzero().reshape(-1)
        if not len(alike):
            return chosen
        chosen[alike] = _integers(len(public), len(alike), generator).to(public.device)
    for place in (public[chosen] == images).flatten(1).all(dim=1).nonzero().reshape(-1).tolist():
        different = (public != images[place]).flatten(1).any(dim=1).nonzero().reshape(-1)
        chosen[place] = different[_integers(len(different), 1, generator).to(different.device)]
    return chosen


@final
@dataclass(frozen=True)
class FeatureLaw:
    """Mean and deviation of each coordinate of public features, (*feature): what a synthetic counterpart is drawn from."""

    mean: Tensor
    deviation: Tensor

    @staticmethod
    def of(pieces: Iterable[Tensor]) -> FeatureLaw:
        """Of all features of the pieces, (records, *feature) each, by which nothing is differentiated."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for piece in pieces:
            given = piece.detach().double()
            count, total, squares = count + len(given), given.sum(dim=0) + total.to(given), given.square().sum(dim=0) + squares.to(given)
        mean = total / count
        return FeatureLaw(mean.float(), (squares / count - mean.square()).clamp_(min=0.0).sqrt_().float())

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Normal counterparts with independent coordinates, (count, *feature)."""
        return self.mean + self.deviation * normal((count, *self.mean.shape), generator, self.mean.device)


def clipped(feature: Tensor, norm: float) -> Tensor:
    """Features (records, *feature), each scaled down to this l2 norm where it is longer; one that isn't finite is zero."""
    flat = feature.flatten(1)
    # One bad number makes all of a record's zero, and none of its gradients NaN.
    flat = flat.masked_fill(~flat.isfinite().all(dim=1, keepdim=True), 0.0)
    # Divided by the largest number first: a square may exceed float32's range.
    largest = flat.detach().abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
    length = torch.linalg.vector_norm(flat / largest, dim=1, keepdim=True) * largest
    return (flat * (norm / length.clamp(min=1e-30)).clamp(max=1.0)).reshape(feature.shape)


def hidden(method: Method, std: float, feature: Tensor, generator: Generator) -> Tensor:
    r"""A feature as it is sent or turned: clipped and noisy if the method says so, (records, *feature).

    Args:
      std: standard deviation of the noise on each coordinate under ``noisy_rotation``.
    """
    match method:
        case NoisyRotation():
            bounded = clipped(feature, method.clipping_norm)
            return bounded + std * normal(bounded.shape, generator, bounded.device)
        case Noisy():
            # E |eps| of N(0, s^2) is s sqrt(2 / pi).
            average = feature.detach().abs().flatten(1).mean(dim=1)
            return feature + aligned(method.gamma * math.sqrt(math.pi / 2.0) * average, feature) * normal(
                feature.shape, generator, feature.device
            )
        case _:
            return feature


def counterpart_as_sent(method: Method, std: float, counterpart: Tensor, generator: Generator) -> Tensor:
    """The counterpart, with noise if the method says so, (records, *feature)."""
    if isinstance(method, NoisyRotation) and method.noisy_counterpart:
        return counterpart + std * normal(counterpart.shape, generator, counterpart.device)
    return counterpart


def normal(shape: tuple[int, ...], generator: Generator, device: torch.device) -> Tensor:
    """Standard normal numbers from the generator's own device, float32."""
    return torch.randn(shape, generator=generator, device=generator.device).to(device)


def generator_of(stream: RandomStream, device: torch.device) -> Generator:
    """A torch generator seeded with 63 bits of the stream."""
    return Generator(device).manual_seed(int.from_bytes(stream.key()[:8], "big") >> 1)


def _integers(below: int, count: int, generator: Generator) -> Tensor:
    """Uniform in 0 .. below - 1, int64 (count,), on the CPU."""
    return torch.randint(below, (count,), generator=generator, device=generator.device).cpu()
