r"""Tests by the largest output of each epoch: how many are above a threshold, and a sum of labels. proofs/shuffled.md, (1), (3), (4).

A test is a pair of logarithms, a lower end under P and an upper one under Q; arrays of them have the shape (tests,).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT

Floats = NDArray[np.float64]
Tests = tuple[Floats, Floats]

LEAST, BEYOND = -9.0, 38.0
"""Where thresholds begin, and how far they go beyond the largest shift, in units of the noise."""

_COUNTS = 40
"""Counts of epochs that are asked for, of each threshold."""

ERROR = 1e-11
"""Allowance for a logarithm of a product of normal probabilities, relative to 1 plus its size."""

_COUNT_ERROR = 1e-9
"""Relative allowance for a tail of a binomial distribution (an incomplete beta function)."""

_MOST_SUMS, _LARGEST_LABEL, _LEAST_LABEL = 2**12, 64, 3
"""Different sums of labels at most; the largest label, and the least one that is worth more than a count."""

_RANGES = (0.5, 2.0, 8.0, 32.0)
"""Log ratios that the largest label stands for."""


@final
class Largest(NamedTuple):
    r"""Logarithms of probabilities of the largest output of an epoch, at thresholds C in order.

    Attributes:
      low, high: (thresholds,); that it is at most C, with the smaller shift and with the larger one.
    """

    low: Floats
    high: Floats

    @property
    def tests(self) -> tuple[Tests, Tests]:
        """That it is above C, which the larger shift does more often, and that it isn't."""
        return (lower(complement(self.high)), upper(complement(self.low))), (lower(self.low), upper(self.high))


def largest(low: float, high: float, steps: int, points: int) -> Largest:
    """One of an epoch's ``steps`` outputs is shifted, by ``low`` or by ``high``; the others are noise alone."""
    thresholds = np.linspace(LEAST, high + BEYOND, points)
    others = (steps - 1) * scipy.special.log_ndtr(thresholds)
    return Largest(others + scipy.special.log_ndtr(thresholds - low), others + scipy.special.log_ndtr(thresholds - high))


def counts(log_p: Floats, log_q: Floats, count: int) -> Iterator[tuple[int, Tests]]:
    """(k, that an epoch's outputs are in a set in at least k of ``count`` epochs), for several k."""
    p, q = np.exp(log_p) * (1.0 - 1e-15), np.minimum(np.exp(log_q) * (1.0 + 1e-15), 1.0)
    for k in dict.fromkeys(np.rint(np.geomspace(1, count, _COUNTS)).astype(int).tolist()):
        with np.errstate(divide="ignore"):
            tails = [np.log(scipy.special.betainc(k, count - k + 1, one)) for one in (p, q)]
        yield k, (tails[0] - _COUNT_ERROR, tails[1] + _COUNT_ERROR)


def sums(found: Largest, count: int) -> Iterator[Tests]:
    """That the sum of labels of ``count`` epochs is at least a number, in both orders; none where there are too many epochs."""
    most = min(_LARGEST_LABEL, (_MOST_SUMS // count - 1) // 2)
    if most < _LEAST_LABEL:
        return
    sides = [_slices(side) for side in found]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(sides[1].least) - np.log(sides[0].most), nan=0.0, posinf=1e3, neginf=-1e3)
    for reach in _RANGES:
        deadline.check()
        labels = np.clip(np.rint(ratios / reach * most), -most, most).astype(np.int64) + most
        for p, q, places in ((sides[1], sides[0], labels), (sides[0], sides[1], 2 * most - labels)):
            at_least, at_most = (
                _tails(np.bincount(places, masses, 2 * most + 1).astype(np.float64), count) for masses in (p.least, q.most)
            )
            error = 4.0 * UNIT * count * (2 * most * count + 1)
            with np.errstate(divide="ignore"):
                yield np.log(at_least) - error, np.log(at_most) + error


@final
class _Slices(NamedTuple):
    """Lower and upper ends of the probabilities between thresholds, (thresholds + 1,)."""

    least: Floats
    most: Floats


def _slices(below: Floats) -> _Slices:
    """A slice is a difference of two probabilities below, and of two above: each gives both ends."""
    above = complement(below)[::-1]
    least, most = np.zeros(len(below) + 1), np.full(len(below) + 1, np.inf)
    for side, order in ((below, slice(None)), (above, slice(None, None, -1))):
        low, high = (np.concatenate(([0.0], np.exp(bound(side)), [1.0])) for bound in (lower, upper))
        least = np.maximum(least, ((low[1:] - high[:-1]) * (1.0 - 2.0 * UNIT))[order])
        most = np.minimum(most, ((high[1:] - low[:-1]) * (1.0 + 2.0 * UNIT))[order])
    return _Slices(least, most)


def _tails(masses: Floats, count: int) -> Floats:
    """Of the sum of ``count`` independent labels: at least each number. Sums of products without a negative one."""
    power, square = np.ones(1), masses
    while True:
        if count % 2:
            power = np.convolve(power, square)
        count //= 2
        if not count:
            return np.cumsum(power[::-1])[::-1]
        square = np.convolve(square, square)


def complement(log_probability: Floats) -> Floats:
    """log(1 - e^x)."""
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(log_probability))


def lower(log_probability: Floats) -> Floats:
    """Its lower end."""
    return log_probability * (1.0 + ERROR) - ERROR


def upper(log_probability: Floats) -> Floats:
    """Its upper end."""
    return np.minimum(log_probability * (1.0 - ERROR) + ERROR, 0.0)
