r"""What sites send in place of integers: without loss, in few bytes, and refused where it isn't to the last bit what it says it is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.coding import LARGEST, PIECE, coded, decoded, packed, packed_bytes, unpacked

NORMAL = np.rint(np.random.default_rng(0).normal(size=20_000) * 2.0**32).astype(np.int64)


@given(integers=st.lists(st.integers(1 - LARGEST, LARGEST - 1), min_size=1, max_size=20))
def test_integers_come_back(integers: list[int]) -> None:
    bits, payload = coded(np.array(integers))
    assert decoded(payload, len(integers), bits).tolist() == integers
    # Never longer than whole integers, which is what a coordinator takes at most.
    assert len(payload) <= 8 * len(integers) + 1


@given(bits=st.integers(1, 64), values=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_the_lowest_bits_come_back(bits: int, values: list[int]) -> None:
    payload = packed(np.array(values, np.uint64), bits)
    assert len(payload) == packed_bytes(len(values), bits)
    assert unpacked(payload, len(values), bits).tolist() == [value % 2**bits for value in values]


@pytest.mark.parametrize("bits", [31, 32])
def test_several_pieces_come_back(bits: int) -> None:
    values = np.arange(PIECE + 3, dtype=np.uint64) * np.uint64(5041)
    assert (unpacked(packed(values, bits), len(values), bits) == values % 2**bits).all()


def test_normal_noise_takes_a_tenth_of_a_bit_more_than_its_entropy() -> None:
    entropy = 32.0 + 0.5 * math.log2(2.0 * math.pi * math.e)
    assert entropy < 8.0 * len(coded(NORMAL)[1]) / len(NORMAL) < entropy + 0.1


def test_zeros_take_a_bit_each() -> None:
    assert coded(np.zeros(80, np.int64)) == (0, b"\xff" * 10)


BITS, PAYLOAD = coded(NORMAL[:100])
LOW = packed_bytes(100, BITS)
WRONG: dict[str, tuple[bytes, int, int, str]] = {
    "nothing": (b"", 100, BITS, f"at least {LOW + 13} bytes, of 100 integers with 32 low bits, got '0 bytes'"),
    "truncated": (PAYLOAD[:-3], 100, BITS, "the code of 100 integers, got 'that of "),
    "too long": (PAYLOAD + bytes(2), 100, BITS, f"{len(PAYLOAD)} bytes, to the end of the last integer, got '{len(PAYLOAD) + 2} bytes'"),
    "one more": (PAYLOAD + b"\x01", 100, BITS, "the code of 100 integers, got 'that of 101'"),
    "another number": (PAYLOAD, 99, BITS, "the code of 99 integers, got 'that of "),
    "another width": (PAYLOAD, 100, BITS - 1, "100 integers of 31 bits, and zeros to the end of a byte, got '0x"),
    "too large": (bytes(8) + bytes(20) + b"\x80", 1, 64, "integers whose bits above the lowest 64 are below 0, got 167"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_isnt_the_code_of_so_many_integers_is_refused(what: str) -> None:
    payload, numbers, bits, said = WRONG[what]
    with pytest.raises(InvalidParameter) as refused:
        decoded(payload, numbers, bits)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("payload", "said"),
    [(b"\xd1", "2 bytes, of 5 integers of 3 bits, got '1 bytes'"), (b"\xd1\xd8", "zeros to the end of a byte, got '0xd8 at the end'")],
    ids=["truncated", "more bits"],
)
def test_what_isnt_so_many_integers_of_so_many_bits_is_refused(payload: bytes, said: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        unpacked(payload, 5, 3)
    assert said in str(refused.value)


@pytest.mark.parametrize("sent", [PAYLOAD[:50], b"\xff" * 900, bytes(900)], ids=["half", "ones", "zeros"])
@pytest.mark.parametrize("read", [decoded, unpacked])
def test_whatever_comes_is_refused_or_as_many_integers(sent: bytes, read: Callable[..., np.ndarray]) -> None:
    for bits in range(65):
        try:
            assert len(read(sent, 100, bits)) == 100
        except InvalidParameter:
            continue


def test_integers_that_are_too_large_are_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"below 2\^62 in size, got '0 to 4611686018427387904'"):
        coded(np.array([0, LARGEST]))
