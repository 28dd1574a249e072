r"""Integers in few bytes, without loss: of so many bits each, or of as many as each needs.

Rice's code (Rice and Plaunt 1971) writes the lowest bits of a number as they are and the rest in unary. For normal noise it takes within a
tenth of a bit of the entropy. What is coded was released, and how it is coded follows from it alone: post-processing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

MOST_BITS: Final = 64
"""Of an integer."""
LARGEST: Final = 2**62
"""Integers that Rice's code takes are below this in size."""
PIECE: Final = 2**16
"""So many numbers are taken apart at a time: each bit takes a byte meanwhile. A multiple of 8, so that pieces are whole bytes."""


def packed_bytes(numbers: int, bits: int) -> int:
    """Bytes that so many integers of so many bits take."""
    return (numbers * bits + 7) // 8


def packed(values: NDArray[Any], bits: int) -> bytes:
    r"""The lowest bits of each value, one after the other, lowest first.

    Args:
      values: (numbers,), unsigned or in two's complement.
      bits: 0 to 64.

    >>> packed(np.array([1, 2, 3, 4, 5]), 3).hex()
    'd158'
    """
    whole = values.astype("<u8", copy=False)
    if bits % 8 == 0:
        return whole.view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()
    pieces = (whole[start : start + PIECE].view(np.uint8).reshape(-1, 8) for start in range(0, len(whole), PIECE))
    return b"".join(np.packbits(np.unpackbits(one, axis=1, count=bits, bitorder="little"), bitorder="little").tobytes() for one in pieces)


def unpacked(payload: bytes, numbers: int, bits: int) -> NDArray[np.uint64]:
    r"""The values that ``packed`` packed, (numbers,).

    Raises:
      InvalidParameter: there are more or fewer bytes, or bits are set that belong to no number.

    >>> unpacked(bytes.fromhex("d158"), 5, 3).tolist()
    [1, 2, 3, 4, 5]
    """
    if len(payload) != (expected := packed_bytes(numbers, bits)):
        raise InvalidParameter("payload", f"{expected} bytes, of {numbers} integers of {bits} bits", f"{len(payload)} bytes")
    left = 8 * expected - numbers * bits
    if left and payload[-1] >> (8 - left):
        raise InvalidParameter(
            "payload", f"{numbers} integers of {bits} bits, and zeros to the end of a byte", f"{payload[-1]:#x} at the end"
        )
    found = np.zeros((numbers, 8), np.uint8)
    if bits % 8 == 0:
        found[:, : bits // 8] = np.frombuffer(payload, np.uint8).reshape(numbers, bits // 8)
        return found.view("<u8").reshape(-1).astype(np.uint64, copy=False)
    for start in range(0, numbers, PIECE):
        count = min(PIECE, numbers - start)
        piece = np.frombuffer(payload, np.uint8, packed_bytes(count, bits), start * bits // 8)
        rows = np.packbits(np.unpackbits(piece, count=count * bits, bitorder="little").reshape(count, bits), axis=1, bitorder="little")
        found[start : start + count, : rows.shape[1]] = rows
    return found.view("<u8").reshape(-1).astype(np.uint64, copy=False)


def coded(integers: NDArray[np.int64]) -> tuple[int, bytes]:
    r"""Rice's code of integers, in as few bytes as it can.

    Args:
      integers: (numbers,), below ``LARGEST`` in size.
    Returns:
      How many low bits of each number are written as they are, and the bytes.

    >>> coded(np.array([-3, 0, 2, 1]))
    (1, b'\x01L\x01')
    """
    signless = _signless(integers)
    # Of the bits whose length is next to the mean's, one gives the shortest code.
    about = int(signless.mean(dtype=np.float64)).bit_length() if signless.size else 0
    bits = min(range(max(0, about - 2), about + 1), key=lambda count: count * signless.size + int((signless >> np.uint64(count)).sum()))
    quotients = (signless >> np.uint64(bits)).astype(np.int64)
    unary = np.zeros(int(quotients.sum()) + len(quotients), np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 1
    return bits, packed(signless, bits) + np.packbits(unary, bitorder="little").tobytes()


def decoded(payload: bytes, numbers: int, bits: int) -> NDArray[np.int64]:
    r"""The integers that ``coded`` wrote, (numbers,).

    Raises:
      InvalidParameter: it isn't the code of so many integers with so many low bits, to the last bit.

    >>> decoded(bytes.fromhex("014c01"), 4, 1).tolist()
    [-3, 0, 2, 1]
    """
    begins = packed_bytes(numbers, bits)
    least = begins + packed_bytes(numbers, 1)
    if len(payload) < least:
        raise InvalidParameter("payload", f"at least {least} bytes, of {numbers} integers with {bits} low bits", f"{len(payload)} bytes")
    low = unpacked(payload[:begins], numbers, bits)
    unary = np.unpackbits(np.frombuffer(payload, np.uint8, offset=begins), bitorder="little")
    if (count := int(np.count_nonzero(unary))) != numbers:
        raise InvalidParameter("payload", f"the code of {numbers} integers", f"that of {count}")
    ends = np.flatnonzero(unary)
    if len(payload) != (expected := begins + int(ends[-1]) // 8 + 1):
        raise InvalidParameter("payload", f"{expected} bytes, to the end of the last integer", f"{len(payload)} bytes")
    quotients = np.diff(ends, prepend=-1) - 1
    if int(quotients.max()) >= (most := 2 * LARGEST >> bits):
        raise InvalidParameter("payload", f"integers whose bits above the lowest {bits} are below {most}", int(quotients.max()))
    return _signed((quotients.astype(np.uint64) << np.uint64(bits)) | low)


def _signless(integers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    if integers.size and not -LARGEST < int(integers.min()) <= int(integers.max()) < LARGEST:
        raise InvalidParameter("integers", "below 2^62 in size", f"{integers.min()} to {integers.max()}")
    return ((integers << 1) ^ (integers >> 63)).astype(np.uint64)


def _signed(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The reverse."""
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
