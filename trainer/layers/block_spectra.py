r"""Circular convolutions of blocks of length b as real products: x * w = C (A x . A w), elementwise, for two fixed real matrices.

T are orthonormal real coordinates of a block's spectrum. Of real blocks the frequencies 0 and (b even) b / 2 have one, the others, of
which the half spectrum has one of each conjugate pair, have two: sqrt(2) times real and imaginary part of the unitary transform. Of
complex blocks every frequency has two, real and imaginary part. The spectrum of x * w is gain times the product of both spectra, where
the gain is sqrt(b), or sqrt(b / 2) for conjugate pairs. A product of complex numbers takes three real ones (Gauss): (p1 - p2) +
i (p3 - p1 - p2) with p1 = Re x Re w, p2 = Im x Im w, p3 = (Re x + Im x) (Re w + Im w). So A is T with the sum of its real and imaginary
rows added, (3 b - 1) / 2 rows about, and C combines and transforms back.

The adjoint of x -> x * w, which gradients need, is g -> A^T (C^T g . A w). For many blocks at once these four are matrix products that
give the frequencies first, as the products between blocks at each frequency need them. A fast Fourier transform saves less than the
transposition after it takes, unless blocks are long (``LARGEST_MATRIX``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal, final

import torch
from torch import Tensor

LARGEST_MATRIX = 128
"""Most real numbers in a block that is transformed by a matrix. Measured: at 256 fast transforms are as fast, at 64 half as fast."""

SQRT_2 = math.sqrt(2.0)


@final
@dataclass(frozen=True)
class BlockSpectra:
    """The first ``kept`` frequencies of blocks of length ``block``: of real ones up to block // 2 + 1, of complex ones all ``block``."""

    block: int
    kept: int
    is_complex: bool

    @staticmethod
    def whole(block: int, *, is_complex: bool) -> BlockSpectra:
        """Every frequency."""
        return BlockSpectra(block, block if is_complex else block // 2 + 1, is_complex)

    @property
    def is_whole(self) -> bool:
        """Whether no frequency is left out."""
        return self == BlockSpectra.whole(self.block, is_complex=self.is_complex)

    @property
    def numbers(self) -> int:
        """Real numbers in a block."""
        return 2 * self.block if self.is_complex else self.block

    @property
    def by_matrix(self) -> bool:
        """Whether the transforms are matrix products, which autograd can differentiate too."""
        return self.numbers <= LARGEST_MATRIX

    @property
    def singles(self) -> int:
        """Frequencies of one coordinate."""
        return 0 if self.is_complex else 1 + (2 * (self.kept - 1) == self.block)

    @property
    def pairs(self) -> int:
        """Frequencies of two coordinates: three rows each, one of each kind after the other, behind the singles."""
        return self.kept - self.singles

    @property
    def single_gain(self) -> float:
        return math.sqrt(self.block)

    @property
    def pair_gain(self) -> float:
        return math.sqrt(self.block if self.is_complex else self.block / 2)

    def factors(self, blocks: Tensor) -> Tensor:
        """A x of every block: (..., block) -> (singles + 3 pairs, ...), real: singles, Re, Im, Re + Im."""
        if self.by_matrix:
            return _transformed(self, "factors", blocks)
        singles, real, imaginary = self._coordinates(blocks)
        return torch.cat([singles, real, imaginary, real + imaginary])

    def slopes(self, blocks: Tensor) -> Tensor:
        """C^T g of every block: as ``factors``; gain times singles, Re - Im, -(Re + Im), Im."""
        if self.by_matrix:
            return _transformed(self, "slopes", blocks)
        singles, real, imaginary = self._coordinates(blocks)
        gain = self.pair_gain
        return torch.cat([self.single_gain * singles, gain * (real - imaginary), -gain * (real + imaginary), gain * imaginary])

    def products_norms(self, factors: Tensor, slopes: Tensor) -> Tensor:
        r"""||gain g conj(a)||^2, summed over frequencies, of one factor and one slope each.

        Args:
          factors, slopes: squares of what the functions of that name give, without the last ``pairs``: (singles + 2 pairs, rows). Of all
            frequencies these are, added, the squares of the blocks, and ``numbers`` times that.
        """
        return column_sums(slopes * (_pairing(self, factors.dtype, factors.device) @ factors))

    def convolutions(self, products: Tensor) -> Tensor:
        """C p, if ``by_matrix``: (singles + 3 pairs, ...) -> (..., block)."""
        numbers = products.flatten(1).t() @ _matrix(self, "slopes", products.dtype, products.device)
        blocks = torch.view_as_complex(numbers.unflatten(1, (-1, 2))) if self.is_complex else numbers
        return blocks.view(*products.shape[1:], self.block)

    def write_correlations(self, products: Tensor, into: Tensor) -> None:
        """A^T p: (singles + 3 pairs, ...) -> ``into``: (..., block), contiguous."""
        if self.by_matrix:
            matrix = _matrix(self, "factors", products.dtype, products.device)
            numbers = torch.view_as_real(into) if self.is_complex else into
            torch.mm(products.flatten(1).t(), matrix, out=numbers.view(-1, matrix.shape[1]))
            return
        singles, of_real, of_imaginary, of_sum = products.split([self.singles, *[self.pairs] * 3])
        pairs = torch.complex(of_real + of_sum, of_imaginary + of_sum)
        if self.is_complex:
            into.copy_(torch.fft.ifft(pairs.movedim(0, -1), norm="ortho"))
            return
        spectra = pairs.new_zeros(self.block // 2 + 1, *pairs.shape[1:])
        spectra[1 : 1 + self.pairs] = pairs / SQRT_2
        spectra[self._single_frequencies] = singles.to(pairs.dtype)
        into.copy_(torch.fft.irfft(spectra.movedim(0, -1), n=self.block, norm="ortho"))

    @property
    def _single_frequencies(self) -> list[int]:
        return [0, self.block // 2][: self.singles]

    def _coordinates(self, blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """T x by fast transforms, frequencies first: singles, real parts, imaginary parts of pairs."""
        if self.is_complex:
            spectra = torch.fft.fft(blocks, norm="ortho").movedim(-1, 0)
            return spectra.real[:0], spectra.real, spectra.imag
        spectra = torch.fft.rfft(blocks, norm="ortho").movedim(-1, 0)
        pairs = SQRT_2 * spectra[1 : 1 + self.pairs]
        return spectra[self._single_frequencies].real, pairs.real, pairs.imag


def column_sums(rows: Tensor) -> Tensor:
    """(rows, columns) -> (columns,), all added in the same order: torch's own sum over the first axis adds the last columns in another,
    and where they are units a unit's bits would depend on its place."""
    return rows.t().contiguous().sum(dim=1)


def _transformed(spectra: BlockSpectra, which: Literal["factors", "slopes"], blocks: Tensor) -> Tensor:
    """(..., block) -> (rows of the matrix, ...)."""
    numbers = torch.view_as_real(blocks.resolve_conj()) if spectra.is_complex else blocks
    matrix = _matrix(spectra, which, numbers.dtype, numbers.device)
    return (matrix @ numbers.reshape(-1, matrix.shape[1]).t()).view(len(matrix), *blocks.shape[:-1])


@cache
def _matrix(spectra: BlockSpectra, which: Literal["factors", "slopes"], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A, or C transposed: (singles + 3 pairs, real numbers in a block)."""
    with torch.inference_mode(mode=False):
        singles, real, imaginary = _coordinate_rows(spectra)
        gain = spectra.pair_gain
        if which == "factors":
            rows = [singles, real, imaginary, real + imaginary]
        else:
            rows = [spectra.single_gain * singles, gain * (real - imaginary), -gain * (real + imaginary), gain * imaginary]
        return torch.cat(rows).to(dtype=dtype, device=device).contiguous()


@cache
def _pairing(spectra: BlockSpectra, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Squares of Re and Im, times those of Re - Im and Re + Im, which are twice as much: (singles + 2 pairs,) * 2."""
    with torch.inference_mode(mode=False):
        pairs = 0.5 * torch.eye(spectra.pairs).repeat(2, 2)
        return torch.block_diag(torch.eye(spectra.singles), pairs).to(dtype=dtype, device=device)


def _coordinate_rows(spectra: BlockSpectra) -> tuple[Tensor, Tensor, Tensor]:
    """T: singles, real parts, imaginary parts of pairs, as rows over a block's real numbers, in float64."""
    block = spectra.block
    # Whole turns are taken off while these are integers.
    turns = torch.outer(torch.arange(spectra.kept), torch.arange(block)) % block
    angles = (2.0 * math.pi / block) * turns.double()
    real, imaginary = angles.cos() / math.sqrt(block), -angles.sin() / math.sqrt(block)
    if spectra.is_complex:
        # (c + i s) (u + i v) for each number u + i v.
        of_real, of_imaginary = torch.stack([real, -imaginary], dim=2), torch.stack([imaginary, real], dim=2)
        return of_real.flatten(1)[:0], of_real.flatten(1), of_imaginary.flatten(1)
    own = [0, block // 2][: spectra.singles]
    pairs = slice(1, 1 + spectra.pairs)
    return real[own], SQRT_2 * real[pairs], SQRT_2 * imaginary[pairs]
