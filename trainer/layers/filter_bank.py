r"""A fixed, public filter bank in front of a network: local orientation and frequency, with nothing to learn and so no privacy cost."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

ENVELOPE = 0.4
"""Standard deviation of a filter's Gaussian envelope, in wavelengths: about one octave of bandwidth."""


def gabor_filters(wavelengths: tuple[float, ...], orientations: int, size: int) -> Tensor:
    r"""Complex Gabor filters as real pairs, float32: (len(wavelengths) * orientations, 2, size, size).

    e(r) exp(i 2 pi u / wavelength), u the coordinate along pi k / orientations, e a Gaussian of std 0.4 wavelengths; the mean is taken
    off the real part, so that a constant image gives 0, and sqrt(sum e^2) is 1. Source: Gabor 1946; Daugman 1985.

    Args:
      wavelengths: in pixels, each > 0.
      orientations: K >= 1.
      size: odd.
    """
    ruler = torch.arange(size, dtype=torch.float64) - size // 2
    vertical, horizontal = torch.meshgrid(ruler, ruler, indexing="ij")
    filters: list[Tensor] = []
    for wavelength in wavelengths:
        envelope = torch.exp(-(vertical**2 + horizontal**2) / (2.0 * (ENVELOPE * wavelength) ** 2))
        for k in range(orientations):
            angle = math.pi * k / orientations
            phase = (2.0 * math.pi / wavelength) * (horizontal * math.cos(angle) + vertical * math.sin(angle))
            even, odd = envelope * torch.cos(phase), envelope * torch.sin(phase)
            even = even - envelope * (even.sum() / envelope.sum())
            filters.append(torch.stack([even, odd]) / envelope.square().sum().sqrt())
    return torch.stack(filters).to(torch.float32)


@final
class GaborModulus(nn.Module):
    r"""|x * psi| of every plane for each Gabor filter psi, and the plane itself, averaged over squares: planes in, planes out.

    (N, 2C, H, W) -> (N, 2 C (F + 1), H // pool, W // pool) with F = len(wavelengths) * orientations: real images give the real planes,
    imaginary ones the imaginary planes. Nothing is learned: the filters are public constants, so what they compute of a record is part
    of that record's public preprocessing. Tramer and Boneh 2021 (arXiv:2011.11660) use scattering coefficients to the same end.

    >>> GaborModulus((4.0, 8.0), orientations=4, size=9, pool=4)(torch.zeros(3, 2, 28, 28)).shape
    torch.Size([3, 18, 7, 7])
    """

    filters: Tensor

    def __init__(self, wavelengths: tuple[float, ...], orientations: int, size: int, pool: int) -> None:
        super().__init__()
        self.register_buffer("filters", gabor_filters(wavelengths, orientations, size), persistent=False)
        self._pool = pool

    def forward(self, x: Tensor) -> Tensor:
        count, planes, *extent = x.shape
        images = x.reshape(count * planes, 1, *extent)
        kernel = self.filters.flatten(0, 1)[:, None]
        pairs = nn.functional.conv2d(images, kernel, padding=kernel.shape[-1] // 2).unflatten(1, (-1, 2))
        modulus = torch.hypot(pairs[:, :, 0], pairs[:, :, 1])  # a norm over that axis would take most of the time
        averaged = nn.functional.avg_pool2d(torch.cat([modulus, images], dim=1), self._pool)
        return averaged.reshape(count, planes * averaged.shape[1], *averaged.shape[2:])
