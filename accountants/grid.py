r"""Laws of the privacy loss on a lattice c + h Z that dominate, or are dominated by, a pair, exactly: every rounding goes one way.

A law with mass p_k at loss eps_k = c + k h has H(gamma) = sum_k p_k (1 - gamma e^{-eps_k})_+, linear in gamma between nodes. It dominates
a pair if H(gamma_k) is at or above the pair's at every node and at 0 (the pair's curve is convex), and is dominated if every chord lies
below a tangent of the pair's curve. Neither needs total mass 1. proofs/fft.md, sections 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from accountants import deadline
from accountants.hockey_stick import TINY, UNIT, Calls, calls, puts
from accountants.pairs import Pair

Floats = NDArray[np.float64]

Kind: TypeAlias = Callable[[Pair, Floats], Calls]

_MOST_SWEEPS = 60
_NEAR = 1e-6
_CHUNK = 16384


@final
@dataclass(frozen=True)
class GridLaw:
    """Masses on a lattice.

    Attributes:
      start: loss of the first node.
      step: h.
      masses: of P, at start, start + h, ...; >= 0.
      infinity: mass of P at loss +infinity.
    """

    start: float
    step: float
    masses: Floats
    infinity: float


@final
class Lattice:
    """The pair's curve at the nodes start + k step, k = 0 ... count: calls from the first node >= 0 on, puts before it.

    Args:
      pair: what to discretise.
      start: loss of the first node, < 0.
      step: h.
      count: index of the last node, whose loss is > 0.
    """

    def __init__(self, pair: Pair, start: float, step: float, count: int) -> None:
        assert start < 0.0 < start + step * (count - 1)
        self._pair, self._start, self._step, self._count = pair, start, step, count
        self._right = 1.0 / math.expm1(step)
        self._nodes = start + step * np.arange(count + 1)
        self._zero = int(np.searchsorted(self._nodes, 0.0))

    def upper(self) -> GridLaw:
        """Dominates the pair: connects the dots (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022)."""
        zero, nodes = self._zero, self._nodes
        # Taken where the exact lattice's value can only be smaller: calls fall in epsilon, puts rise.
        call = self._values(nodes[zero:] - self._blur(nodes[zero:]), calls).upper
        put = self._values(nodes[:zero] + self._blur(nodes[:zero]), puts).upper
        masses, rounding = self._masses(np.arange(self._count + 1), np.concatenate((put, call)), -4.0 * UNIT, 0.0, 0.0)
        return GridLaw(self._start, self._step, np.maximum(masses + rounding, 0.0), float(call[-1]))

    def lower(self) -> GridLaw:
        """Is dominated by the pair: at every node the lower of the tangents to the cells beside it, made convex."""
        curve, missing = self._tangents()
        # Losses beyond the last node count as if they were there: the whole curve is lower by its value at that node. (3.4)
        dropped = max(float(curve[-1]), 0.0)
        curve[self._zero :] -= dropped
        curve[-1] = 0.0
        kept = np.arange(self._count + 1)
        for _ in range(_MOST_SWEEPS):
            masses, rounding = self._masses(kept, curve, 4.0 * UNIT, dropped, missing)
            above, doubtful = masses < -rounding, np.abs(masses) < rounding
            if not (above.any() or doubtful.any()):
                result = np.zeros(self._count + 1)
                result[kept] = masses - rounding
                return GridLaw(self._start, self._step, result, 0.0)
            deadline.check()
            # A node above the chord of its neighbours isn't on the convex minorant; one that may be on it goes down by a trifle.
            sides = (-1.0 / np.expm1(-self._step)) + self._right
            curve[kept[doubtful]] -= 2.0 * rounding[doubtful] / sides
            if above[-1] or len(kept) < 3:
                break
            kept = kept[~above]
        return GridLaw(self._start, self._step, np.zeros(1), 0.0)

    def _values(self, epsilons: Floats, kind: Kind) -> Calls:
        """In chunks that stay in the processor's cache."""
        parts = [kind(self._pair, epsilons[i : i + _CHUNK]) for i in range(0, max(len(epsilons), 1), _CHUNK)]
        deadline.check()
        if len(parts) == 1:
            return parts[0]
        return Calls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("lower", "upper", "tail")))

    def _blur(self, epsilons: Floats) -> Floats:
        """How far the exact lattice may lie from the floats that stand for it."""
        return 4.0 * UNIT * (np.abs(epsilons) + abs(self._start))

    def _masses(self, kept: NDArray[np.intp], curve: Floats, lean: float, dropped: float, missing: float) -> tuple[Floats, Floats]:
        """Second differences, in gamma, of the curve that is linear between the nodes ``kept``; times gamma; and a bound on their rounding.

        Args:
          curve: puts at nodes below 0, calls less ``dropped`` from 0 on.
          lean: which way the join of puts and calls is rounded, and how far.
          missing: by how much the curve at gamma = 0 is below 1.
        """
        zero = int(np.searchsorted(kept, self._zero))
        values = curve[kept]
        widths = np.diff(kept) * self._step
        right, left = 1.0 / np.expm1(widths), -1.0 / np.expm1(-widths)
        fall = values[:-1] - values[1:]
        loss = float(self._nodes[kept[zero]])
        blur = float(self._blur(np.array([loss]))[0])
        bridge = (float(values[zero]) + dropped + math.expm1(loss)) * (1.0 + lean) + math.copysign(2.0 * blur, lean)
        if zero > 0:
            fall[zero - 1] = values[zero - 1] - bridge
        masses, rounding = np.empty(len(kept)), np.empty(len(kept))
        masses[1:-1] = left[:-1] * fall[:-1] - right[1:] * fall[1:]
        masses[0] = -right[0] * fall[0] - values[0] - missing
        masses[-1] = left[-1] * fall[-1]
        masses[zero] += math.exp(loss)
        size = np.abs(fall)
        rounding[1:-1] = left[:-1] * size[:-1] + right[1:] * size[1:]
        rounding[0] = left[0] * size[0] + abs(values[0]) + missing
        rounding[-1] = left[-1] * size[-1]
        rounding[zero] += 2.0
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
            left_call = np.concatenate(([_less(left_put[-1] - math.expm1(nodes[zero - 1]))], left_call))
            right_call = np.concatenate(([_less(right_put[-1] - math.expm1(nodes[zero]))], right_call))
        else:
            left_put = np.append(left_put, _less(left_call[0] + math.expm1(nodes[zero - 1])))
            right_put = np.append(right_put, _less(right_call[0] + math.expm1(nodes[zero])))
        # Lines in call form run over the cells zero - 1 ... count - 1, in put form over 0 ... zero - 1.
        call = np.append(np.minimum(right_call[:-1], left_call[1:]), right_call[-1])
        put = np.concatenate((left_put[:1], np.minimum(right_put[:-1], left_put[1:])))
        start = self._values(nodes[:1], puts)
        slope = float(start.tail[0])
        value = float(start.lower[0]) - slope * float(self._blur(nodes[:1])[0])
        if float(start.upper[0]) <= 1e-12 * slope or slope == 0.0:
            return np.concatenate((put, call)), 0.0
        put[0] = min(put[0], value)
        return np.concatenate((put, call)), max((slope - value) * (1.0 + 1e-12) + 8.0 * UNIT * slope, 0.0)

    def _call_lines(self, middles: Floats, first: int) -> tuple[Floats, Floats]:
        """Values at both ends of tangents to the cells from ``first`` on: at the middle; near the right end, or 0, where that falls below 0."""
        left, right = self._lines(middles, 0.5, calls)
        steep = np.flatnonzero(right < 0.0)
        if len(steep):
            near_left, near_right = self._lines(self._nodes[first + 1 + steep] - _NEAR * self._step, 1.0 - _NEAR, calls)
            good = near_right >= 0.0
            left[steep], right[steep] = np.where(good, near_left, 0.0), np.where(good, near_right, 0.0)
        return left, right

    def _put_lines(self, middles: Floats) -> tuple[Floats, Floats]:
        """Values at both ends of tangents to the first cells: at the middle; near the left end, or 0, where that falls below 0."""
        left, right = self._lines(middles, 0.5, puts)
        steep = np.flatnonzero(left < 0.0)
        if len(steep):
            near_left, near_right = self._lines(self._nodes[steep] + _NEAR * self._step, _NEAR, puts)
            good = near_left >= -_NEAR * np.maximum(near_right, 0.0)
            left[steep], right[steep] = np.where(good, near_left, 0.0), np.where(good, near_right, 0.0)
        return left, right

    def _lines(self, points: Floats, share: float, kind: Kind) -> tuple[Floats, Floats]:
        """Values at both ends of the cells of tangents at points that lie this share of a step inside."""
        known = self._values(points, kind)
        before, after = -math.expm1(-share * self._step), math.expm1((1.0 - share) * self._step)
        sign = 1.0 if kind is calls else -1.0
        doubt = (self._blur(points) + 8.0 * UNIT * (before + after)) * known.tail + 8.0 * UNIT * known.lower
        return known.lower + sign * known.tail * before - doubt, known.lower - sign * known.tail * after - doubt


def _less(value: float) -> float:
    """Minus the rounding of sums of terms of order 1."""
    return value - 16.0 * UNIT
