r"""Noise added up over many numbers: what repeats itself at any distance makes the sums too large, or too small."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms.noise_test import NoiseSums

FIRST = 2**14
"""Numbers at the beginning of a release that are also summed up: over all releases each, and all of a release together."""

TOGETHER = 64
"""Releases whose sums leave an accelerator together: each transfer waits for all that was asked of it before."""


@final
class AddedUp:
    r"""Sums of the first numbers of every release: of each number over the releases, and of each release over its numbers.

    In float64, so that no number of releases costs digits. Noise that repeats itself at any distance makes the first, or the second, too
    large, or with changing signs too small.
    """

    def __init__(self) -> None:
        self._releases = 0
        self._total: Tensor | None = None
        # Of sums over a release's numbers: those of the last few, and of all before as many as there were, squares and products.
        self._waiting: list[Tensor] = []
        self._of_releases = NoiseSums(0, 0.0)
        # Over the releases before those of another length.
        self._before = NoiseSums(0, 0.0)

    def see(self, numbers: Tensor) -> None:
        """Takes in the noise of one release, (numbers,)."""
        if not len(numbers):
            return
        total = self.total(len(numbers), torch.complex128 if numbers.is_complex() else torch.float64, numbers.device)
        total += numbers
        self._releases += 1
        self._waiting.append(numbers.sum(dtype=total.dtype) * len(numbers) ** -0.5)
        if len(self._waiting) == TOGETHER:
            self._add()

    def total(self, numbers: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The sums over releases of so many numbers; who adds a release's to them himself calls ``count`` then."""
        if self._total is None or len(self._total) != numbers:
            self._before = self._over_releases()
            self._total, self._releases = torch.zeros(numbers, dtype=dtype, device=device), 0
        return self._total

    def count(self, real: float, imaginary: float) -> None:
        """Counts a release that was added to ``total``; of its numbers the sum."""
        assert self._total is not None
        self._releases += 1
        share = 1.0 / len(self._total)
        self._of_releases += NoiseSums(1, share * real * real, share * imaginary * imaginary, share * real * imaginary)

    def sums(self) -> tuple[NoiseSums, NoiseSums]:
        """Of sums over releases, and over numbers, each divided by the root of how many were added."""
        self._add()
        return self._over_releases(), self._of_releases

    def _add(self) -> None:
        if self._waiting:
            self._of_releases += _squares(torch.stack(self._waiting))
            self._waiting.clear()

    def _over_releases(self) -> NoiseSums:
        return (
            self._before if self._total is None or not self._releases else self._before + _squares(self._total / math.sqrt(self._releases))
        )


def _squares(x: Tensor) -> NoiseSums:
    """How many there are, the sums of their squares, real and imaginary, and of the products of the two."""
    real, imaginary = (x.real, x.imag) if x.is_complex() else (x, torch.zeros_like(x))
    sums = torch.stack((torch.dot(real, real), torch.dot(imaginary, imaginary), torch.dot(real, imaginary)))
    return NoiseSums(len(x), *sums.tolist())
