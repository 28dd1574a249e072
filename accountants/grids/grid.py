r"""Privacy loss laws on a lattice c + h Z that exactly dominate a pair, or are dominated by it: every rounding goes one way.

A law with mass p_k at loss eps_k = c + k h has H(gamma) = sum_k p_k (1 - gamma e^{-eps_k})_+, linear in gamma between nodes. It dominates
a pair if H(gamma_k) is at or above the pair's at every node and at 0 (the pair's curve is convex), and is dominated if every chord is
below a tangent of the pair's curve. Neither needs total mass 1. proofs/fft.md, sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import TINY, Calls
from zetadp.accountants.grids.hockey_stick import calls, puts
from zetadp.accountants.pairs import Pair

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Kind: TypeAlias = Callable[[Pair, Floats], Calls]

_LEAN = 4.0 * UNIT
"""Relative, by which the join of puts and calls is rounded to the safe side."""

_FAST_SWEEPS, _MOST_SWEEPS = 8, 40
_TURNED = 1e-4
"""Share of the last put from which puts are compared with calls."""

_FEW = 100
"""So few nodes that bend the wrong way are mended one by one: else each sweep over all of them would remove one more."""

_NEAR = 1e-6
_CHUNK = 16384


@final
@dataclass(frozen=True)
class Stretches:
    """Lattice indices ``begins[j]`` and ``stops[j]`` up to which the spacing is at most 2^j, downwards and upwards."""

    begins: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def size(self) -> int:
        """The approximate number of nodes in ``indices``."""
        total = self.stops[0] - self.begins[0]
        for level in range(1, len(self.stops)):
            total += (self.stops[level] - self.stops[level - 1] + self.begins[level - 1] - self.begins[level]) >> level
        return total

    def indices(self) -> Indices:
        """Ascending lattice indices, from 0 to beyond the last stretch."""
        above: list[Indices] = [np.arange(self.begins[0], self.stops[0] + 1, dtype=np.int64)]
        below: list[Indices] = []
        first, last = self.begins[0], int(above[0][-1])
        for level in range(1, len(self.stops)):
            spacing = 2**level
            above.append(np.arange(last + spacing, self.stops[level] + 1, spacing, dtype=np.int64))
            below.append(np.arange(first - spacing, self.begins[level] - 1, -spacing, dtype=np.int64)[::-1])
            last = int(above[-1][-1]) if len(above[-1]) else last
            first = int(below[-1][0]) if len(below[-1]) else first
        lowest: Indices = np.arange(0, 1 if first > 0 else 0)
        highest: Indices = np.arange(self.stops[-1] + 1, self.stops[-1] + (2 if last < self.stops[-1] else 1))
        return np.concatenate((lowest, *below[::-1], *above, highest))


@final
@dataclass(frozen=True)
class GridLaw:
    """Masses on a lattice.

    Attributes:
      start: loss at index 0.
      step: h.
      index: ascending lattice indices >= 0.
      masses: masses of P at start + h index; > 0. Empty for the law that everything dominates.
      infinity: mass of P at loss +infinity.
    """

    start: float
    step: float
    index: Indices
    masses: Floats
    infinity: float


@final
class Lattice:
    """The pair's curve at nodes start + h index: calls from the first node >= 0 on, puts before it.

    Args:
      pair: what to discretise.
      start: loss at index 0, < 0.
      step: h.
      index: ascending lattice indices from 0 on, not necessarily all; the loss at the second-to-last one is > 0.
    """

    def __init__(self, pair: Pair, start: float, step: float, index: Indices) -> None:
        assert start < 0.0 < start + step * float(index[-2])
        self._pair, self._start, self._step, self._index = pair, start, step, index
        self._widths = np.diff(index) * step
        self._nodes: Floats = np.asarray(start + step * index, dtype=np.float64)
        self._zero = int(np.searchsorted(self._nodes, 0.0))

    def upper(self) -> GridLaw:
        """Dominates the pair: connects the dots (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022)."""
        zero, nodes = self._zero, self._nodes
        # Evaluated where the exact lattice's value can only be smaller: calls fall in epsilon, puts rise.
        call = self._values(nodes[zero:] - self._blur(nodes[zero:]), calls).upper
        put = self._values(nodes[:zero] + self._blur(nodes[:zero]), puts).upper
        masses, rounding = self._masses(np.arange(len(nodes)), np.concatenate((put, call)), -_LEAN, 0.0, 0.0)
        return self._law(np.arange(len(nodes)), masses + rounding, float(call[-1]))

    def lower(self) -> GridLaw:
        """Dominated by the pair: at every node the lower of the tangents to the adjacent cells, made convex.

        What is beyond the last node is infinite: it is dominated up to there, and everywhere without that mass. (3.4), (4.9)
        """
        curve, missing = self._tangents()
        # The finite losses' curve is lower by its value at the last node. (3.4)
        dropped = max(float(curve[self._zero :].min()), 0.0)
        curve[self._zero :] -= dropped
        curve[-1] = 0.0
        kept = np.arange(len(curve))
        for sweep in range(1, _MOST_SWEEPS):
            deadline.check()
            masses, rounding = self._masses(kept, curve, _LEAN, dropped, missing)
            above, doubtful = masses < -rounding, np.abs(masses) < rounding
            if above[-1] or len(kept) < 4:
                break
            if above.any():
                # A node above the chord of its neighbours isn't on the convex minorant.
                if np.count_nonzero(above) <= _FEW and sweep < _MOST_SWEEPS // 2:
                    kept = self._hull(kept[~above], curve, dropped, kept[above])
                else:
                    kept = kept[~above] if sweep % _FAST_SWEEPS else self._hull(kept[~above], curve, dropped, None)
            elif doubtful[:-1].any():
                kept = self._straightened(kept, curve, doubtful, rounding)
            else:
                return self._law(kept, masses - rounding, dropped)
        return self._law(kept[:0], curve[:0], 0.0)

    def _hull(self, kept: Indices, curve: Floats, dropped: float, near: Indices | None) -> Indices:
        """The vertices of the convex minorants of puts and of calls, for stretches that bend the wrong way by no more than rounding.

        Args:
          near: nodes that were removed, if the curve is known to bend the right way elsewhere.
        """
        before, after = kept[kept < self._zero], kept[kept >= self._zero]
        left = self._vertices(before, curve, near)
        if len(before) == 0:
            return self._vertices(after, curve, near)
        # Calls go on from the last puts, as calls: where calls are less well known than puts, many puts are above their chords.
        joined, turned = curve.copy(), left[int(np.argmax(curve[left] >= _TURNED * curve[left[-1]])) :]
        # As low as the masses take them: else nodes of a straight stretch, as that of rare samples is, would go one at a time.
        blur = 2.0 * float(np.max(self._blur(self._nodes[[int(turned[-1]), int(after[0])]])))
        joined[turned] = (curve[turned] - np.expm1(self._nodes[turned]) - dropped) * (1.0 - _LEAN) - blur
        return np.concatenate((left[: -len(turned)], self._vertices(np.append(turned, after), joined, near)))

    def _vertices(self, kept: Indices, curve: Floats, near: Indices | None) -> Indices:
        """The vertices of the convex minorant: all of it, or mended around nodes that were removed."""
        return _chain(kept, self._nodes, curve) if near is None else _mended(kept, self._nodes, curve, np.searchsorted(kept, near))

    def _straightened(self, kept: Indices, curve: Floats, doubtful: NDArray[np.bool_], rounding: Floats) -> Indices:
        """Drops the nodes at which the curve is straight up to rounding; the ends of each straight piece go down by all of it. (3.5)"""
        if doubtful[0]:
            curve[kept[0]] -= 4.0 * rounding[0] * self._widths[0]
        doubtful[0] = doubtful[-1] = False
        inside = np.flatnonzero(doubtful)
        if len(inside) == 0:
            return kept
        breaks = np.flatnonzero(np.diff(inside) > 1)
        begins, ends = inside[np.append(0, breaks + 1)] - 1, inside[np.append(breaks, len(inside) - 1)] + 1
        sums = np.append(0.0, np.cumsum(rounding))
        for side in (begins, ends):
            np.subtract.at(curve, kept[side], 4.0 * (sums[ends] - sums[begins + 1]))
        return kept[~doubtful]

    def _law(self, kept: Indices, masses: Floats, infinity: float) -> GridLaw:
        some = masses > 0.0
        return GridLaw(self._start, self._step, self._index[kept[some]], masses[some], infinity)

    def _values(self, epsilons: Floats, kind: Kind) -> Calls:
        """The values, computed in chunks that stay in the processor's cache."""
        parts = [kind(self._pair, epsilons[i : i + _CHUNK]) for i in range(0, max(len(epsilons), 1), _CHUNK)]
        deadline.check()
        if len(parts) == 1:
            return parts[0]
        return Calls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("lower", "upper", "tail", "doubt")))

    def _blur(self, epsilons: Floats) -> Floats:
        """How far the exact lattice may be from the floats that represent it."""
        return 4.0 * UNIT * (np.abs(epsilons) + abs(self._start))

    def _masses(self, kept: Indices, curve: Floats, lean: float, dropped: float, missing: float) -> tuple[Floats, Floats]:
        """Second differences in gamma, times gamma, of the curve that is linear between the nodes ``kept``; and a bound on their rounding.

        Args:
          curve: puts at nodes below 0, calls less ``dropped`` from 0 on.
          lean: in which direction and how far the join of puts and calls is rounded.
          missing: by how much the curve at gamma = 0 is below 1.
        """
        zero = int(np.searchsorted(kept, self._zero))
        values = curve[kept]
        widths = np.diff(self._index[kept]) * self._step
        right, left = 1.0 / np.expm1(np.minimum(widths, 700.0)), -1.0 / np.expm1(-widths)
        fall = values[:-1] - values[1:]
        size = np.abs(fall)
        masses, rounding = np.zeros(len(kept)), np.zeros(len(kept))
        if zero > 0:
            # Puts and calls meet between two nodes: one of them is written in the other's form, put = call - 1 + gamma.
            before, after = (float(x) for x in self._nodes[kept[zero - 1 : zero + 1]])
            blur = math.copysign(2.0 * float(np.max(self._blur(np.array([before, after])))), lean)
            if -before < after:
                turned = (float(values[zero - 1]) - math.expm1(before) - dropped) * (1.0 - lean) - blur
                fall[zero - 1], join, loss = turned - values[zero], zero - 1, before
            else:
                turned = (float(values[zero]) + math.expm1(after) + dropped) * (1.0 + lean) + blur
                fall[zero - 1], join, loss = values[zero - 1] - turned, zero, after
            size[zero - 1] = abs(fall[zero - 1]) + abs(turned)
            masses[join] += math.exp(loss)
            rounding[join] += 2.0
            masses[0] -= float(values[0]) + missing
        else:
            masses[0] += 1.0 - missing - dropped - float(values[0])
            rounding[0] += 2.0
        rounding[0] += abs(float(values[0])) + missing
        masses[:-1] -= right * fall
        masses[1:] += left * fall
        rounding[:-1] += right * size
        rounding[1:] += left * size
        return masses, np.where(rounding > 0.0, 8.0 * UNIT * rounding + TINY, 0.0)

    def _tangents(self) -> tuple[Floats, float]:
        """(puts and calls at the nodes, P's mass before the first one): no chord between these values rises above the pair's curve."""
        zero, nodes = self._zero, self._nodes
        middles = 0.5 * (nodes[:-1] + nodes[1:])
        first = zero - 1 if middles[zero - 1] >= 0.0 else zero
        left_call, right_call = self._call_lines(middles[first:], first)
        left_put, right_put = self._put_lines(middles[:first])
        # The tangent to the cell around 0 is needed in both forms: put = call - 1 + gamma.
        if first == zero:
            left_call = np.concatenate(([self._turned(left_put[-1], zero - 1, -1.0)], left_call))
            right_call = np.concatenate(([self._turned(right_put[-1], zero, -1.0)], right_call))
        else:
            left_put = np.append(left_put, self._turned(left_call[0], zero - 1, 1.0))
            right_put = np.append(right_put, self._turned(right_call[0], zero, 1.0))
        # Lines in call form run over the cells zero - 1 ... count - 1, in put form over 0 ... zero - 1.
        call = np.append(np.minimum(right_call[:-1], left_call[1:]), right_call[-1])
        put = np.concatenate((left_put[:1], np.minimum(right_put[:-1], left_put[1:])))
        start = self._values(nodes[:1], puts)
        slope = float(start.tail[0])
        value = float(start.lower[0]) - slope * float(self._blur(nodes[:1])[0])
        is_nothing = not self._pair.family.is_infinitesimal and float(start.upper[0]) <= 1e-12 * slope
        if is_nothing or slope == 0.0:
            return np.concatenate((put, call)), 0.0
        if put[0] < 0.5 * value:
            # The first cell's tangent is low: instead of dropping what is before the node, move it there. The tangent is 1 - gamma.
            put[0] = min(put[0], 0.0)
            return np.concatenate((put, call)), 0.0
        put[0] = min(put[0], value)
        return np.concatenate((put, call)), max((slope - value) * (1.0 + 1e-12) + 8.0 * UNIT * slope, 0.0)

    def _turned(self, value: float, place: int, sign: float) -> float:
        """A put from a call at a node (sign 1), or a call from a put (sign -1), rounded down."""
        shift = sign * math.expm1(float(self._nodes[place]))
        blur = float(self._blur(self._nodes[place : place + 1])[0])
        return float(value) + shift - 8.0 * UNIT * (abs(float(value)) + abs(shift)) - 2.0 * blur * math.exp(float(self._nodes[place]))

    def _call_lines(self, middles: Floats, first: int) -> tuple[Floats, Floats]:
        """Values at both ends of tangents to the cells from ``first`` on: in the middle; if below 0, near the right end, or 0."""
        cells = np.arange(first, len(self._widths))
        left, right = self._lines(middles, cells, 0.5, calls)
        steep = cells[right < 0.0]
        if len(steep):
            near_left, near_right = self._lines(self._nodes[steep + 1] - _NEAR * self._widths[steep], steep, 1.0 - _NEAR, calls)
            good = near_right >= 0.0
            left[steep - first], right[steep - first] = np.where(good, near_left, 0.0), np.where(good, near_right, 0.0)
        return left, right

    def _put_lines(self, middles: Floats) -> tuple[Floats, Floats]:
        """Values at both ends of tangents to the first cells: in the middle; if that is below 0, near the left end, or 0."""
        cells = np.arange(len(middles))
        left, right = self._lines(middles, cells, 0.5, puts)
        steep = cells[left < 0.0]
        if len(steep):
            near_left, near_right = self._lines(self._nodes[steep] + _NEAR * self._widths[steep], steep, _NEAR, puts)
            good = near_left >= -_NEAR * np.maximum(near_right, 0.0)
            left[steep], right[steep] = np.where(good, near_left, 0.0), np.where(good, near_right, 0.0)
        return left, right

    def _lines(self, points: Floats, cells: Indices, share: float, kind: Kind) -> tuple[Floats, Floats]:
        """Values, at both ends of some cells, of tangents at points that are this share of the cell inside."""
        known = self._values(points, kind)
        before, after = -np.expm1(-share * self._widths[cells]), np.expm1((1.0 - share) * self._widths[cells])
        sign = 1.0 if kind is calls else -1.0
        doubt = (
            (self._blur(points) + 8.0 * UNIT * (before + after)) * known.tail + 8.0 * UNIT * known.lower + (before + after) * known.doubt
        )
        return known.lower + sign * known.tail * before - doubt, known.lower - sign * known.tail * after - doubt


