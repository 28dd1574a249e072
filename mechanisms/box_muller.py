r"""Normal numbers in single precision from random bits: Box and Muller's way, with a tail that goes as far as double precision's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import InvalidParameter

BLOCK_PAIRS = 1 << 16
"""Pairs drawn at a time: words, radii and results (1.25 MiB) mostly stay in a core's second-level cache, and the calls count little."""

SMALLEST_STD, LARGEST_STD = 1e-30, 1e30
"""Outside this range float32 numbers of such a deviation could vanish or overflow."""

TAIL_BITS = 8
"""Radii of the outermost 2^-8 of the pairs get 64 further bits."""

_FIRST_TAIL_WORD = np.uint32(2**32 - 2 ** (32 - TAIL_BITS))
_PER_WORD = np.float32(2.0**-32)
_ANGLE_PER_WORD = np.float32(np.pi * 2.0**-31)
_ONE_BIT = np.uint32(1)
_MINUS_TWO = np.float32(-2.0)

Words = NDArray[np.uint32]
Fill = Callable[[NDArray[Any]], None]
"""Overwrites an array with fresh random bytes."""


@final
class SinglePrecisionNormals:
    r"""Independent N(0, 1) in float32, in pairs (r cos t, r sin t), from a source of random bytes.

    With words a and b of 32 bits, both made odd (midpoints of 2^31 cells, so that no number drawn is ever exactly 0):

        t = pi b / 2^31, b signed;   r = sqrt(-2 ln(1 - f)), f = a / 2^32;
        where f >= 1 - 2^-8:  1 - f is drawn anew inside the word's own cell of 2^-32, to 64 further bits: (c + (x + 1) / 2^64) / 2^32
        with c = 2^32 - 1 - a before a was made odd and x of 64 bits.

    The law: f is a uniform number moved by at most 2^-32, then rounded to float32 (relatively by at most 2^-25), and f counts from the
    *centre*, where float32 is fine; so a drawn radius is the exact radius of some uniform number, moved by at most 2.2e-5, and by
    at most 4e-6 except with probability 2^-25 (near the centre, r < 2^-12). In the tail 1 - f keeps its full relative precision: to
    2^-24 or better for 1 - f >= 2^-72. The largest radius is sqrt(2 * 96 ln 2) = 11.54, so |z| is cut off where two exact normals have
    a larger radius with probability 2^-96; plain 32-bit uniforms would stop at 6.7, probability 2^-32. Angles move by at most 3e-7.
    What else separates the numbers from real ones is float32's own rounding: a few units of 2^-24, relatively.

    Source: Box and Muller 1958.
    """

    def __init__(self, fill: Fill) -> None:
        self._fill = fill

    def draw(self, count: int, std: float) -> NDArray[np.float32]:
        r"""``count`` numbers of standard deviation ``std``, rounded up to float32: (count,).

        Raises:
          InvalidParameter: std outside [1e-30, 1e30].
        """
        scale = single_precision(std)
        pairs = (count + 1) // 2
        out = np.empty(2 * pairs, np.float32)
        block = min(pairs, BLOCK_PAIRS)
        words, radius = np.empty(2 * block, np.uint32), np.empty(block, np.float32)
        for first in range(0, pairs, max(block, 1)):
            size = min(block, pairs - first)
            self._fill(words[: 2 * size])
            self.transform(words[: 2 * size], radius[:size], out[2 * first : 2 * (first + size)], scale)
        return out[:count]

    def transform(self, words: Words, radius: NDArray[np.float32], out: NDArray[np.float32], scale: np.float32) -> None:
        r"""One block: (2 n,) words become (2 n,) normals times ``scale``, the cosines first. Overwrites words and ``radius``, (n,)."""
        size = len(radius)
        first, angle = out[:size], out[size:]
        tail = np.flatnonzero(words[:size] >= _FIRST_TAIL_WORD)
        cells = np.uint32(2**32 - 1) - words[tail]
        # Replaced below; until then they mustn't round to f = 1.
        words[tail] = 0
        np.bitwise_or(words, _ONE_BIT, out=words)
        np.copyto(radius, words[:size], casting="unsafe")
        np.multiply(radius, -_PER_WORD, out=radius)
        np.log1p(radius, out=radius)
        if len(tail):
            radius[tail] = self._log_tail(cells)
        np.multiply(radius, _MINUS_TWO, out=radius)
        np.sqrt(radius, out=radius)
        if scale != 1.0:
            np.multiply(radius, scale, out=radius)
        np.copyto(angle, words[size:].view(np.int32), casting="unsafe")
        np.multiply(angle, _ANGLE_PER_WORD, out=angle)
        np.cos(angle, out=first)
        np.sin(angle, out=angle)
        np.multiply(first, radius, out=first)
        np.multiply(angle, radius, out=angle)

    def _log_tail(self, cells: Words) -> NDArray[np.float64]:
        """ln(1 - f) of words that far out, by 64 further bits each."""
        bits = np.empty(len(cells), np.uint64)
        self._fill(bits)
        # In float64 the sum keeps 53 bits of cell and fraction together, and all of the fraction where the cell is 0.
        return np.log((cells + (bits.astype(np.float64) + 1.0) * 2.0**-64) * 2.0**-32)


def single_precision(std: float) -> np.float32:
    r"""A standard deviation in float32, rounded up.

    Raises:
      InvalidParameter: outside [1e-30, 1e30].
    """
    if not SMALLEST_STD <= std <= LARGEST_STD:
        raise InvalidParameter("std", f"in [{SMALLEST_STD:g}, {LARGEST_STD:g}] for noise in single precision", std)
    nearest = np.float32(std)
    return nearest if float(nearest) >= std else np.nextafter(nearest, np.float32(np.inf))
