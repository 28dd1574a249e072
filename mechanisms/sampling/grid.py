r"""Rounds a real vector to the noise's grid at no privacy cost. Proof: proofs/grid_noise.md.

Noise of scale 1 is drawn in whole steps of 2^-32. A value in units of its noise's scale is first rounded to such steps, so that the sum is
one of integers. Rounding moves two neighbours' values apart by at most ``rounding`` per coordinate. To keep their distance within what the
mechanism accounts for, both are first contracted by as much; the release is divided by the contraction again, which is post-processing
and makes the noise wider by that share.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from zetadp.mechanisms.errors import InvalidParameter

BITS: Final = 32

STEP: Final = 2.0**-BITS
"""Step of the grid, in units of the noise's scale."""

FEW: Final = 16
"""Up to this many numbers (such as counts) are computed as fractions: only the grid rounds them, and none is too large."""

LARGEST: Final = 2.0**18
"""Largest coordinate if there are more, in the noise's scale. A larger value is clamped to it, which moves no values apart."""

LARGEST_SHARE: Final = 2.0**-4
"""The largest share of contraction: noise that needs more (large for its sensitivity, on many coordinates) isn't sound."""


def largest(coordinates: int) -> float:
    """``LARGEST``, or infinity for a few numbers."""
    return math.inf if coordinates <= FEW else LARGEST


def released_by(scale: float, kept: float, coordinates: int) -> tuple[float, float, float]:
    """Factor, largest and scale of ``NoiseSource.released``: standard noise times ``scale`` on a vector contracted to ``kept``."""
    return kept / scale, largest(coordinates), scale / kept


def rounding(coordinates: int) -> float:
    r"""How far rounding to the grid moves two neighbours apart per coordinate: one step, and twice the rounding of the product before it.

    >>> rounding(16) / STEP, rounding(17) / STEP
    (1.0, 1.25)
    """
    return STEP if coordinates <= FEW else STEP + 2.0**-52 * LARGEST


def contraction(distance: float, coordinates: int, norm: Literal["l1", "l2"], each: float | None = None) -> float:
    r"""1 - eta: the factor that a value is multiplied by before it is rounded.

    Args:
      distance: the least distance of two neighbours' values that the mechanism accounts for, in units of the noise's scale.
      coordinates: real numbers that one neighbour may move.
      each: how far rounding moves them apart in one coordinate; ``rounding(coordinates)`` if None.
    Raises:
      InvalidParameter: eta above 2^-4.

    >>> 1.0 - contraction(1.0, 10**6, "l2") < 3e-7
    True
    """
    moved = (rounding(coordinates) if each is None else each) * (math.sqrt(coordinates) if norm == "l2" else float(coordinates))
    if not moved <= LARGEST_SHARE * distance:
        least = moved / LARGEST_SHARE
        raise InvalidParameter("noise", f"such that sensitivity / scale >= {least:.3g} for {coordinates} coordinates", distance)
    # A little more, for the rounding of this number, of the factor that it becomes part of, and of the distance.
    return 1.0 - moved / distance * (1.0 + 2.0**-40) - 2.0**-50
