r"""ChaCha20 in torch's own integer operations: cryptographic random bits, made where the tensors live.

The cipher is RFC 8439's with the original 64-bit counter and nonce 0. A key makes one stream; nothing of a stream is used twice. The
key comes from an AES-256-CTR stream, and so from the operating system or from a seed as that one does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final, final

import torch
from torch import Tensor

from mechanisms.box_muller import single_precision
from mechanisms.errors import InvalidParameter

NAME: Final = "ChaCha20 keyed from AES-256-CTR"
"""Of the generator, for certificates."""

WORDS_PER_BLOCK: Final = 16
WORDS_PER_PAIR: Final = 4
"""Words of 32 bits for two normal numbers."""

LARGEST_BLOCKS: Final = 1 << 20
"""Blocks made at a time: 64 MiB of words."""

_CONSTANTS: Final = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_DOUBLE_ROUNDS: Final = 10

Rows = tuple[Tensor, Tensor, Tensor, Tensor]
"""The state's four rows, each (4, blocks), int32."""


@final
class ChaChaStream:
    """Words of one ChaCha20 key stream from ``first_block`` on, and normal numbers from them."""

    def __init__(self, key: bytes, device: torch.device, first_block: int = 0) -> None:
        if len(key) != 32:
            raise InvalidParameter("key", "32 bytes", f"{len(key)} bytes")
        self._key = [_signed(int.from_bytes(key[first : first + 4], "little")) for first in range(0, 32, 4)]
        self._device = device
        self._next_block = first_block

    def words(self, blocks: int) -> Tensor:
        """The next ``blocks`` blocks of the stream, (16, blocks), int32: column b holds the 16 little-endian words of one block."""
        return torch.cat(self._rows(blocks))

    def normal(self, count: int, std: float, dtype: torch.dtype) -> Tensor:
        r"""``count`` independent N(0, std^2), (count,), in float32 or float64.

        Box and Muller's pairs. A word v of 31 bits, made odd, is a uniform number f = v / 2^31 from the centre: r = sqrt(-2 ln(1 - f)).
        Where f >= 1 - 2^-8, 1 - f is instead the number (c + (x + 1/2) / 2^64) / 2^31 with the word's complement c and 64 further bits x,
        to full relative precision: the largest radius is sqrt(2 * 96 ln 2) = 11.5, and exact normal pairs lie outside it with
        probability 2^-96. See ``mechanisms.box_muller`` for what float32 does to the rest. In float64 radius and angle get 32 of the
        further bits each: radii up to sqrt(2 * 64 ln 2) = 9.4, probability 2^-64.

        Raises:
          InvalidParameter: another dtype, or a std that single precision can't hold.
        """
        if dtype not in {torch.float32, torch.float64}:
            raise InvalidParameter("dtype", "torch.float32 or torch.float64", dtype)
        # Rounded up, so that single precision never means less noise.
        scale = float(single_precision(std)) if dtype == torch.float32 else std
        per_block = 2 * WORDS_PER_BLOCK // WORDS_PER_PAIR
        out = torch.empty(count, dtype=dtype, device=self._device)
        for first in range(0, count, per_block * LARGEST_BLOCKS):
            part = out[first : first + per_block * LARGEST_BLOCKS]
            rows = self._rows(math.ceil(len(part) / per_block))
            part.copy_(normal_pairs(*(row.reshape(-1) for row in rows), dtype=dtype)[: len(part)])
        return out.mul_(scale)

    def _rows(self, blocks: int) -> Rows:
        # The 64-bit counter goes on from where the last call ended.
        counter = torch.arange(self._next_block, self._next_block + blocks, dtype=torch.int64, device=self._device)
        self._next_block += blocks
        low, high = counter.to(torch.int32), (counter >> 32).to(torch.int32)
        zero = torch.zeros_like(low)
        start = (
            _row(_CONSTANTS, blocks, self._device),
            _row(self._key[:4], blocks, self._device),
            _row(self._key[4:], blocks, self._device),
            torch.stack((low, high, zero, zero)),
        )
        double_round = _fastest_double_round(self._device.type)
        state = start
        for _ in range(_DOUBLE_ROUNDS):
            state = double_round(*state)
        a, b, c, d = (mixed + initial for mixed, initial in zip(state, start, strict=True))
        return a, b, c, d


def double_round(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Rows:
    """A column round and a diagonal round (RFC 8439, 2.3)."""
    a, b, c, d = _quarter_rounds(a, b, c, d)
    # Rows turned so that the diagonals stand in columns, and back.
    a, b, c, d = _quarter_rounds(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
    return a, b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Rows:
    """Four at once (RFC 8439, 2.1); int32 addition wraps around."""
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(word: Tensor, bits: int) -> Tensor:
    # torch shifts int32 to the right with its sign, which the mask takes away.
    return (word << bits) | ((word >> (32 - bits)) & ((1 << bits) - 1))


@cache
def _fastest_double_round(device_type: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Rows]:
    """Compiled on an accelerator where that works there and gives the same bits; else as it is."""
    if device_type == "cpu":
        return double_round
    compiled = torch.compile(double_round, dynamic=True)
    sample = [torch.arange(first, first + 4 * 64, dtype=torch.int32, device=device_type).reshape(4, 64) * 0x01234567 for first in range(4)]
    try:
        same = all(torch.equal(one, other) for one, other in zip(compiled(*sample), double_round(*sample), strict=True))
    except (RuntimeError, ImportError, OSError):
        # No compiler on this machine: the uncompiled function gives these same bits.
        return double_round
    return compiled if same else double_round


def normal_pairs(near: Tensor, turn: Tensor, high: Tensor, low: Tensor, dtype: torch.dtype) -> Tensor:
    """Words for radius, angle, and further bits of them, (n,) each -> (2 n,) normals."""
    word = near & 0x7FFFFFFF
    cell = (0x7FFFFFFF - word).to(dtype)
    more, last = _unsigned(high, dtype), _unsigned(low, dtype) + 0.5
    if dtype == torch.float32:
        far = torch.log((cell + (more + last * 2.0**-32) * 2.0**-32) * 2.0**-31)
        central = torch.log1p((word | 1).to(dtype) * -(2.0**-31))
        log, angle = torch.where(word >= 2**31 - 2**23, far, central), (turn | 1).to(dtype)
    else:
        log, angle = torch.log((cell + (more + 0.5) * 2.0**-32) * 2.0**-31), turn.to(dtype) + last * 2.0**-32
    radius = torch.sqrt(-2.0 * log)
    angle = angle * (math.pi * 2.0**-31)
    return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)))


def _unsigned(word: Tensor, dtype: torch.dtype) -> Tensor:
    """A 32-bit word as a number in [0, 2^32), rounded to ``dtype``."""
    return (word.to(torch.int64) & 0xFFFFFFFF).to(dtype)


def _row(words: tuple[int, ...] | list[int], blocks: int, device: torch.device) -> Tensor:
    return torch.tensor([_signed(word) for word in words], dtype=torch.int32, device=device).reshape(4, 1).expand(4, blocks)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word
