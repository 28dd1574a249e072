r"""The curve of a sum S of many ratios of Gaussian noise as a Fourier series along a vertical line.

With r < 0 and G(k) = e^{rk} E[(k - S)_+] the trapezoid rule of step 2 pi / P for G's inverse transform is sum_n G(k + nP), all terms >= 0:
what it is off by is bounded as a probability is. Values are exact but for rounding and a few bounds, where a grid has the square of its
step. E[(S - k)_+] is E[(k - S)_+] + E S - k, as long as that leaves digits. proofs/allocation.md, The series
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import scipy

from zetadp.accountants.allocation.ratio import Complexes, Nodes, Ratio
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import Floats
from zetadp.accountants.grids.convolution import FFT_ERROR

_TRUNCATED = -36.0
"""log of the share of the whole at which a series ends, and what may come from its other periods."""

_RAISED, _MOST_RAISED = 1.2, 60
"""How much larger each y is at which a series might end, and how many there are."""

_OCTAVES = 400
_PERIOD_NATS = 44.0
_CALL_NATS, _CALL_PERIOD = 27.0, 3.0
"""-log of what calls of other periods are multiplied by, and the period over the largest k, where calls are found from puts."""

_CALL_SPREADS, _CALL_SHARE, _CALL_STEP, _CALL_PRECISE = 8.0, 1e-11, 4e-3, 1e-5
"""How many spreads of the sum it goes up at least, or up to where one ratio's call is this; step over spread; precision."""

_STEP = 3e-3
"""Of the lattice of levels, over the tilt: chords are above a convex curve by an eighth of its square."""

_MOST_WORK = 3_000_000
"""Exponentials of one transform."""

_MOST_POINTS = 2**18
_FEWEST = 16
_PRECISE = 1e-6
"""Largest relative error of a value; of its slope a hundred times that."""

_CHERNOFF = np.asarray([0.2, 0.4, 0.6, 0.8])


@final
@dataclass(frozen=True)
class Series:
    """Bounds on a lattice of k, ascending: of E[(k - S)_+] or E[(S - k)_+], and of the probability of S < k or S > k.

    Attributes:
      first, step: k at index 0, and from one to the next.
      lower, upper: bounds of the values.
      slopes, doubts: the probabilities, and by how much they may be off.
    """

    first: float
    step: float
    lower: Floats
    upper: Floats
    slopes: Floats
    doubts: Floats


@final
class _Sum(NamedTuple):
    """e^{rk} E[(k - S)_+] and e^{rk} P(S < k) with what other periods add to them, both with a bound on what else they are off by."""

    k: Floats
    step: float
    scale: Floats
    values: Floats
    value_error: float
    slopes: Floats
    slope_error: float
    slack: Floats
    log_whole: float


def puts_near(ratio: Ratio, steps: int, tilt: float, low: float, high: float) -> Series | None:
    """E[(k - S)_+] from ``low`` to ``high``, at a tilt < 0 that suits them. None where it would be too long, or says too little."""
    whole = steps * float(ratio.log_moments(np.array([tilt]))[0])
    period, wrapped = max(_PERIOD_NATS / -tilt, 1.01 * high) / 1.4, math.inf
    for _ in range(8):
        period *= 1.4
        wrapped = _wrapped(ratio, steps, tilt, low, period)
        if wrapped < _TRUNCATED + whole:
            break
    found = _summed(ratio, steps, tilt, (low, high), period)
    if found is None:
        return None
    # What other periods add is >= 0: lower ends lose it, and for slopes it is doubt.
    more = 1.01 * math.exp(min(wrapped - found.log_whole, 700.0))
    return bounded(
        found.k,
        found.step,
        found.scale * (found.values + found.value_error) * (1.0 + found.slack),
        found.scale * (found.values - found.value_error - more) * (1.0 - found.slack),
        found.scale * found.slopes,
        found.scale * (found.slope_error + more + found.slack * np.abs(found.slopes)),
    )


