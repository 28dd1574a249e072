r"""The inner loops for noise on a grid: in C if the installation could compile it, otherwise in NumPy, with identical bits."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.grid import FEW, STEP

LOOPS: Final = ("normals", "noised", "rest", "released", "watched_part")


def _compiled() -> Any:
    try:
        found = import_module("zetadp.mechanisms.sampling._kernel")
    except ImportError:
        return None
    # A module compiled from an earlier version remains until the next installation.
    return found if all(hasattr(found, name) for name in LOOPS) else None


COMPILED: Any = _compiled()
"""The C module; None if there was no compiler."""

WIDEST: int = 8
"""The C loops use the processor's registers of at most so many numbers; all give the same bits."""

KINDS: Final = (np.dtype(np.float32), np.dtype(np.float64))
"""Number types that the C loop accepts. NumPy works their names out anew each time, which takes as long as a thousand numbers."""

OFFSET_BITS: Final = 24
THRESHOLD_BITS: Final = 27
REST: Final = 2048
"""Bins of grid_normal's table; the additional outcome has this number."""

REJECTED, ACCEPTED, UNDECIDED = 0, 1, -1
"""Verdicts on a cell of the rest."""

DENSITY_ERROR: Final = 2.0**-44
"""Largest relative error of the normal density in float64. A comparison closer to its probability isn't trusted."""
UNIFORM_ERROR: Final = 2.0**-50

Columns = NDArray[np.uint64]
"""Of ``grid_normal.Table``: a threshold of 28 bits above an alias of 16."""

Tables = tuple[NDArray[np.int64], NDArray[np.int64], int]
"""Of ``grid_normal.Table``: ends, rectangles and shift, as of ``rest``."""

Place = tuple[bytes, int]
"""In the key stream of a key: the key, and the number of a byte."""

Watched = tuple[NDArray[np.int8], int, float, bool, NDArray[np.float64], NDArray[np.float64]]
"""What a release is looked at with: kept, shift, steps, continues, total and sums, as of ``watched_part``."""

Recursion = tuple[float, float, float, float, NDArray[np.float64], tuple[NDArray[Any], ...], bool, float, float, bool, NDArray[np.float64]]
"""What a vector is made into before it is released (``trainer.engine.noise.weighted``): factor, largest, unit, own, coefficients, earlier
vectors, whether these are float32, bound, weight, whether the sum is kept, and where, a vector of float64."""

Proposals = tuple[NDArray[np.int64], NDArray[np.int8], int]
"""Cells, (n,); verdicts, (n,); how many of them are ``UNDECIDED``."""


def ciphers() -> int:
    """How many ways of AES-256's key stream the C module has: one, two or four blocks an instruction, if the processor can."""
    # A module compiled from an earlier version may lack what goes with them.
    return COMPILED.ciphers() if hasattr(COMPILED, "released_over") else 0


