r"""Watches the noise of a run: the mechanism's output minus its input, number by number. Only a verdict leaves this module."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import final

import torch
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Laplace, LocalLaplace
from zetadp.mechanisms.noise_test import NoiseSums, NumberNoise, Products, are_sums_of_fair_signs, are_unrelated, has_claimed_scale
from zetadp.mechanisms.sampling import kernel
from zetadp.trainer.engine.noise import added_up
from zetadp.trainer.engine.noise.added_up import TOGETHER, AddedUp
from zetadp.trainer.engine.noise.watched_parts import NEARLY_CIRCULAR, Passes
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.findings.runs import NoiseFindings, Status

BLOCK = 2**20
"""How many numbers are added in their own type, often float32; sums over blocks are added in float64."""


class Partner(Enum):
    """What the numbers of a release are multiplied by."""

    STEP = "the same place's last release"
    PLACE = "another place's last release"
    HALF = "the other half of the release"


Summed = list[tuple[Partner | None, int, int]]
"""What numbers were multiplied by (None: themselves), how many there were, and how many sums come of it."""


@final
class NoiseWatch:
    r"""Sums over the noise of this attempt's releases, and the last noise of every place.

    None of this is stored in a checkpoint: together with a release it would reveal something about the data.
    """

    def __init__(self, mechanism: NumberNoise) -> None:
        self._mechanism = mechanism
        self._sums = NoiseSums(0, 0.0)
        self._added = AddedUp()
        self._products = dict.fromkeys(Partner, Products())
        self._passes = Passes.of(mechanism, self._added)
        # The numbers to multiply by, for each place, rounded towards 0 where a pass left them; the last place; memory for the next release.
        self._last: dict[int, Tensor] = {}
        self._last_place = 0
        self._spare: Tensor | None = None
        self._releases = 0
        # Of the last few releases, with what they are sums of.
        self._waiting: list[tuple[Tensor, Summed]] = []
        # Contraction before a release widens its noise: by the more, the more numbers it has.
        self._widest, self._most = 1.0, 0

    def findings(self, team: Team, device: torch.device) -> NoiseFindings:
        """The findings of the whole team, whose first process looked at the noise."""
        own = torch.tensor([float(self.numbers), 0.0 if self.is_as_claimed else 1.0], dtype=torch.float64, device=device)
        numbers, violations = team.sum(own).tolist()
        status: Status = "violated" if violations else "consistent" if numbers else "not run"
        return NoiseFindings(status=status, numbers=int(numbers))

    @property
    def numbers(self) -> int:
        """The noisy numbers seen; a complex number counts as two."""
        self._add()
        return self._sums.count * (2 if isinstance(self._mechanism, ComplexGaussian) else 1)

    @property
    def is_as_claimed(self) -> bool:
        r"""Whether what was seen has the mechanism's scale and doesn't repeat itself, see ``has_claimed_scale`` and ``are_unrelated``.

        Sums of k draws over sqrt(k) are as the draws themselves; of Laplace noise only signs are added.
        """
        self._add()
        unrelated = all(are_unrelated(self._mechanism, products, self._widest) for products in self._products.values())
        right = has_claimed_scale(self._mechanism, self._sums, self._widest)
        return unrelated and right and all(map(self._is_sum, self._added.sums()))

    def _is_sum(self, sums: NoiseSums) -> bool:
        return (
            are_sums_of_fair_signs(sums)
            if isinstance(self._mechanism, Laplace | LocalLaplace)
            else has_claimed_scale(self._mechanism, sums, self._widest)
        )

    def see(self, vector: Tensor, released: Tensor, place: int = 0) -> None:
        r"""Looks at one release.

        Args:
          vector: reals of any shape before their release; complex noise is on pairs of neighbours in a vector.
          released: the same reals after it.
          place: where the noise was drawn, if several places release in turn, each with its own noise.
        """
        is_alike = vector.shape == released.shape and vector.dtype == released.dtype
        if is_alike and self.takes_parts_of(vector, place) and self.takes_parts_of(released, place):
            self.begin(vector, place)
            self.see_part(vector, released, 0)
            self.end(place)
            return
        self._widen(vector)
        noise = torch.sub(released, vector, out=self._room(vector, released))
        self._see(noise, place)
        self._spare, self._last[place] = self._last.get(place), noise
        # After the products: of Laplace noise signs are left.
        self._added.see(self._numbers(noise)[: added_up.FIRST])
        self._last_place = place
        self._releases += 1

    def takes_parts_of(self, vector: Tensor, place: int = 0) -> bool:
        """Whether a release of this vector may be looked at a part at a time: see ``begin``."""
        fits = vector.dim() == 1 and vector.device.type == "cpu" and vector.is_contiguous()
        return fits and self._passes is not None and self._passes.takes(vector.dtype) and place == self._last_place

    def begin(self, vector: Tensor, place: int) -> None:
        """Before the parts of one release, ``see_part`` in their order; ``end`` follows. Only the vector's shape is looked at."""
        assert self._passes is not None
        self._widen(vector)
        last = self._last.get(place)
        if last is not None and last.dtype != torch.int8:
            last = self._passes.rounded(last) if last.shape == vector.shape else None
        self._last[place] = self._passes.begin(len(vector), last, self._releases)
        self._spare = None

    def see_part(self, before: Tensor, after: Tensor, first: int) -> None:
        """``see`` for a part of the vector: its numbers from number ``first`` on, which is even."""
        assert self._passes is not None
        self._passes.see(before, after, first)

    @property
    def watched(self) -> kernel.Watched:
        """What a release that looks at itself does so with, between ``begin`` and ``end``."""
        assert self._passes is not None
        return self._passes.watched

    def end(self, place: int) -> None:
        """After all parts of a release."""
        assert self._passes is not None
        self._passes.end()
        self._last_place = place
        self._releases += 1

    def _widen(self, vector: Tensor) -> None:
        if vector.numel() > self._most:
            # One more: an odd number of them is released with another one as complex pairs.
            self._most, self._widest = vector.numel(), 1.0 / self._mechanism.contracted_to(vector.numel() + 1)

    def _see(self, noise: Tensor, place: int) -> None:
        numbers = self._numbers(noise)
        if isinstance(self._mechanism, Laplace | LocalLaplace):
            own = [numbers.abs().sum()]
            # Only signs are multiplied, see ``are_unrelated``.
            numbers.sign_()
        else:
            own = _inner(numbers, numbers)
        pairs = list(self._pairs(noise, place))
        sums = [own, *(_inner(x, y) for _, x, y in pairs)]
        summed: Summed = [(None, len(numbers), len(own))]
        summed += [(partner, len(x), len(one)) for (partner, x, _), one in zip(pairs, sums[1:], strict=True)]
        self._waiting.append((torch.stack([value for one in sums for value in one]), summed))
        if len(self._waiting) == TOGETHER:
            self._add()

    def _add(self) -> None:
        """What waits, in one transfer from the device."""
        if self._passes is not None:
            own, step, half = self._passes.taken()
            self._sums += own
            self._products[Partner.STEP] += step
            self._products[Partner.HALF] += half
        if not self._waiting:
            return
        values = iter(torch.cat([sums for sums, _ in self._waiting]).tolist())
        for partner, count, some in (one for _, summed in self._waiting for one in summed):
            found = _products(list(islice(values, some)))
            if partner is None:
                self._sums += NoiseSums(count, found.real, found.imaginary, found.real_imaginary)
            else:
                self._products[partner] += replace(found, count=count)
        self._waiting.clear()

    def _room(self, vector: Tensor, released: Tensor) -> Tensor:
        """Memory for the noise. New memory for every release would cost more time than all the sums."""
        kind = torch.float64 if self._is_uneven else torch.result_type(vector, released)
        spare = self._spare
        if spare is not None and (spare.shape, spare.dtype, spare.device) == (vector.shape, kind, vector.device):
            return spare
        return torch.empty(vector.shape, dtype=kind, device=vector.device)

    @property
    def _is_uneven(self) -> bool:
        """Whether float32 sums might lose the digits of complex noise's smaller deviation."""
        if not isinstance(self._mechanism, ComplexGaussian):
            return False
        (std_real, std_imag), rho = self._mechanism.stds, self._mechanism.correlation
        return min(std_real, std_imag) / max(std_real, std_imag) * math.sqrt((1.0 - rho) * (1.0 + rho)) < NEARLY_CIRCULAR

    def _numbers(self, noise: Tensor) -> Tensor:
        """The draws, one after the other: each pair of complex noise is one."""
        flat = noise.reshape(-1)
        return torch.view_as_complex(flat[: len(flat) // 2 * 2].reshape(-1, 2)) if isinstance(self._mechanism, ComplexGaussian) else flat

    def _restored(self, last: Tensor) -> Tensor:
        """Noise that a pass left, or noise itself."""
        if last.dtype != torch.int8:
            return last
        assert self._passes is not None
        return self._passes.restored(last)

    def _pairs(self, noise: Tensor, place: int) -> Iterator[tuple[Partner, Tensor, Tensor]]:
        numbers = self._numbers(noise)
        last = {Partner.STEP: self._last.get(place)}
        if place != self._last_place:
            last[Partner.PLACE] = self._last.get(self._last_place)
        for partner, other in last.items():
            if other is not None and other.shape == noise.shape:
                yield partner, numbers, self._numbers(self._restored(other).to(noise.dtype))
        # Halves of the rows, where there are rows, so that noise shared by all rows is found too.
        rows = noise.shape[0] if noise.dim() > 1 and noise.shape[0] > 1 else len(numbers)
        if rows > 1:
            # An odd number of rows has two middles: they alternate.
            shift = (rows + self._releases % 2) // 2 * (len(numbers) // rows)
            yield Partner.HALF, numbers[: len(numbers) - shift], numbers[shift:]


def _inner(x: Tensor, y: Tensor) -> list[Tensor]:
    """For each block the sum of products and, for complex numbers, also that of conj(x) y."""
    dots = (torch.dot, torch.vdot) if x.is_complex() else (torch.dot,)
    blocks = [(x, y)] if len(x) <= BLOCK else zip(x.split(BLOCK), y.split(BLOCK), strict=True)
    return [dot(one, other) for one, other in blocks for dot in dots]


def _products(sums: list[complex]) -> Products:
    """From the numbers of ``_inner``, without their count."""
    if not isinstance(sums[0], complex):
        return Products(real=sum(sums).real)
    plain, conjugate = sum(sums[::2]), sum(sums[1::2])
    return Products(
        real=0.5 * (conjugate + plain).real,
        imaginary=0.5 * (conjugate - plain).real,
        real_imaginary=0.5 * (plain + conjugate).imag,
        imaginary_real=0.5 * (plain - conjugate).imag,
    )