def calls_near(ratio: Ratio, steps: int) -> Series | None:
    """E[(S - k)_+] from E S up to where it has lost its digits: a normal law's, and the difference of both as a series. (S5)

    Both laws' means are the same, so that the differences of their puts and of their calls are.
    """
    mean, variance, width = steps * ratio.mean, steps * ratio.variance, steps * ratio.tilted_variance(0.0)
    high = mean + max(_CALL_SPREADS * math.sqrt(variance), ratio.beyond(_CALL_SHARE))
    period = _CALL_PERIOD * high
    tilt = -_CALL_NATS / period
    reached = reach(ratio, steps, tilt, _CALL_SPREADS / math.sqrt(width), 0.0)
    nodes = ratio.turned_nodes(tilt)
    pitch = 2.0 * math.pi / period
    if reached is None or (count := math.ceil(reached[0] / pitch)) * len(nodes.weights) > _MOST_WORK:
        return None
    y = pitch * np.arange(count + 1.0)
    s: Complexes = np.asarray(tilt + 1j * y, dtype=np.complex128)
    minus_one, error = nodes.minus_one(y)
    # NumPy's log1p of a complex number loses the digits of a small one.
    logs = 0.5 * np.log1p(2.0 * minus_one.real + np.square(np.abs(minus_one))) + 1j * np.arctan2(minus_one.imag, 1.0 + minus_one.real)
    normal = s * mean + 0.5 * width * s * s
    sizes, powers, normals = np.abs(1.0 + minus_one), np.exp(steps * logs), np.exp(normal)
    ahead_of = steps * logs - normal
    terms = np.where(ahead_of.real < 1.0, normals * np.expm1(np.where(ahead_of.real < 1.0, ahead_of, 0.0)), powers - normals)
    own = steps * error * np.exp((steps - 1.0) * np.log(sizes + error))
    own += UNIT * 16.0 * (steps * np.abs(logs) + np.abs(normal)) * (np.abs(powers) + np.abs(normals)) + 8.0 * UNIT * np.abs(terms)
    edge = count * pitch
    tail = math.exp(reached[1]) + math.exp(-0.5 * width * (edge * edge - tilt * tilt)) * (1.0 + 1.0 / (width * edge * edge))
    step_count = min(2 ** math.ceil(math.log2(max(period / (_CALL_STEP * math.sqrt(width)), 2.0 * count + 4.0))), _MOST_POINTS)
    low = mean - 1e-3 * math.sqrt(width)
    k, step, ((values, value_error), (slopes, slope_error)) = _at(terms, own, s, low, high, step_count, tail / math.pi)
    # Of other periods: calls of both laws above, and the normal law's puts below.
    fall = math.exp(tilt * period) / -math.expm1(tilt * period)
    ahead, behind = k + period - mean, mean + period - high
    if not behind * period > 2.0 * _CALL_NATS * width:
        return None
    below = 2.0 * math.exp(min(-tilt * period * 2.0 - 0.5 * behind * behind / width, 700.0)) * (1.0 + math.sqrt(width))
    scale = np.exp(-tilt * k)
    slack = 16.0 * UNIT * (16.0 + np.abs(tilt * k))
    u = (k - mean) / math.sqrt(width)
    chance = scipy.special.ndtr(-u)
    call = math.sqrt(width) * (np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi) - u * chance)
    # The normal law's own values, and means that are equal to within a few units.
    rounding = UNIT * (64.0 + 8.0 * u * u) * (math.sqrt(width) * np.exp(-0.5 * u * u) + u * math.sqrt(width) * chance) + 8.0 * UNIT * k
    call_error = (
        scale * (value_error + below) + slack * np.abs(scale * values) + rounding + 1.01 * fall * (variance + width) / (4.0 * ahead)
    )
    chance_error = scale * (slope_error + below) + slack * np.abs(scale * slopes) + UNIT * (64.0 + 8.0 * u * u) * chance
    chance_error += 8.0 * UNIT + 1.01 * fall * (variance + width) / ahead**2
    found = call + scale * values
    return bounded(k, step, found + call_error, found - call_error, chance - scale * slopes, chance_error, _CALL_PRECISE)


