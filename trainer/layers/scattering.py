r"""The scattering transform in front of a network: averages of wavelet moduli, and of their wavelet moduli, with nothing to learn.

The wavelets are those of kymatio. Its own loop over paths is written for every backend it has; here all orientations of a scale are
one product, and the last averaging, whose filter is a Gaussian and so separable, is two small matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import final

import numpy as np
import torch
from kymatio.scattering2d.filter_bank import filter_bank  # the package's torch module asks scipy for a function that is gone
from kymatio.scattering2d.utils import compute_padding
from numpy.typing import NDArray
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter

NUMBERS_AT_ONCE = 2**20
"""Complex numbers in the largest tensor that a chunk of images becomes in between: 8 MiB, which caches hold in part."""

FLOOR = 1e-5
"""Added to a group's variance: a group of equal numbers becomes zeros."""


@final
class Scattering(nn.Module):
    r"""x * phi, |x * psi_1| * phi and ||x * psi_1| * psi_2| * phi at every 2^scales-th pixel, for each channel of real images.

    (N, C, H, W) -> (N, C P, H // 2^scales, W // 2^scales), P = 1 + L J + L^2 J (J - 1) / 2 for J scales, L orientations and depth 2,
    without the last term for depth 1. psi are Morlet wavelets at scales 2^j, j < J, psi_2 coarser than psi_1, phi a Gaussian of width
    0.8 2^(J - 1); images are mirrored at their edges. All constants are public and every number is a function of one record.

    Args:
      height: of the images; > 2^scales.
      width: of the images; > 2^scales.
      scales: J >= 1.
      orientations: L >= 1; the wavelets are made for 8.
      depth: 1 or 2, the most moduli taken in sequence.
      groups: each record's C P channels are shifted and scaled, in this many groups of neighbours, to mean 0 and variance 1, by
        that record's own numbers; None for no normalisation.
    Raises:
      InvalidParameter: images too small for the scales.
    Sources: Bruna and Mallat 2013, arXiv:1203.1513; Oyallon and Mallat 2015; groups: Tramer and Boneh 2021, arXiv:2011.11660, whose other
      normalisation is by means and variances of all training records: those are a release with a privacy cost (errata P24).

    >>> Scattering(28, 28, scales=2, orientations=8, depth=2, groups=27)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 81, 7, 7])
    """

    def __init__(self, height: int, width: int, *, scales: int, orientations: int, depth: int, groups: int | None) -> None:
        super().__init__()
        if min(height, width) <= 2**scales:
            raise InvalidParameter("height and width", f"greater than 2^scales = {2**scales}", (height, width))
        self._scales, self._depth, self._groups = scales, depth, groups
        padded = compute_padding(height, width, scales)
        # Half on either side, the larger half last.
        self._margins = [half for size, whole in ((width, padded[1]), (height, padded[0])) for half in _halves(whole - size)]
        self._images_at_once = max(1, NUMBERS_AT_ONCE // (orientations * padded[0] * padded[1]))
        bank = filter_bank(*padded, scales, orientations)
        for j in range(scales):
            wavelets = [wavelet["levels"] for wavelet in bank["psi"] if wavelet["j"] == j]
            for level, spectra in enumerate(zip(*wavelets, strict=True)):
                # Divided by how many aliases are added up later: 2^j-fold sampling of an image sampled 2^level-fold already.
                self._keep(f"wavelets_{j}_{level}", np.stack(spectra) / 4.0 ** (j - level))
            averages = bank["phi"]["levels"][j]
            self._keep(f"rows_{j}", _sampled_average(averages[:, 0], 2 ** (scales - j)))
            self._keep(f"columns_{j}", _sampled_average(averages[0] / averages[0, 0], 2 ** (scales - j)).T)

    def forward(self, x: Tensor) -> Tensor:
        images = x.reshape(-1, 1, *x.shape[2:])
        paths = torch.cat([torch.cat(list(self._paths(chunk)), dim=1) for chunk in images.split(self._images_at_once)])
        channels = paths.reshape(len(x), -1, *paths.shape[2:])
        return channels if self._groups is None else nn.functional.group_norm(channels, self._groups, eps=FLOOR)

    def _paths(self, images: Tensor) -> Iterator[Tensor]:
        """Of images (n, 1, H, W): order 0, then order 1 by scale and orientation, then order 2 by those of both wavelets."""
        padded = nn.functional.pad(images, self._margins, mode="reflect")
        spectrum = torch.fft.fft2(padded)
        moduli = [self._modulus(spectrum, j, 0) for j in range(self._scales)]
        yield self._average(padded, 0)
        for j, modulus in enumerate(moduli):
            yield self._average(modulus, j)
        # No scale follows the coarsest one.
        for j, modulus in enumerate(moduli[:-1] if self._depth == 2 else ()):
            for one in torch.fft.fft2(modulus).split(1, dim=1):
                for coarser in range(j + 1, self._scales):
                    yield self._average(self._modulus(one, coarser, j), coarser)

    def _modulus(self, spectrum: Tensor, j: int, level: int) -> Tensor:
        """|x * psi| for every orientation at scale 2^j, at every 2^j-th pixel: (n, 1, h, w) -> (n, L, ...); x has every 2^level-th."""
        product = spectrum * self.get_buffer(f"wavelets_{j}_{level}")
        for axis in (-2, -1):
            product = reduce(torch.add, product.split(product.shape[axis] >> (j - level), dim=axis))
        squares = torch.view_as_real(torch.fft.ifft2(product)).square()
        return (squares[..., 0] + squares[..., 1]).sqrt_()

    def _average(self, x: Tensor, j: int) -> Tensor:
        """x * phi at every 2^scales-th pixel inside the margins; x has every 2^j-th."""
        return self.get_buffer(f"rows_{j}") @ (x @ self.get_buffer(f"columns_{j}"))

    def _keep(self, name: str, values: NDArray[np.float64]) -> None:
        self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)), persistent=False)


def _halves(margin: int) -> tuple[int, int]:
    return margin // 2, (margin + 1) // 2


def _sampled_average(spectrum: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """The circular convolution with the filter of this spectrum (n,), at every step-th place but the first and last: (n / step - 2, n)."""
    kernel = np.fft.ifft(spectrum).real
    size = len(kernel)
    places = np.arange(step, size - step, step)
    return kernel[(places[:, None] - np.arange(size)) % size]
