r"""Single-coil MRI undersampled along one axis as fastMRI does it, and the phase that magnitude images lack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.spectra import to_image

PHASE_SPREAD = 1.0
"""Radians: standard deviation of each coefficient of the phase map."""


def cartesian_mask(columns: int, acceleration: float, centre_fraction: float, stream: RandomStream) -> NDArray[Any]:
    """Which columns of k-space are measured, bool (columns,): the centre, and the others at random so that 1/acceleration is expected.

    This is fastMRI's ``RandomMaskFunc`` (Zbontar et al. 2018): round(columns * centre_fraction) centre columns are always measured.
    """
    low = round(columns * centre_fraction)
    probability = (columns / acceleration - low) / (columns - low)
    mask = stream.uniform(columns) <= probability
    start = (columns - low + 1) // 2
    mask[start : start + low] = True
    return mask


def smooth_phase(height: int, width: int, stream: RandomStream) -> NDArray[Any]:
    """exp(i phi) for a random polynomial phi of degree 2 over [-1, 1]^2, complex (height, width).

    A magnitude image has a Hermitian k-space, half of which determines the rest; a coil's phase makes it realistic.
    """
    y, x = np.meshgrid(np.linspace(-1.0, 1.0, height), np.linspace(-1.0, 1.0, width), indexing="ij")
    coefficients = PHASE_SPREAD * stream.normal(6)
    return np.exp(1j * np.tensordot(coefficients, np.stack((np.ones_like(x), x, y, x * y, x * x, y * y)), axes=1))


def zero_filled(k_space: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    """The image of the measured columns alone, complex, of k-space's shape (height, columns)."""
    return to_image(k_space * mask)