def bounded(
    k: Floats, step: float, upper: Floats, lower: Floats, slopes: Floats, doubts: Floats, precise: float = _PRECISE
) -> Series | None:
    """Where the bounds are close, in one piece; None if that is hardly anywhere."""
    good = (upper - lower < 2.0 * precise * upper) & (doubts < 100.0 * precise * slopes)
    places = np.flatnonzero(good)
    if len(places) < _FEWEST:
        return None
    gaps = np.flatnonzero(~good[places[0] :])
    part = slice(int(places[0]), int(places[0] + gaps[0]) if len(gaps) else len(k))
    return (
        None if part.stop - part.start < _FEWEST else Series(float(k[part][0]), step, lower[part], upper[part], slopes[part], doubts[part])
    )


def _wrapped(ratio: Ratio, steps: int, tilt: float, low: float, period: float) -> float:
    """log of a bound on the sum of G(k + nP) over n > 0 for k >= ``low``, and on the same with probabilities. (S1)"""
    tilts = tilt * _CHERNOFF
    # (k - x)_+ <= e^{c (x - k)} / (-e c) for c < 0, and the indicator of x < k is at most e^{c (x - k)}.
    sizes = steps * ratio.log_moments(tilts) + (tilt - tilts) * (low + period) + np.log(1.0 + 1.0 / (math.e * -tilts))
    return float(np.min(sizes - np.log(-np.expm1((tilt - tilts) * period)))) + 1e-6


def reach(ratio: Ratio, steps: int, tilt: float, least: float, whole: float) -> tuple[float, float] | None:
    """(Y, log of a bound on the integral of |E e^{sX}|^t / |s| over y > Y), Y where it is small; None if it is out of reach. (S4)"""
    # The bound falls with y.
    place = _first(lambda place: steps * ratio.log_modulus(tilt, least * _RAISED**place) < whole + _TRUNCATED)
    if place is None:
        return None
    y = least * _RAISED**place
    bound = steps * ratio.log_modulus(tilt, y)
    total, start = -math.inf, y
    for _ in range(_OCTAVES):
        # From y to 4y the modulus is at most that at y, and a sum of step / y is at most log 4 and one term more.
        total = float(np.logaddexp(total, bound + math.log(math.log(4.0) + 1.0)))
        y *= 4.0
        far = steps * ratio.log_far_modulus(tilt, y)
        if far < whole + 2.0 * _TRUNCATED:
            return start, float(np.logaddexp(total, far + math.log(1.0 / steps + 1.0)))
        bound = min(bound, steps * ratio.log_modulus(tilt, y))
    return None


def _first(holds: Callable[[int], bool]) -> int | None:
    """The first number at which a condition holds that goes on holding; None if it is more than ``_MOST_RAISED``."""
    low, high = -1, 0
    while not holds(high):
        if high == _MOST_RAISED:
            return None
        low, high = high, min(2 * high + 4, _MOST_RAISED)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def log_tail_integral(ratio: Ratio, steps: int, tilt: float, log_most: float) -> float | None:
    """log of a bound on the integral of |E e^{sX}|^t / |s| over y > 0, of a power of at most e^{log_most}; for any sign of the tilt."""
    found = reach(ratio, steps, tilt, abs(tilt), log_most)
    return None if found is None else float(np.logaddexp(log_most + math.log1p(found[0] / abs(tilt)), found[1]))


