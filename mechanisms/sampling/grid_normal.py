r"""Normal noise on a grid, drawn exactly: floor(2^32 Z) of a standard normal Z, with no probability rounded and no tail cut off.

A sum of floats reveals more than its noise hides: float noise takes only few of the values that floats can hold, and a neighbour's sum is
off that lattice. In contrast, an integer plus floor(2^32 Z) is the floor of a sum with continuous noise. Proof: proofs/grid_noise.md.

The density of |Z| is a mixture of rectangles under the density below 8, one for each of 2048 bins, and a rest: the wedges above them and
the tail. One word of 64 bits decides which part it is (an alias table whose probabilities are whole multiples of 2^-39), the sign, and the
position in a rectangle. The rest, one draw in 600, is accepted or not by comparing random bits with a probability that is computed as
exactly as necessary.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from itertools import pairwise
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.sampling import kernel, key_stream
from zetadp.mechanisms.sampling.grid import BITS, LARGEST, STEP
from zetadp.mechanisms.sampling.key_stream import KeyStream
from zetadp.mechanisms.sampling.lazy_bits import Fill, bits_below, more_bits

BIN_BITS: Final = kernel.OFFSET_BITS
"""A bin is 2^-8 deviations wide and has 2^24 grid cells."""
BINS: Final = kernel.REST
"""Up to 8 deviations."""

COLUMNS: Final = 4096
THRESHOLD_BITS: Final = kernel.THRESHOLD_BITS
TOTAL: Final = COLUMNS << THRESHOLD_BITS
"""Probabilities of the outcomes are multiples of 1 / TOTAL = 2^-39."""

BLOCK: Final = 1 << 15
"""Words per block, so that they and the numbers made from them stay in a core's cache."""

TOGETHER: Final = 1 << 16
"""Numbers of a vector whose rest is drawn together."""

Cells = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Table:
    r"""The mixture, in integers.

    Attributes:
      columns: (4096,), a threshold above 16 bits of alias: a column's own number where 27 random bits are below its threshold, else its
        alias; 2048 means the rest, and larger numbers have threshold 0.
      rectangles: (2048,), their masses in units of 2^-39.
      ends: (2049,), sums of the rest's envelopes from the first bin on, of which the last is the tail's.
      shift: reduces a word of 64 bits to as many bits as the last of these ends has.
    """

    columns: kernel.Columns
    rectangles: NDArray[np.int64]
    ends: NDArray[np.int64]
    shift: int


@cache
def table() -> Table:
    r"""Made once per process, from decimal numbers with 50 digits: the same integers on every machine.

    >>> found = table()
    >>> int(found.rectangles.sum()) / TOTAL  # of all draws that need no second look
    0.9984...
    """
    with localcontext() as context:
        context.prec = 50
        # 2 phi at the bins' edges, times a bin's width, in units of 2^-39.
        front = Decimal(2) / (2 * _pi()).sqrt() * 2**31
        edges = [front * (-((Decimal(edge) / 256) ** 2) / 2).exp() for edge in range(BINS + 1)]
        rectangles = [int(right) for right in edges[1:]]  # rounded down: they must be under the density
        envelopes = [int(left) + 1 - rectangle for left, rectangle in zip(edges, rectangles, strict=False)]
    weights = [*rectangles, TOTAL - sum(rectangles), *[0] * (COLUMNS - BINS - 1)]
    thresholds, aliases = _alias_table(weights)
    # The tail beyond 8 weighs less than 2^-49: one unit, halved for every further deviation, is above it.
    ends = np.cumsum([*envelopes, 1])
    return Table(
        (thresholds << np.uint64(16)) | np.minimum(aliases, np.uint64(BINS)),
        np.array(rectangles),
        ends,
        64 - int(ends[-1] - 1).bit_length(),
    )


