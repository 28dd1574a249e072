"""The inner loops of noise on a grid: the same bits by every register of the processor, one by one, and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from zetadp.mechanisms.sampling import grid_normal, kernel
from zetadp.mechanisms.sampling.source import RandomStream


def test_kernel_and_numpy_give_the_same_bits(monkeypatch):
    if kernel.COMPILED is None:
        pytest.skip("no compiled kernel: NumPy is all there is")
    values = np.random.default_rng(1).normal(size=10_001) * 10.0 ** np.random.default_rng(2).integers(-9, 9, 10_001)

    def all_of_it():
        stream = RandomStream.from_seed(7, "same bits")
        noise = stream.grid_normal(10_001)
        kinds = [values, values.astype(np.float32), np.clip(values, -6e4, 6e4).astype(np.float16)]
        return [noise, *(kernel.released(value, noise, 1.0 / 3.0, 2.0**18, 3.0) for value in kinds)]

    with np.errstate(over="ignore"):
        ways = []
        for widest in (8, 4, 1):
            monkeypatch.setattr(kernel, "WIDEST", widest)
            ways.append(all_of_it())
        monkeypatch.setattr(kernel, "COMPILED", None)
        expected = all_of_it()
    for compiled in ways:
        for one, other in zip(compiled, expected, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("by", [(1.0 / 3.0, 2.0**18, 3.0), (1e-40, 2.0**18, 1e40), (1e49, 3.0, 1e-50), (1e305, 2.0**18, 1.1e-305)])
def test_noise_added_at_once_is_the_same_in_every_part_of_the_kernel(kind, by, monkeypatch):
    """Eight numbers at once and four where the processor can, one by one, and NumPy: with places of the rest in each."""
    if kernel.COMPILED is None:
        pytest.skip("no compiled kernel: NumPy is all there is")
    count = 8 * 5_000 + 5
    generator, columns = np.random.default_rng(3), grid_normal.table().columns
    drawn = generator.integers(0, 2**64, count, np.uint64)
    value = (generator.normal(size=count) * 10.0 ** generator.integers(-9, 9, count)).astype(kind)
    value[:4] = [0.0, -0.0, np.finfo(kind).max, np.finfo(kind).smallest_subnormal]

    def at_once(size):
        """In calls of so many words."""
        out, places = np.empty_like(value), []
        for first in range(0, count, size):
            here = slice(first, first + size)
            places.append(first + kernel.noised(drawn[here], columns, value[here], by, out[here]))
        return np.concatenate(places), out

    with np.errstate(over="ignore", invalid="ignore"):
        ways = [at_once(count), at_once(3)]
        for widest in (4, 1):
            monkeypatch.setattr(kernel, "WIDEST", widest)
            ways.append(at_once(count))
        monkeypatch.setattr(kernel, "COMPILED", None)
        expected = at_once(count)
    assert len(expected[0]) > 20
    for places, out in ways:
        assert np.array_equal(places, expected[0])
        assert np.array_equal(out.view(np.uint8), expected[1].view(np.uint8))


@pytest.mark.parametrize(
    ("numbers", "shift"), [(20_000, 10_000), (16_384, 4_101), (9_001, 4_500), (8_192, 4_096), (300, 31), (64, 1), (1, 1)]
)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_noise_is_watched_alike_in_every_part_of_the_kernel(kind, numbers, shift, monkeypatch):
    """Sixteen or eight numbers at once where the processor can, to the bit the other loops; NumPy adds in another order."""
    if kernel.COMPILED is None:
        pytest.skip("no compiled kernel: NumPy is all there is")
    generator = np.random.default_rng(numbers)
    before = generator.normal(size=numbers).astype(kind)
    after = before + (4.0 * generator.normal(size=numbers)).astype(kind)
    last = generator.integers(-127, 128, numbers).astype(np.int8)

    def watched(continues):
        kept, total, sums = last.copy(), np.zeros(min(numbers, 5_000)), np.zeros(14)
        for first in range(0, numbers, 8_192):
            part = slice(first, first + 8_192)
            kernel.watched_part(before[part], after[part], kept, first, shift, 4.0, continues, total, sums)
        return kept, total, sums

    for continues in (False, True):
        ways = []
        for widest in (8, 4, 1):
            monkeypatch.setattr(kernel, "WIDEST", widest)
            ways.append(watched(continues))
        with monkeypatch.context() as patched:
            patched.setattr(kernel, "COMPILED", None)
            kept, total, sums = watched(continues)
        for one, *others in zip(*ways, strict=True):
            assert all(np.array_equal(one, other) for other in others)
        assert np.array_equal(ways[0][0], kept)
        assert np.array_equal(ways[0][1], total)
        assert ways[0][2] == pytest.approx(sums, rel=1e-4, abs=1e-2 * numbers**0.5)


def test_the_kernel_refuses_arrays_that_do_not_fit():
    if kernel.COMPILED is None:
        pytest.skip("no compiled kernel: NumPy is all there is")
    with pytest.raises(ValueError, match="other sizes"):
        kernel.COMPILED.released(np.zeros(3), np.zeros(4), np.zeros(4), 1.0, 1.0, 1.0, False)
    single = np.zeros(3, np.float32)
    kept, sums = np.zeros(3, np.int8), np.zeros(14)
    kernel.watched_part(single, single, kept, 0, 1, 1.0, True, sums[:2], sums)
    for before, of_all, first, shift, total, into in (
        (single[1:], kept, 0, 1, sums[:2], sums),
        (np.zeros(3), kept, 0, 1, sums[:2], sums),
        (single, kept[1:], 0, 1, sums[:2], sums),
        (single, kept, 2, 1, sums[:2], sums),
        (single, np.zeros(9, np.int8), 1, 1, sums[:2], sums),
        (single, kept, -2, 1, sums[:2], sums),
        (single, kept, 0, -1, sums[:2], sums),
        (single, kept, 0, 1, sums[:4], sums),
        (single, kept, 0, 1, sums[:2], sums[1:]),
    ):
        with pytest.raises(ValueError, match="other sizes"):
            kernel.COMPILED.watched_part(8, before, single, of_all, first, shift, 1.0, True, total, into, True)
    table = grid_normal.table()
    with pytest.raises(ValueError, match="other sizes"):
        kernel.COMPILED.noised(8, np.zeros(3, "<u8"), table.columns, single, single[1:], np.zeros(3, np.int64), 1.0, 1.0, 1.0, True)
    with pytest.raises(ValueError, match="other sizes"):
        kernel.COMPILED.rest(np.zeros((4, 3), "<u8"), table.ends[1:], table.rectangles, 30, np.zeros(3, np.int64), np.zeros(3, np.int8))
    with pytest.raises(ValueError, match="other sizes"):
        kernel.COMPILED.normals(8, np.zeros(3, "<u8"), grid_normal.table().columns, np.zeros(2), np.zeros(3, np.int64))
