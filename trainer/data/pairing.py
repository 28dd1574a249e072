r"""Images of digits paired as phase pairs: a real part of digit L, an imaginary part of digit 9 - L, label L."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.sampling.source import RandomStream

CLASSES = 10
Pairs = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Image numbers of the real parts and of the imaginary parts, and the labels, each int64 of shape (pairs,)."""


def disjoint_pairs(digits: NDArray[Any]) -> Pairs:
    """Every image in one pair or in none: from classes k and 9 - k as many pairs as the smaller has images, half with k real."""
    real: list[NDArray[Any]] = []
    imaginary: list[NDArray[Any]] = []
    for digit in range(CLASSES // 2):
        first, second = np.flatnonzero(digits == digit), np.flatnonzero(digits == CLASSES - 1 - digit)
        pairs = min(len(first), len(second))
        half = pairs // 2
        real += [first[:half], second[half:pairs]]
        imaginary += [second[:half], first[half:pairs]]
    joined = np.concatenate(real)
    return joined, np.concatenate(imaginary), digits[joined]


def pairs_with_replacement(digits: NDArray[Any], seed: int, purpose: str) -> Pairs:
    """Every image once as a real part, with an imaginary part drawn uniformly, with replacement, from the images of digit 9 - L.

    This is the construction of the zeta-DP paper (A.6.5); one image then lies in several records (errata Z19).
    """
    uniform = RandomStream.from_seed(seed, purpose).uniform(len(digits))
    imaginary = np.zeros(len(digits), dtype=np.int64)
    for digit in range(CLASSES):
        mine, others = np.flatnonzero(digits == digit), np.flatnonzero(digits == CLASSES - 1 - digit)
        # Uniforms lie in (0, 1], so 1 - u never reaches the number of images.
        imaginary[mine] = others[((1.0 - uniform[mine]) * len(others)).astype(np.int64)]
    return np.arange(len(digits)), imaginary, digits


def records_of_one_image(pairs: Pairs) -> int:
    """How many records the image that is used most lies in."""
    real, imaginary, _ = pairs
    images = 1 + max(real.max(), imaginary.max())
    return int((np.bincount(real, minlength=images) + np.bincount(imaginary, minlength=images)).max())