def _pi() -> Decimal:
    return Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def _alias_table(weights: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Vose 1991, in integers: column i holds its own outcome below its threshold and one other outcome above."""
    full = 1 << THRESHOLD_BITS
    left, thresholds, aliases = list(weights), [full] * COLUMNS, list(range(COLUMNS))
    small = [column for column, weight in enumerate(left) if weight < full]
    large = [column for column, weight in enumerate(left) if weight >= full]
    while small:
        column, other = small.pop(), large[-1]
        thresholds[column], aliases[column] = left[column], other
        left[other] -= full - left[column]
        if left[other] < full:
            small.append(large.pop())
            if not large:
                break
    held = [0] * COLUMNS
    for column in range(COLUMNS):
        held[column] += thresholds[column]
        held[aliases[column]] += full - thresholds[column]
    if held != list(weights):
        raise AssertionError("an alias table must hold exactly the probabilities that it was made from")
    return np.array(thresholds, np.uint64), np.array(aliases, np.uint64)


def draw(numbers: NDArray[np.float64], fill: Fill, fill_rest: Fill) -> NDArray[np.float64]:
    r"""Independent (floor(2^32 Z) + 1/2) / 2^32, exactly, over ``numbers``, (count,), which come back.

    Args:
      fill: gives the words of every draw, 64 bits each, in order.
      fill_rest: gives the words of the few draws that need more, from another stream; how many depends on the drawn words.

    >>> draw(np.empty(2), lambda words: words.fill(0), lambda words: words.fill(0)) * 2**32
    array([0.5, 0.5])
    """
    count = len(numbers)
    words = np.empty(min(count, BLOCK), "<u8")
    rest: list[NDArray[np.int64]] = []
    for first in range(0, count, BLOCK):
        part = numbers[first : first + BLOCK]
        rest.append(first + _drawn(part, words, fill))
    if rest:
        places = np.concatenate(rest)
        numbers[places] = of_rest(places, numbers[places], fill_rest)
    return numbers


def released(value: NDArray[Any], factor: float, largest: float, scale: float, fill: Fill, fill_rest: Fill) -> NDArray[Any]:
    r"""``kernel.released`` of a value and as many drawn numbers, identical to the bit, without the memory for these numbers.

    Args:
      value: (count,), contiguous, float32 or float64, of more than ``grid.FEW`` numbers; factor, largest and scale are as there.
      fill, fill_rest: as in ``draw``.
    """
    out, count = np.empty_like(value), len(value)
    words, columns, by = np.empty(min(count, BLOCK), "<u8"), table().columns, (factor, largest, scale)
    rest: list[NDArray[np.int64]] = []
    words_of_rest: list[NDArray[np.uint64]] = []
    for first in range(0, count, BLOCK):
        here = slice(first, first + BLOCK)
        own = words[: len(value[here])]
        fill(own)
        places = kernel.noised(own, columns, value[here], by, out[here])
        words_of_rest.append(own[places])
        rest.append(first + places)
    places = np.concatenate(rest)
    if len(places):
        noise = of_rest(places, kernel.signs_of(np.concatenate(words_of_rest)), fill_rest)
        out[places] = kernel.rounded(value[places], noise, *by)
    return out


def streamed(value: NDArray[Any], factor: float, largest: float, scale: float, key: bytes, block: int, rest: KeyStream) -> NDArray[Any]:
    """``released`` with the words of a key stream from this block on, and those of the rest from the other one, identical to the bit."""
    out, by = np.empty_like(value), (factor, largest, scale)
    places, values, signs = kernel.streamed(key, block, table().columns, value, by, out)
    if len(places):
        out[places] = kernel.rounded(values.astype(value.dtype), _rest_streamed(places, signs, rest), *by)
    return out


def draw_streamed(numbers: NDArray[np.float64], key: bytes, block: int, rest: KeyStream) -> NDArray[np.float64]:
    """``draw`` with the words of a key stream from this block on, and those of the rest from the other one, identical to the bit: what a
    release adds to zeros."""
    numbers.fill(0.0)
    places, _, signs = kernel.streamed(key, block, table().columns, numbers, (1.0, LARGEST, 1.0), numbers)
    if len(places):
        numbers[places] = _rest_streamed(places, signs, rest)
    return numbers


def released_over(
    value: NDArray[Any],
    by: tuple[float, float, float],
    words: KeyStream,
    rest: KeyStream,
    watched: kernel.Watched | None,
    recursion: kernel.Recursion | None = None,
) -> int:
    r"""``streamed`` over the value itself, which is looked at in the same pass, identical to the bit.

    Args:
      value: (count,), contiguous, float32 or float64, of more than ``grid.FEW`` numbers.
      by: factor, largest and scale.
      words, rest: both in the kernel (``kernel.ciphers``).
      recursion: as of ``kernel.released_over``.
    Returns:
      how many numbers, from the first on, were released: see ``kernel.released_over``; 0 where the last bytes used of ``words`` ended
      within a block. The next words are for the others.
    Raises:
      InvalidParameter: the value isn't finite everywhere.
    """
    found, done = table(), 0

    def take(key: bytes, place: int) -> int:
        behind = place

        def take_rest(own: bytes, at: int) -> int:
            nonlocal done, behind
            tables = (found.ends, found.rectangles, found.shift)
            words_at, rest_at = (key, place), (own, at)
            done, behind, after = kernel.released_over(words_at, rest_at, found.columns, tables, TOGETHER, value, by, watched, recursion)
            return after

        if place % key_stream.BLOCK == 0:
            rest.take(take_rest)
        return behind

    words.take(take)
    kernel.check_finite(done >= 0)
    return done


def _rest_streamed(places: NDArray[np.int64], signs: NDArray[np.float64], stream: KeyStream) -> NDArray[np.float64]:
    """``of_rest`` with the words of a key stream; the kernel draws all but groups with a number that needs more digits than it has."""
    found, cells = table(), places[:0]

    def take(key: bytes, place: int) -> int:
        nonlocal cells
        cells, behind = kernel.cells(key, place, places, TOGETHER, (found.ends, found.rectangles, found.shift))
        return behind

    stream.take(take)
    done = len(cells)
    numbers = _mirrored(cells, signs[:done])
    if done == len(places):
        return numbers
    return np.concatenate((numbers, of_rest(places[done:], signs[done:], lambda words: stream.fill(words.data.cast("B")))))


def _drawn(part: NDArray[np.float64], words: NDArray[np.uint64], fill: Fill) -> NDArray[np.int64]:
    """Writes a block's numbers; returns the places in it that are left to the rest."""
    own = words[: len(part)]
    fill(own)
    return kernel.normals(own, table().columns, part)


def of_rest(places: NDArray[np.int64], signs: NDArray[np.float64], fill: Fill) -> NDArray[np.float64]:
    """Numbers of the rest, (count,), at these places of a vector, which rise; the word has already decided the sign.

    Those of each ``TOGETHER`` places are drawn together, so that parts of so many numbers are the whole vector's, to the bit.
    """
    if not len(places):
        return signs
    ends = [*np.searchsorted(places, range(TOGETHER, int(places[-1]) + 1, TOGETHER)).tolist(), len(places)]
    cells = np.concatenate([draw_rest(end - start, fill) for start, end in pairwise((0, *ends)) if end > start])
    return _mirrored(cells, signs)


def _mirrored(cells: Cells, signs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.copysign((cells + 0.5) * STEP, signs)


def draw_rest(count: int, fill: Fill) -> Cells:
    """``count`` cells of |Z| from the part above the rectangles, (count,), >= 0, exactly."""
    found = table()
    accepted: list[Cells] = []
    missing = count
    while missing:
        words = np.empty((4, 2 * missing + 16), "<u8")
        fill(words)
        cells, verdicts, undecided = kernel.rest(words, found.ends, found.rectangles, found.shift)
        for number in np.flatnonzero(verdicts == kernel.UNDECIDED) if undecided else ():
            if cells[number] >= 8 << BITS:
                cells[number] += _octaves(int(words[3][number]), fill) << BITS
            verdicts[number] = is_below(int(words[2][number]), int(cells[number]), fill)
        accepted.append(cells[verdicts == kernel.ACCEPTED][:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)


def _octaves(word: int, fill: Fill) -> int:
    """m with probability 2^-(m + 1): the number of fair coins that first fall the same way."""
    passed = 0
    while word == 0:
        passed += 64
        word = more_bits(fill)
    return passed + (word & -word).bit_length() - 1


def is_below(word: int, cell: int, fill: Fill) -> bool:
    r"""Whether random bits, of which ``word`` is the first 64, are below (cell's mass - its rectangle's) / its envelope's, exactly.

    Uses as many further bits and digits as necessary.
    """
    found, number = table(), cell >> BIN_BITS

    def probability(of: Any) -> Any:
        # A cell's mass of |Z| from the tails beyond its ends, whose digits largely cancel.
        of.prec += 256 + 3 * max(0, (cell >> BITS) - 8) ** 2
        step = of.mpf(2) ** -BITS
        mass = of.erfc(cell * step / of.sqrt(2)) - of.erfc((cell + 1) * step / of.sqrt(2))
        if number >= BINS:
            return mass * 2 ** (39 + 32 + (cell >> BITS) - 8 + 1)
        height = int(found.ends[number]) - (int(found.ends[number - 1]) if number else 0)
        return (mass * 2 ** (39 + BIN_BITS) - int(found.rectangles[number])) / height

    return bits_below(word, 64, probability, fill)