def _summed(ratio: Ratio, steps: int, tilt: float, span: tuple[float, float], period: float) -> _Sum | None:
    low, high = span
    whole_bound = steps * float(ratio.log_moments(np.array([tilt]))[0])
    reached = reach(ratio, steps, tilt, 4.0 / math.sqrt(steps * ratio.tilted_variance(tilt)), whole_bound)
    if reached is None:
        return None
    pitch = 2.0 * math.pi / period
    count = math.ceil(reached[0] / pitch)
    nodes = _nodes(ratio, tilt, count * pitch, count)
    if nodes is None:
        return None
    y = pitch * np.arange(count + 1.0)
    transform, error = nodes.transform(y)
    whole = float(transform[0].real)
    share = error / whole + 8.0 * UNIT if whole > 0.0 else math.inf
    if not steps * share < 1e-4:
        return None
    ratios = transform / whole
    logs = np.log(np.where(np.abs(ratios) > 1e-300, ratios, 1e-300))
    powers = np.exp(steps * logs)
    log_whole = steps * math.log(whole)
    # (S3) every power is off by its share of the largest one, and by its own rounding.
    own = 1.01 * steps * share + UNIT * (64.0 + 16.0 * steps * (1.0 + np.abs(logs))) * np.abs(powers)
    rest = 1.01 * math.exp(min(reached[1] - log_whole, 700.0)) / math.pi
    size = 2 ** math.ceil(math.log2(max(period * -tilt / _STEP, period / (high - low) * 4.0 * _FEWEST, 2.0 * count + 4.0)))
    if size > _MOST_POINTS:
        return None
    k, step, sums = _at(powers, own, np.asarray(tilt + 1j * y, dtype=np.complex128), low, high, size, rest)
    slack = 16.0 * UNIT * (abs(log_whole) + np.abs(tilt * k) + 16.0)
    scale = np.exp(log_whole - tilt * k)
    return _Sum(k, step, scale, *sums[0], *sums[1], slack, log_whole)


def _at(
    terms: Complexes, own: Floats, s: Complexes, low: float, high: float, size: int, rest: float
) -> tuple[Floats, float, tuple[tuple[Floats, float], tuple[Floats, float]]]:
    """(k, their step, (sums of the terms over s^2, bound on their errors), (the same over -s)) from ``low`` on. (S3)

    Args:
      own: bounds on the errors of the terms.
      rest: bound on the integral of what is left out over pi |s|.
    """
    y = s.imag
    pitch = float(y[1])
    step = 2.0 * math.pi / pitch / size
    k: Floats = np.asarray(low + step * np.arange(min(math.ceil((high - low) / step) + 1, size)), dtype=np.float64)
    turns, halves = np.exp(1j * y * low), np.where(y > 0.0, 1.0, 0.5)
    sums: list[tuple[Floats, float]] = []
    for kernel, left in ((1.0 / s**2, rest / float(y[-1])), (-1.0 / s, rest)):
        shares = terms * kernel
        values = np.asarray(scipy.fft.irfft(np.conj(shares) * turns, size), dtype=np.float64) * (size * pitch / (2.0 * math.pi))
        turned = UNIT * (32.0 + 8.0 * y * high) * np.abs(shares)
        off = 1.01 * (pitch / math.pi) * float((halves * (own * np.abs(kernel) + turned)).sum())
        sums.append((values[: len(k)], off + 1.01 * FFT_ERROR * math.log2(size) * float(np.linalg.norm(values)) + left))
    return k, step, (sums[0], sums[1])


def _nodes(ratio: Ratio, tilt: float, largest: float, count: int) -> Nodes | None:
    """On the real line or off it, whichever needs fewer nodes; None if both need too many."""
    turned = ratio.turned_nodes(tilt)
    is_exact = turned.error < math.exp(-36.0) * math.exp(float(ratio.log_moments(np.array([tilt]))[0]))
    most = min(_MOST_WORK // (count + 1), 2 * len(turned.weights) if is_exact else _MOST_WORK)
    found = ratio.nodes(tilt, largest, most)
    if found is None and is_exact and len(turned.weights) * (count + 1) <= _MOST_WORK:
        return turned
    return found
