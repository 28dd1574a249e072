r"""Where noise comes from: one interface over NumPy and torch, and a cryptographic stream beneath it.

The stream is AES-256 in counter mode. Its key comes from the operating system, or from a seed for a job that must be reproducible;
only ``description`` says which, and the key itself is never shown or stored.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import low_pass
from zetadp.mechanisms.sampling import grid_laplace, grid_normal, kernel
from zetadp.mechanisms.sampling.grid import FEW
from zetadp.mechanisms.sampling.key_stream import KeyStream

# An array of NumPy or a tensor of torch: the mechanisms use only +, *, .shape of it and a source; this layer may not import torch.
Array = TypeVar("Array", bound=Any)


PROBABILITY_BITS = 256
"""Probabilities of signs are whole multiples of 2^-256."""

FAIR = 1 << (PROBABILITY_BITS - 1)
"""Numerator of the probability 1/2."""


class RandomOrigin(StrEnum):
    """Where the key of a noise stream came from."""

    OPERATING_SYSTEM = "operating_system"
    USER_SEED = "user_seed"


class NoiseSource(Protocol[Array]):
    """What a mechanism needs from an array library: fresh noise on a grid, values on it, checks of a value, and a filter."""

    @property
    def origin(self) -> RandomOrigin: ...

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """(floor(2^32 Z) + 1/2) / 2^32 of independent standard normals Z, exactly; float64."""
        ...

    def standard_laplace(self, shape: tuple[int, ...]) -> Array:
        """(floor(2^32 L) + 1/2) / 2^32 of independent Laplace variables L of scale 1 (variance 2), exactly; float64."""
        ...

    def released(self, value: Array, noise: Array, factor: float, largest: float, scale: float) -> Array:
        """A real value times ``factor``, clamped to +-largest and rounded to the grid, plus noise on it, times ``scale``; in its type.

        Raises InvalidParameter if the value isn't finite everywhere.
        """
        ...

    def released_normal(self, value: Array, factor: float, largest: float, scale: float) -> Array:
        """``released`` with new standard normal noise."""
        ...

    def shortened(self, first: Array, second: Array, largest: float) -> tuple[Array, Array]:
        """Pairs of real float64 numbers; a pair longer than ``largest`` is shortened to that length."""
        ...

    def wide(self, value: Array) -> Array:
        """A real value as float64."""
        ...

    def pairs(self, value: Array) -> Array:
        """Complex numbers as pairs of reals, along an additional last axis."""
        ...

    def complex(self, pairs: Array) -> Array:
        """The reverse."""
        ...

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Independent uniforms in (0, 1], real: whole multiples of 2^-53."""
        ...

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> Array:
        """Independent signs 1 and -1, real; -1 with probability ``negative`` / 2^256, exactly, for 0 <= negative <= 2^256."""
        ...

    def is_complex(self, value: Array) -> bool: ...

    def all_finite(self, value: Array) -> bool: ...

    def hides(self, value: Array) -> bool:
        """Whether there is more of the value than its numbers in float64, which would be released without noise or lost."""
        ...

    def low_pass(self, value: Array, kept: tuple[int, ...]) -> Array:
        """The trailing len(kept) axes of a real value projected onto their first ``kept`` frequencies (``spectrum.low_pass``)."""
        ...

    def all_within(self, value: Array, lower: float, upper: float) -> bool:
        """Whether every coordinate of a real value is in [lower, upper]; a NaN isn't."""
        ...


