r"""Activations from complex to complex numbers, elementwise on any shape."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.layers.heads import magnitude


def cardioid(z: Tensor) -> Tensor:
    r"""(1 + cos arg z) z / 2; the positive real axis passes, the negative one is stopped. Virtue, Yu and Lustig 2017, eq. (3).

    cos arg z is written Re z / |z|, and taken as 0 at z = 0, where the angle has no derivative; the gradient there is that of z / 2.
    """
    length = magnitude(z)
    positive = length > 0
    cosine = torch.where(positive, z.real / torch.where(positive, length, 1.0), 0.0)
    return 0.5 * (1.0 + cosine) * z


def crelu(z: Tensor) -> Tensor:
    """max(Re z, 0) + i max(Im z, 0). Trabelsi et al. 2018."""
    return torch.complex(torch.relu(z.real), torch.relu(z.imag))
