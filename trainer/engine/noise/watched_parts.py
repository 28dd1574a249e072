r"""Releases of normal noise on a processor, looked at a part at a time in one pass over each: no vector of noise is kept.

Of the last release, what the next one's noise is multiplied with is kept in whole steps of a sixteenth of the noise's scale, a byte a
number, rounded towards 0: the bounds on sums of products hold for it too, and of noise that comes again 97 % is seen. Proof:
accountants/proofs/audit.md, 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian, LocalGaussian
from zetadp.mechanisms.noise_test import NoiseSums, NumberNoise, Products
from zetadp.mechanisms.sampling import kernel
from zetadp.trainer.engine.noise import added_up
from zetadp.trainer.engine.noise.added_up import AddedUp

STEPS = 16
"""In a scale of the noise; a byte holds up to 8 scales, which larger numbers count as."""

LARGEST_SCALE = 2.0**40
"""Noise of a vector of float64 is looked at as float32, whose squares and sums have room up to this scale and down to its inverse."""

NEARLY_CIRCULAR = 0.25
"""From this ratio on (complex noise's least deviation to its greatest), float32 sums keep the smaller one's digits."""


@final
class Passes:
    r"""The sums of releases that are looked at so, all by this or since ``taken``.

    Args:
      scale: of the noise, the larger one of complex noise.
      each: real numbers of a draw.
      added: takes in the first numbers of every release.
    """

    def __init__(self, scale: float, each: int, added: AddedUp) -> None:
        self._scale, self._each, self._added = scale, each, added
        self._sums, self._counts = np.zeros(14), [0, 0, 0]
        self._draws, self._shift, self._continues = 0, 0, False
        self._kept, self._total = np.empty(0, np.int8), np.empty(0)

    @classmethod
    def of(cls, mechanism: NumberNoise, added: AddedUp) -> Self | None:
        """None for noise that needs more than products of its own components."""
        match mechanism:
            case Gaussian() | LocalGaussian():
                return cls(mechanism.std, 1, added)
            case ComplexGaussian():
                small, large = sorted(mechanism.stds)
                return cls(large, 2, added) if mechanism.correlation == 0.0 and small >= NEARLY_CIRCULAR * large else None
            case _:
                return None

    def begin(self, numbers: int, last: Tensor | None, releases: int) -> Tensor:
        r"""Before a release of so many real numbers.

        Args:
          last: what this returned for the last release, or ``rounded``; it is written over where it is as long.
          releases: how many there were.
        Returns:
          the noise in steps once all parts were looked at, (numbers,), int8.
        """
        draws = numbers // self._each
        # An odd number of draws has two middles: they alternate.
        shift = (draws + releases % 2) // 2 if draws > 1 else draws
        self._draws, self._shift = draws, shift * self._each
        self._continues = last is not None and len(last) == numbers
        kept = last if last is not None and self._continues else torch.zeros(numbers, dtype=torch.int8)
        self._kept = kept.numpy()
        if draws:
            dtype = torch.complex128 if self._each == 2 else torch.float64
            total = self._added.total(min(added_up.FIRST, draws), dtype, torch.device("cpu"))
            self._total = (torch.view_as_real(total).view(-1) if self._each == 2 else total).numpy()
        return kept

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether vectors of this type are looked at so."""
        return dtype == torch.float32 or (dtype == torch.float64 and 1.0 <= self._scale * LARGEST_SCALE <= LARGEST_SCALE**2)

    def see(self, before: Tensor, after: Tensor, first: int) -> None:
        """A part, from number ``first`` on, which is even: of one type that is taken, contiguous, and after those before."""
        count = min(len(before), self._draws * self._each - first)
        one, other = before.detach()[:count].numpy(), after.detach()[:count].numpy()
        kernel.watched_part(one, other, self._kept, first, self._shift, STEPS / self._scale, self._continues, self._total, self._sums)

    @property
    def watched(self) -> kernel.Watched:
        """For who looks at a whole release himself, instead of ``see``."""
        return self._kept, self._shift, STEPS / self._scale, self._continues, self._total, self._sums

    def end(self) -> None:
        """After all parts."""
        if not self._draws:
            return
        self._counts[0] += self._draws
        self._counts[1] += self._draws if self._continues else 0
        self._counts[2] += self._draws - self._shift // self._each
        even, odd = self._sums[12:].tolist()
        self._added.count(*((even, odd) if self._each == 2 else (even + odd, 0.0)))
        self._sums[12:] = 0.0

    def taken(self) -> tuple[NoiseSums, Products, Products]:
        """Of the noise itself, and its products with the last release's and with its other half."""
        own, step, half = (self._products(first, count) for first, count in zip((0, 4, 8), self._counts, strict=True))
        self._sums[:], self._counts = 0.0, [0, 0, 0]
        unit = self._scale / STEPS
        step, half = (
            replace(
                one,
                real=unit * one.real,
                imaginary=unit * one.imaginary,
                real_imaginary=unit * one.real_imaginary,
                imaginary_real=unit * one.imaginary_real,
            )
            for one in (step, half)
        )
        return NoiseSums(own.count, own.real, own.imaginary, own.real_imaginary), step, half

    def _products(self, first: int, count: int) -> Products:
        even, odd, mixed, reverse = self._sums[first : first + 4].tolist()
        return Products(count, even, odd, mixed, reverse) if self._each == 2 else Products(count, even + odd)

    def rounded(self, noise: Tensor) -> Tensor:
        """Noise in steps, (numbers,), int8."""
        return torch.from_numpy(kernel.whole_steps(noise.numpy(), STEPS / self._scale))

    def restored(self, kept: Tensor) -> Tensor:
        """The reverse, float32."""
        return kept * (self._scale / STEPS)