@final
class RandomStream:
    r"""Noise on a grid, signs, and numbers for other purposes from an AES-256-CTR key stream; no part of it is used twice.

    ``grid_normal``, ``grid_laplace`` and ``signs`` are exact; a release may use them. ``uniform`` and ``normal`` are floats, which have
    lattices and ends: they are for samples, initial weights and synthetic data.
    """

    def __init__(self, key: bytes, origin: RandomOrigin) -> None:
        # A key is used for one stream only, so a zero counter block never repeats under it.
        self._stream = KeyStream(key)
        self.origin = origin
        # Sees what was released with this stream's noise, bytes that are public by then; set for runs that an auditor may repeat.
        self.observed: Callable[[bytes], None] | None = None
        self._second: RandomStream | None = None

    @classmethod
    def from_operating_system(cls) -> Self:
        return cls(os.urandom(32), RandomOrigin.OPERATING_SYSTEM)

    @classmethod
    def from_seed(cls, seed: int, purpose: str) -> Self:
        """A reproducible stream, not private against someone who knows the seed. Each ``purpose`` gives a different stream."""
        key = hashlib.sha256(f"zetadp {purpose} {seed}".encode()).digest()
        return cls(key, RandomOrigin.USER_SEED)

    def fill(self, target: NDArray[Any]) -> None:
        """Overwrites a contiguous array with the next bytes of the key stream."""
        if target.size:
            self._stream.fill(target.data.cast("B"))

    def key(self) -> bytes:
        """32 bytes as a key for another stream; they are used for nothing else."""
        return self._stream.next(32)

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` independent uniforms in (0, 1]."""
        words = np.empty(count, "<u8")
        self.fill(words)
        np.right_shift(words, np.uint64(11), out=words)
        np.add(words, np.uint64(1), out=words)
        numbers = words.astype(np.float64)
        numbers *= 2.0**-53
        return numbers

    def signs(self, count: int, negative: int = FAIR) -> NDArray[np.float64]:
        """``count`` independent signs; -1 with probability ``negative`` / 2^256 exactly, by comparing as many bits."""
        if not 0 <= negative <= 2 * FAIR:
            raise InvalidParameter("negative", "a numerator from 0 to 2^256", negative)
        if negative == FAIR:
            bits = np.unpackbits(np.frombuffer(self._stream.next((count + 7) // 8), dtype=np.uint8), count=count)
            return 1.0 - 2.0 * bits.astype(np.float64)
        drawn = self._stream.next(PROBABILITY_BITS // 8 * count)
        words = np.frombuffer(drawn, dtype=">u8").reshape(count, PROBABILITY_BITS // 64)
        below, equal = np.full(count, negative == 2 * FAIR), np.full(count, negative < 2 * FAIR)
        for place, word in enumerate(words.T, 1):
            digit = np.uint64((negative >> (PROBABILITY_BITS - 64 * place)) & (2**64 - 1))
            below |= equal & (word < digit)
            equal &= word == digit
        return 1.0 - 2.0 * below.astype(np.float64)

    def normal(self, count: int) -> NDArray[np.float64]:
        """``count`` independent N(0, 1)."""
        pairs = (count + 1) // 2
        radius, angle = self.uniform(pairs), self.uniform(pairs)
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle *= 2.0 * np.pi
        numbers = np.empty(2 * pairs)
        np.cos(angle, out=numbers[:pairs])
        np.sin(angle, out=numbers[pairs:])
        numbers[:pairs] *= radius
        numbers[pairs:] *= radius
        return numbers[:count]

    def grid_normal(self, count: int, into: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """``count`` independent (floor(2^32 Z) + 1/2) / 2^32 of standard normals Z, exactly; in the memory of ``into`` if it is given."""
        numbers, beside = np.empty(count) if into is None else into, self._beside()
        if (block := self._stream.reserve(8 * count)) is None:
            return grid_normal.draw(numbers, self.fill, beside.fill)
        # Without returning to the interpreter in between, which may be busy with another thread.
        return grid_normal.draw_streamed(numbers, self._stream.secret, block, beside._stream)

    def released_normal(self, value: NDArray[Any], factor: float, largest: float, scale: float) -> NDArray[Any]:
        """``kernel.released`` of a value with as many new numbers of ``grid_normal``."""
        if value.size <= FEW or value.dtype not in kernel.KINDS or not value.flags.c_contiguous:
            return kernel.released(value, self.grid_normal(value.size).reshape(value.shape), factor, largest, scale)
        flat, beside = value.reshape(-1), self._beside()
        if (block := self._stream.reserve(8 * len(flat))) is None:
            return grid_normal.released(flat, factor, largest, scale, self.fill, beside.fill).reshape(value.shape)
        released = grid_normal.streamed(flat, factor, largest, scale, self._stream.secret, block, beside._stream)
        return released.reshape(value.shape)

    def released_over(
        self,
        value: NDArray[Any],
        by: tuple[float, float, float],
        watched: kernel.Watched | None,
        recursion: kernel.Recursion | None = None,
    ) -> int:
        r"""``released_normal`` over a vector itself, (count,), float32 or float64, looked at in the same pass (``kernel.watched_part``);
        ``recursion``: as of ``kernel.released_over``.

        Returns:
          how many of its numbers were released, from the first on: all, or an even number of them, and then more than ``grid.FEW`` are left
          for ``released_normal``. 0 where the kernel doesn't compute the stream, or what is released is observed, which is in parts.
        """
        if not kernel.ciphers() or self.observed is not None or len(value) <= FEW or not value.flags.c_contiguous:
            return 0
        return grid_normal.released_over(value, by, self._stream, self._beside()._stream, watched, recursion)

    def grid_laplace(self, count: int) -> NDArray[np.float64]:
        """``count`` independent (floor(2^32 L) + 1/2) / 2^32 of Laplace variables L of scale 1, exactly."""
        return grid_laplace.draw(count, self.fill)

    def _beside(self) -> RandomStream:
        """For the few numbers that need more words than others: how many depends on the words."""
        if self._second is None:
            self._second = RandomStream(self.key(), self.origin)
        return self._second


@final
class NumpySource:
    """Noise as NumPy arrays.

    >>> NumpySource.from_operating_system().standard_normal((2, 3)).shape
    (2, 3)
    """

    def __init__(self, stream: RandomStream) -> None:
        self._stream = stream

    @classmethod
    def from_operating_system(cls) -> Self:
        return cls(RandomStream.from_operating_system())

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        return cls(RandomStream.from_seed(seed, "noise"))

    @property
    def origin(self) -> RandomOrigin:
        return self._stream.origin

    def standard_normal(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return self._stream.grid_normal(math.prod(shape)).reshape(shape)

    def standard_laplace(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return self._stream.grid_laplace(math.prod(shape)).reshape(shape)

    def released(self, value: NDArray[Any], noise: NDArray[Any], factor: float, largest: float, scale: float) -> NDArray[Any]:
        return kernel.released(np.asarray(value), noise, factor, largest, scale)

    def released_normal(self, value: NDArray[Any], factor: float, largest: float, scale: float) -> NDArray[Any]:
        return self._stream.released_normal(np.asarray(value), factor, largest, scale)

    def shortened(self, first: NDArray[Any], second: NDArray[Any], largest: float) -> tuple[NDArray[Any], NDArray[Any]]:
        shorter = np.minimum(1.0, largest / np.maximum(np.hypot(first, second), 1.0))
        return first * shorter, second * shorter

    def wide(self, value: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(value, dtype=np.float64)

    def pairs(self, value: NDArray[Any]) -> NDArray[Any]:
        whole = np.ascontiguousarray(value)
        return whole.view(np.float32 if whole.dtype == np.complex64 else np.float64).reshape(*value.shape, 2)

    def complex(self, pairs: NDArray[Any]) -> NDArray[Any]:
        return pairs.view(np.result_type(pairs.dtype, np.complex64)).reshape(pairs.shape[:-1])

    def uniform(self, shape: tuple[int, ...]) -> NDArray[Any]:
        return self._stream.uniform(int(np.prod(shape))).reshape(shape)

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> NDArray[Any]:
        return self._stream.signs(int(np.prod(shape)), negative).reshape(shape)

    def is_complex(self, value: NDArray[Any]) -> bool:
        return bool(np.iscomplexobj(value))

    def all_finite(self, value: NDArray[Any]) -> bool:
        return bool(np.isfinite(value).all())

    def hides(self, value: NDArray[Any]) -> bool:
        if isinstance(value, np.ma.MaskedArray):
            # A masked entry is still somebody's number.
            return True
        kind = np.asarray(value).dtype
        return np.issubdtype(kind, np.inexact) and np.finfo(kind).nmant > np.finfo(np.float64).nmant

    def low_pass(self, value: NDArray[Any], kept: tuple[int, ...]) -> NDArray[Any]:
        return low_pass(value, kept)

    def all_within(self, value: NDArray[Any], lower: float, upper: float) -> bool:
        # In float64: a narrower type would round the bounds to its own numbers first.
        wide = np.asarray(value, dtype=np.float64)
        return bool(((wide >= lower) & (wide <= upper)).all())