def _chain(kept: Indices, nodes: Floats, curve: Floats) -> Indices:
    """The vertices of the convex minorant in e^loss (Andrew's monotone chain)."""
    losses, values = nodes[kept].tolist(), curve[kept].tolist()
    # The vertices so far, as places in ``kept``, and the slope of the chord that ends in each, times e^loss there: known once, it is
    # compared many times.
    found: list[int] = []
    slopes: list[float] = []
    for place, (loss, value) in enumerate(zip(losses, values, strict=True)):
        ending = -math.inf
        while found:
            last = found[-1]
            growth = math.expm1(min(loss - losses[last], 700.0))
            slope = (value - values[last]) / growth
            if slopes[-1] <= slope:
                ending = slope * (growth + 1.0)
                break
            found.pop()
            slopes.pop()
        found.append(place)
        slopes.append(ending)
    return kept[found]


def _mended(kept: Indices, nodes: Floats, curve: Floats, places: Indices) -> Indices:
    """What ``_chain`` finds where the curve is convex but for nodes that were removed before these places: it looks only around them."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    removed: list[int] = []
    gone: set[int] = set()
    last = len(kept) - 1
    suspects: list[int] = [*places.tolist(), *(places - 1).tolist()]
    while suspects:
        place = suspects.pop()
        if place in gone or not 0 < place < last:
            continue
        left, right = before.get(place, place - 1), after.get(place, place + 1)
        (x, y), (x_left, y_left), (x_right, y_right) = ((float(nodes[kept[k]]), float(curve[kept[k]])) for k in (place, left, right))
        growth = math.expm1(min(x - x_left, 700.0))
        if (y - y_left) / growth * (growth + 1.0) > (y_right - y) / math.expm1(min(x_right - x, 700.0)):
            gone.add(place)
            removed.append(place)
            after[left], before[right] = right, left
            suspects += [left, right]
    return np.delete(kept, removed)
