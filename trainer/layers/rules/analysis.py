r"""From the signals along a weight's last axes to the coordinates that a spectral training releases, and back: one small matrix M.

A = E^T P E keeps the frequencies of ``LayerSpectrum`` of a signal that is padded with zeros (E) to the transform's length and cropped
again (E^T); P is the orthogonal projection. M has M^T M = A: the coordinates of g are M g, and M^T takes coordinates back. A product of
masks is a product of axes, so M is the Kronecker product of one matrix for each axis. All are built in float64.

Where the transform has the signal's own length A is P, and the rows of M are the real Fourier basis of the kept frequencies: M M^T = 1.
Elsewhere A has eigenvalues in (0, 1], and the rows are sqrt(eigenvalue) times eigenvectors. Either way M is a contraction: ||M g|| <=
||g||, up to a few units of 2^-53, which the clipping margin is far above.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.trainer.specs.projection import LayerSpectrum


@final
class Analysis:
    r"""M of one layer, r x n, on one device.

    Attributes:
      kept: frequencies on each axis.
      shape: axis lengths of a signal; n is their product.
      transform: axis lengths of the transform.
      sizes: coordinates of each axis; r is their product.
    """

    def __init__(self, spectrum: LayerSpectrum, device: torch.device) -> None:
        axes = [axis_analysis(*axis) for axis in zip(spectrum.shape, spectrum.transform, spectrum.kept, strict=True)]
        self.kept, self.shape, self.transform = spectrum.kept, spectrum.shape, spectrum.transform
        self.sizes = tuple(len(axis) for axis in axes)
        self._matrices = _on(reduce(_kronecker, axes), device)
        self._axes = [_on(axis, device) for axis in axes]

    @property
    def is_constant(self) -> bool:
        """Whether frequency 0 alone is kept: M is one row, every number in it prod(transform)^(-1/2)."""
        return all(count == 1 for count in self.kept)

    def matrix(self, kind: torch.dtype) -> Tensor:
        """M, (r, n), in float32 or float64."""
        return self._matrices[kind]

    def axis_matrix(self, axis: int, kind: torch.dtype) -> Tensor:
        """The matrix of one axis alone, (its coordinates, its length)."""
        return self._axes[axis][kind]

    def coordinates(self, signals: Tensor) -> Tensor:
        """M g: (..., *shape) -> (..., r), in the precision of ``signals``."""
        return signals.flatten(-len(self.shape)) @ self.matrix(signals.dtype).mT

    def signals(self, coordinates: Tensor) -> Tensor:
        """M^T c: (..., r) -> (..., *shape), in the precision of ``coordinates``."""
        return (coordinates @ self.matrix(coordinates.dtype)).unflatten(-1, self.shape)


def axis_analysis(length: int, transform: int, kept: int) -> NDArray[np.float64]:
    r"""M of one axis, (coordinates, length): min(2 kept - 1, transform, length) rows, as many as A has eigenvalues that aren't 0.

    A trigonometric polynomial of these frequencies that is 0 at ``length`` positions in a row is 0, or has more than they: no eigenvalue
    is exactly 0. Those too small for float64 to distinguish from 0 keep their coordinate, which then has noise and hardly anything else.

    >>> axis_analysis(4, 4, 1).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    >>> axis_analysis(3, 8, 3).shape
    (3, 3)
    """
    if transform == length:
        return fourier_basis(length, kept)
    low_pass = LowPass((transform,), (kept,))
    lags = np.array([low_pass.covariance((lag,)) for lag in range(length)])
    places = np.arange(length)
    values, vectors = np.linalg.eigh(lags[np.abs(places[:, None] - places)])
    count = min(2 * kept - 1, transform, length)
    scaled = np.sqrt(np.clip(values[::-1][:count], 0.0, 1.0)) * vectors[:, ::-1][:, :count]
    # The library chooses an eigenvector's sign; a team's processes must agree on it wherever they run.
    return (scaled * np.where(scaled.sum(axis=0) < 0.0, -1.0, 1.0)).T


def fourier_basis(length: int, kept: int) -> NDArray[np.float64]:
    r"""Orthonormal rows: the constant, then a cosine and a sine of each kept frequency; frequency length / 2 has no sine.

    >>> fourier_basis(2, 2).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    """
    turns = np.outer(np.arange(1, kept), np.arange(length)) % length * (2.0 * math.pi / length)
    waves = np.stack((np.cos(turns), np.sin(turns)), axis=1).reshape(-1, length) * math.sqrt(2.0 / length)
    if 2 * (kept - 1) == length:
        waves = waves[:-1]
        waves[-1] /= math.sqrt(2.0)
    return np.concatenate((np.full((1, length), 1.0 / math.sqrt(length)), waves))


def _kronecker(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.kron(first, second).astype(np.float64)


def _on(matrix: NDArray[np.float64], device: torch.device) -> dict[torch.dtype, Tensor]:
    wide = torch.from_numpy(np.ascontiguousarray(matrix)).to(device)
    return {torch.float64: wide, torch.float32: wide.float()}
