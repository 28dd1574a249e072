"""The key stream is AES-256's in counter mode, whichever way it is computed."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zetadp.mechanisms.sampling.key_stream import SEGMENT, SKIPPED, KeyStream

KEY = bytes(range(32))


def counter_mode(count: int, first_block: int = 0) -> bytes:
    return Cipher(algorithms.AES(KEY), modes.CTR(first_block.to_bytes(16, "big"))).encryptor().update(bytes(count))


@pytest.mark.parametrize("sizes", [[1000], [32, 968], [3, 28, 1, 1, 15, 952], [0, 1 << 18, 1 << 18, 5]])
def test_it_is_counter_mode_from_zero_on_whatever_pieces_it_comes_in(sizes):
    stream = KeyStream(KEY)
    assert b"".join(stream.next(size) for size in sizes) == counter_mode(sum(sizes))


def test_it_fills_arrays_of_any_length():
    target = np.empty((1 << 18) + 100, np.uint8)
    KeyStream(KEY).fill(target.data)
    assert target.tobytes() == counter_mode(len(target))


@pytest.mark.parametrize("segment", [0, 1, 2**40, 2**96 - 2])
def test_a_segment_goes_over_into_the_next(segment):
    """GCM's counter has 32 bits: after 64 GiB another nonce follows, and no block comes twice."""
    stream = KeyStream(KEY)
    stream._begin(segment)
    first = segment << 32
    assert stream.next(SKIPPED + 20) == counter_mode(SKIPPED + 20, first)
    assert stream._left == SEGMENT - SKIPPED - 20
    # What lies between would take a minute to pass over.
    stream._left = 0
    assert stream.next(1000) == counter_mode(1000, first + 2**32)