def normals(words: NDArray[np.uint64], columns: Columns, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    r"""Writes the normal number that each word gives, (cell + 1/2) / 2^32, to ``numbers``.

    Returns:
      places of the rest, where only the sign is decided: these hold (1/2 or -1/2) / 2^32.
    """
    if COMPILED is not None:
        rest = np.empty(len(words), np.int64)
        return rest[: COMPILED.normals(WIDEST, words, columns, numbers, rest)]
    entries = columns.view(np.int64)
    thresholds, aliases = entries >> 16, entries & 0xFFFF
    column = (words >> np.uint64(52)).view(np.int64)
    low = words.view(np.int64)
    is_own = ((low >> 25) & ((1 << THRESHOLD_BITS) - 1)) < thresholds[column]
    outcome = np.where(is_own, column, aliases[column])
    sign = -((low >> OFFSET_BITS) & 1)
    cells = (outcome << OFFSET_BITS) | (low & ((1 << OFFSET_BITS) - 1))
    rest = np.flatnonzero(outcome == REST)
    cells[rest] = 0
    # A cell [v, v + 1) mirrored is [-1 - v, -v).
    np.bitwise_xor(cells, sign, out=cells)
    np.add(cells, 0.5, out=numbers)
    numbers *= STEP
    return rest


def signs_of(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """1 or -1, as each word decides it."""
    return 1.0 - 2.0 * ((words >> np.uint64(OFFSET_BITS)) & np.uint64(1)).astype(np.float64)


def rest(words: NDArray[np.uint64], ends: NDArray[np.int64], rectangles: NDArray[np.int64], shift: int) -> Proposals:
    r"""Cells of |Z| proposed for the rest, and the verdict on each, as far as float64 can decide.

    Args:
      words: (4, n); the first selects the envelope, the second the place in it, the third whether it is accepted.
      ends, rectangles: of ``grid_normal.Table``.
      shift: of the first word, to a place below the last end.
    Returns:
      ``UNDECIDED`` marks what is too close to decide and what is in the tail, where the cell is that of the first octave.
    """
    if COMPILED is None:
        return _rest(words, ends, rectangles, shift)
    cells, verdicts = np.empty(words.shape[1], np.int64), np.empty(words.shape[1], np.int8)
    return cells, verdicts, COMPILED.rest(words, ends, rectangles, shift, cells, verdicts)


def released(value: NDArray[Any], noise: NDArray[np.float64], factor: float, largest: float, scale: float) -> NDArray[Any]:
    r"""(value * factor, clamped to +-largest and rounded to the grid, + noise) * scale, in the type of the value.

    Args:
      value: real and contiguous; its numbers are float64 or narrower.
      noise: standard noise of the same shape, on the grid.
    Raises:
      InvalidParameter: the value isn't finite everywhere.
    """
    if value.size <= FEW:
        check_finite(bool(np.isfinite(value).all()))
        return _of_fractions(value, noise, factor, largest, scale)
    return rounded(value, noise, factor, largest, scale)


def rounded(
    value: NDArray[Any], noise: NDArray[np.float64], factor: float, largest: float, scale: float, into: NDArray[Any] | None = None
) -> NDArray[Any]:
    """``released`` for a part of many numbers, itself of any size; ``into``: contiguous, of the result's type."""
    if COMPILED is not None and value.dtype in KINDS and value.flags.c_contiguous and noise.flags.c_contiguous:
        out = np.empty_like(value) if into is None else into
        check_finite(COMPILED.released(value, noise, out, factor, largest, scale, value.dtype == np.float32))
        return out
    check_finite(bool(np.isfinite(value).all()))
    steps = np.asarray(value, dtype=np.float64) * factor
    np.clip(steps, -largest, largest, out=steps)
    steps *= 1.0 / STEP
    np.rint(steps, out=steps)
    steps *= STEP
    steps += noise
    steps *= scale
    if into is not None:
        into[...] = steps
        return into
    return steps.astype(value.dtype, copy=False) if np.issubdtype(value.dtype, np.inexact) else steps


def noised(
    words: NDArray[np.uint64],
    columns: Columns,
    value: NDArray[Any],
    by: tuple[float, float, float],
    into: NDArray[Any],
) -> NDArray[np.int64]:
    r"""``rounded`` of a value and the numbers that ``normals`` makes of as many words, in one pass.

    Args:
      value, into: contiguous, of a type of ``KINDS``.
      by: factor, largest and scale, as of ``released``.
    Returns:
      the places of the rest, where the noise is still missing.
    Raises:
      InvalidParameter: the value isn't finite everywhere.
    """
    if COMPILED is None:
        numbers = np.empty(len(words))
        places = normals(words, columns, numbers)
        _ = rounded(value, numbers, *by, into)
        return places
    places = np.empty(len(words), np.int64)
    found = COMPILED.noised(WIDEST, words, columns, value, into, places, *by, value.dtype == np.float32)
    check_finite(found >= 0)
    return places[:found].copy()


def streamed(
    key: bytes, block: int, columns: Columns, value: NDArray[Any], by: tuple[float, float, float], into: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    r"""``noised`` with words of the key stream of ``key`` from this block on, which are nowhere in memory afterwards; needs ``ciphers``.

    Args:
      value, into: as of ``noised``.
    Returns:
      the places of the rest, where the noise is still missing; the values there; and the signs that the words decided.
    Raises:
      InvalidParameter: the value isn't finite everywhere.
    """
    found, left = np.empty(len(value), np.int64), np.empty(len(value))
    count = COMPILED.streamed(ciphers(), WIDEST, key, block, columns, value, into, found, left, *by, value.dtype == np.float32)
    check_finite(count >= 0)
    places = found[:count]
    return places >> 1, left[:count].copy(), 1.0 - 2.0 * (places & 1).astype(np.float64)


def cells(key: bytes, place: int, places: NDArray[np.int64], together: int, tables: Tables) -> tuple[NDArray[np.int64], int]:
    r"""Cells of |Z| of the rest at these places, which rise, from the key stream of ``key`` from byte ``place`` on; needs ``ciphers``.

    Args:
      together: those of so many numbers are drawn at once.
      tables: ends, rectangles and shift, as of ``rest``.
    Returns:
      the cells, and the place behind what was taken. Fewer cells where one of a group can't be decided here: none of that group.
    """
    found = np.empty(len(places), np.int64)
    count, behind = COMPILED.cells(ciphers(), key, place, places, together, *tables, found)
    return found[:count], behind


def released_over(
    words: Place,
    rest: Place,
    columns: Columns,
    tables: Tables,
    together: int,
    value: NDArray[Any],
    by: tuple[float, float, float],
    watched: Watched | None,
    recursion: Recursion | None = None,
) -> tuple[int, int, int]:
    r"""``streamed`` over the value itself, with its rest, and ``watched_part`` of all of it, in one pass; needs ``ciphers``.

    Args:
      words, rest: places in two key streams, of the words (a whole number of blocks) and of the rest.
      together: the rest of so many numbers is drawn at once.
      value: (count,), contiguous, of a type of ``KINDS``, of more than ``grid.FEW`` numbers.
      by: factor, largest and scale, as of ``released``.
      recursion: what it makes of the value, in float64, is released, in the value's type; what it keeps is written for the numbers that
        were released.
    Returns:
      how many numbers, from the first on, were released: all, or an even number of whole groups where one behind them can't be decided
      here, and then more than ``grid.FEW`` are left; -1 where the value isn't finite everywhere (see ``check_finite``), and some of it
      may be released. And the places behind what was taken of both streams, which must be told of it even then.
    """
    looks, of = () if watched is None else watched, () if recursion is None else recursion
    single = value.dtype == np.float32
    return COMPILED.released_over(ciphers(), WIDEST, *words, *rest, columns, *tables, together, FEW, value, *by, single, looks, of)


def watched_part(
    before: NDArray[Any],
    after: NDArray[Any],
    kept: NDArray[np.int8],
    first: int,
    shift: int,
    steps: float,
    continues: bool,
    total: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    r"""Looks at the noise after - before of a part of a release.

    Args:
      before, after: (count,), contiguous, both of one type of ``KINDS``; the release's numbers from number ``first`` on, which is even. The
        noise is looked at as float32.
      kept: (numbers of the release,): where ``continues`` the last release's noise, in ``whole_steps``; overwritten by this one's.
      shift: how many places apart the noise is multiplied with itself.
      steps: in the unit of the noise.
      total: (the first numbers of the release,): the noise is added to it.
      sums: (14,): added to it are four sums of products each of the noise with itself, with the last noise in steps, and of the noise in
        steps ``shift`` places before with it: over even places, over odd ones, of the first's even places by the second's odd ones, and the
        reverse; added in float32 for a few thousand numbers and in float64 beyond. Then the sums of what was added to ``total`` at even and
        at odd places.
    """
    if COMPILED is not None:
        single = before.dtype == np.float32
        COMPILED.watched_part(WIDEST, before, after, kept, first, shift, steps, continues, total, sums, single)
        return
    noise, end = (after - before).astype(np.float32, copy=False), first + len(before)
    sums[:4] += _products(noise, noise)
    if continues:
        sums[4:8] += _products(noise, kept[first:end])
    kept[first:end] = whole_steps(noise, steps)
    if (start := max(first, shift)) < end:
        sums[8:12] += _products(kept[start - shift : end - shift], noise[start - first :])
    of_first = noise[: max(0, len(total) - first)]
    total[first : first + len(of_first)] += of_first
    sums[12:] += of_first[::2].sum(dtype=np.float64), of_first[1::2].sum(dtype=np.float64)


def whole_steps(noise: NDArray[Any], steps: float) -> NDArray[np.int8]:
    """Noise in steps, so many in its unit, rounded towards 0, and at most 127. NaN is -127: other sums tell of it, as of infinity."""
    return np.nan_to_num(np.clip(noise * np.float32(steps), -127.0, 127.0), nan=-127.0).astype(np.int8)


def _products(x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float, float, float]:
    """Sums over even places, over odd ones, of x at even places by y at odd ones, and the reverse."""
    parts = (x[::2], x[1::2], y[::2], y[1::2])
    a, b, c, d = (part.astype(np.float64) for part in parts)
    return float(a @ c), float(b @ d), float(a[: len(d)] @ d), float(b @ c[: len(b)])


def check_finite(is_finite: bool) -> None:
    """Raises InvalidParameter if a value isn't."""
    if not is_finite:
        # inf + noise is inf: the release would reveal the record, and no sensitivity bound covers it.
        raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")


def _of_fractions(value: NDArray[Any], noise: NDArray[np.float64], factor: float, largest: float, scale: float) -> NDArray[Any]:
    """The same for a few numbers of any size, whose product with ``factor`` isn't rounded before it is put on the grid."""
    found = np.empty(value.shape)
    exact, times = Fraction(factor) / Fraction(STEP), Fraction(scale)
    for place in np.ndindex(value.shape):
        number = Fraction(float(value[place])) * exact
        if largest < math.inf:
            number = min(max(number, Fraction(-largest / STEP)), Fraction(largest / STEP))
        whole = (round(number) * Fraction(STEP) + Fraction(float(noise[place]))) * times
        # Values outside double precision are clamped to its largest number.
        found[place] = float(min(max(whole, Fraction(-sys.float_info.max)), Fraction(sys.float_info.max)))
    return found.astype(value.dtype, copy=False) if np.issubdtype(value.dtype, np.inexact) else found


def _rest(words: NDArray[np.uint64], ends: NDArray[np.int64], rectangles: NDArray[np.int64], shift: int) -> Proposals:
    places, offsets = (words[0] >> np.uint64(shift)).view(np.int64), (words[1] >> np.uint64(32)).view(np.int64)
    table: Any = ends
    bins: NDArray[np.int64] = table.searchsorted(places, side="right")
    is_tail, inside = bins == REST, np.minimum(bins, REST - 1)
    cells: NDArray[np.int64] = (bins << OFFSET_BITS) | (offsets & ((1 << OFFSET_BITS) - 1))
    cells[is_tail] = (8 << 32) + offsets[is_tail]
    heights = np.diff(ends, prepend=0)[inside].astype(np.float64)
    centres = (cells + 0.5) * STEP
    densities = 2.0**32 / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * centres * centres)
    apart = words[2].astype(np.float64) * 2.0**-64 - (densities - rectangles[inside]) / heights
    verdicts = (apart < 0.0).astype(np.int8)
    verdicts[np.abs(apart) <= densities * DENSITY_ERROR / heights + UNIFORM_ERROR] = UNDECIDED
    verdicts[bins > REST] = REJECTED
    verdicts[is_tail] = UNDECIDED
    return cells, verdicts, int((verdicts == UNDECIDED).sum())
