"""The key stream is AES-256's in counter mode, whichever way it is computed."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import grid_normal, kernel
from zetadp.mechanisms.sampling.key_stream import SEGMENT, SKIPPED, KeyStream, Segments
from zetadp.mechanisms.sampling.source import RandomOrigin, RandomStream

KEY = bytes(range(32))


def counter_mode(count: int, first_block: int = 0) -> bytes:
    return Cipher(algorithms.AES(KEY), modes.CTR(first_block.to_bytes(16, "big"))).encryptor().update(bytes(count))


def taken(stream: Segments, count: int) -> bytes:
    target = bytearray(count)
    stream.fill(memoryview(target))
    return bytes(target)


NO_CIPHER = "no kernel, or a processor that doesn't encrypt so many blocks with one instruction"


@pytest.fixture(params=[1, 2, 3], ids=["one block an instruction", "two", "four"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.ciphers() < request.param:
        pytest.skip(NO_CIPHER)
    monkeypatch.setattr(kernel, "ciphers", lambda: request.param)


@pytest.fixture(params=[0, 1, 2, 3], ids=["OpenSSL", "one block an instruction", "two", "four"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.ciphers() < request.param:
        pytest.skip(NO_CIPHER)
    monkeypatch.setattr(kernel, "ciphers", lambda: request.param)


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("sizes", [[1000], [32, 968], [3, 28, 1, 1, 15, 952], [0, 1 << 18, 1 << 18, 5], [511, 1, 513, 16, 512, 7]])
def test_it_is_counter_mode_from_zero_on_whatever_pieces_it_comes_in(sizes):
    stream = KeyStream(KEY)
    assert b"".join(stream.next(size) for size in sizes) == counter_mode(sum(sizes))


@pytest.mark.usefixtures("_by")
def test_it_fills_arrays_of_any_length():
    target = np.empty((1 << 18) + 100, np.uint8)
    KeyStream(KEY).fill(target.data)
    assert target.tobytes() == counter_mode(len(target))


@pytest.mark.parametrize("segment", [0, 1, 2**40, 2**96 - 2])
def test_a_segment_goes_over_into_the_next(segment):
    """GCM's counter has 32 bits: after 64 GiB another nonce follows, and no block comes twice."""
    stream = Segments(KEY)
    stream._begin(segment)
    first = segment << 32
    assert taken(stream, SKIPPED + 20) == counter_mode(SKIPPED + 20, first)
    assert stream._left == SEGMENT - SKIPPED - 20
    # What lies between would take a minute to pass over.
    stream._left = 0
    assert taken(stream, 1000) == counter_mode(1000, first + 2**32)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("numbers", [17, 511, 512, 513, 40_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_made_where_the_stream_is_made_is_that_of_its_words(numbers, dtype, monkeypatch):
    """To the bit; the next numbers come after it in the same place."""
    value, by = np.linspace(-300.0, 300.0, numbers, dtype=dtype), (0.4999, 2.0**18, 2.0004)
    found: list[bytes] = []
    for reserves in (True, False):
        if not reserves:
            monkeypatch.setattr(KeyStream, "reserve", lambda _self, _count: None)
        stream = RandomStream(KEY, RandomOrigin.USER_SEED)
        found.append(stream.released_normal(value, *by).tobytes() + stream.key())
    assert found[0] == found[1]
    own = grid_normal.streamed(value, *by, KEY, 2, KeyStream(counter_mode(32)))
    assert own.tobytes() == found[0][:-32]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("numbers", [0, 1, 17, 513, 40_001, 200_000])
def test_numbers_drawn_where_the_stream_is_made_are_those_of_its_words(numbers, monkeypatch):
    """To the bit, and the next bytes come from the same place; of 200 000 some are of the rest."""
    found: list[bytes] = []
    for reserves in (True, False):
        if not reserves:
            monkeypatch.setattr(KeyStream, "reserve", lambda _self, _count: None)
        stream = RandomStream(KEY, RandomOrigin.USER_SEED)
        found.append(stream.grid_normal(numbers).tobytes() + stream.grid_normal(40).tobytes() + stream.key())
    assert found[0] == found[1]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("groups", [0, 1, 2])
def test_what_the_kernel_can_not_decide_is_decided_elsewhere_from_the_same_words(groups, monkeypatch):
    """As if in the group after so many a number needed more digits: the same bits, and the next ones come from the same place."""
    value, by = np.zeros(3 * grid_normal.TOGETHER), (1.0, 2.0**18, 1.0)

    def noise() -> tuple[bytes, bytes]:
        rest = KeyStream(counter_mode(32))
        return grid_normal.streamed(value, *by, KEY, 2, rest).tobytes(), rest.next(32)

    whole, cells = noise(), kernel.cells

    def some(key: bytes, place: int, places: NDArray[np.int64], together: int, tables: Any) -> tuple[NDArray[np.int64], int]:
        return cells(key, place, places[places < groups * together], together, tables)

    monkeypatch.setattr(kernel, "cells", some)
    assert noise() == whole


def test_the_kernel_draws_nothing_of_a_group_that_it_can_not_decide():
    if not kernel.ciphers():
        pytest.skip(NO_CIPHER)
    ends = np.zeros(kernel.REST + 1, np.int64)
    ends[-1] = 2**62  # everything is in the tail
    tables = (ends, np.zeros(kernel.REST, np.int64), 2)
    drawn, behind = kernel.cells(KEY, 40, np.arange(5), 100, tables)
    assert (len(drawn), behind) == (0, 40)


def test_of_a_piece_that_it_can_not_decide_the_kernel_releases_nothing():
    if not kernel.ciphers():
        pytest.skip(NO_CIPHER)
    table, together, by = grid_normal.table(), 1000, (1.0, 2.0**18, 1.0)
    ends = np.zeros(kernel.REST + 1, np.int64)
    ends[-1] = 2**62  # the whole rest is in the tail
    everything = np.zeros(4096, np.uint64) + np.uint64(kernel.REST)  # and every number is of the rest
    for columns, tables in ((table.columns, (table.ends, table.rectangles, table.shift)), (everything, (ends, table.rectangles, 2))):
        for of_earlier in (False, True):
            value, last = np.ones(2500, np.float32), np.full(2500, 4.0)
            # Sums of the value and half of what is kept of the last one, which is written over.
            half = (1.0, np.inf, 0.0, 1.0, np.array([0.5]), (last,), False, np.inf, 1.0, True, last)
            recursion = half if of_earlier else None
            found = kernel.released_over((KEY, 32), (KEY, 40), columns, tables, together, value, by, None, recursion)
            if columns is everything:
                assert found == (0, 32, 40)
                assert (value == 1.0).all()
                assert (last == 4.0).all()
            else:
                assert found[:2] == (2500, 32 + 8 * 2500)
                assert not (value == 1.0).any()
                assert (last == (3.0 if of_earlier else 4.0)).all()


def test_words_of_what_is_not_finite_are_not_used_again():
    if not kernel.ciphers():
        pytest.skip(NO_CIPHER)
    value = np.zeros(3 * grid_normal.TOGETHER, np.float32)
    value[grid_normal.TOGETHER + 7] = np.nan
    words, rest = KeyStream(KEY), KeyStream(counter_mode(32))
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        grid_normal.released_over(value, (1.0, 2.0**18, 1.0), words, rest, None)
    taken = 2 * 8 * grid_normal.TOGETHER
    assert words.next(16) == counter_mode(taken + 16)[taken:]


def test_a_kernel_asked_for_what_does_not_fit_refuses():
    ways = kernel.ciphers()
    if not ways:
        pytest.skip(NO_CIPHER)
    for way, key in ((ways, bytes(16)), (ways + 1, KEY), (0, KEY), (-1, KEY)):
        with pytest.raises(ValueError, match="a key of another size, or a way"):
            kernel.COMPILED.key_stream(way, key, 0, bytearray(3))
    columns, value = grid_normal.table().columns, np.zeros(100)
    for key, into in ((bytes(31), value.copy()), (KEY, np.zeros(99))):
        with pytest.raises(ValueError, match="arrays of other sizes"):
            kernel.streamed(key, 0, columns, value, (1.0, 1.0, 1.0), into)
    table, single = grid_normal.table(), np.zeros(100, np.float32)
    tables, sums, kept = (table.ends, table.rectangles, table.shift), np.zeros(14), np.zeros(100, np.int8)
    short = (kept[:99], 50, 16.0, False, np.zeros(0), sums)
    for key, place, watched in ((bytes(31), 0, None), (KEY, 8, None), (KEY, 0, short), (KEY, 0, (*short[:5], sums[:13]))):
        with pytest.raises(ValueError, match="arrays of other sizes"):
            kernel.released_over((key, place), (KEY, 0), columns, tables, 50, single, (1.0, 1.0, 1.0), watched)
    for earlier, coefficients, kept in ((99, 1, 100), (100, 2, 100), (100, 1, 99)):
        vectors = (np.zeros(coefficients), (np.zeros(earlier),))
        recursion = (1.0, np.inf, 0.0, 1.0, *vectors, False, np.inf, 1.0, True, np.zeros(kept))
        with pytest.raises(ValueError, match="arrays of other sizes"):
            kernel.released_over((KEY, 0), (KEY, 0), columns, tables, 50, single, (1.0, 1.0, 1.0), None, recursion)


@pytest.mark.usefixtures("_by")
def test_no_byte_comes_twice_whoever_asks_for_it():
    stream = KeyStream(KEY)
    with ThreadPoolExecutor(4) as threads:
        blocks = list(threads.map(stream.next, [4096] * 2000))
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_stream_is_not_copied(copied):
    for one in (KeyStream(KEY), RandomStream.from_operating_system()):
        with pytest.raises(TypeError, match="used once"):
            copied(one)
    with pytest.raises(TypeError, match="used once"):
        copy.copy(KeyStream(KEY))  # of a ``RandomStream`` it has the same key stream
