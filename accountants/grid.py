r"""Laws of the privacy loss on a lattice c + h Z that dominate, or are dominated by, a pair, exactly: every rounding goes one way.

A law with mass p_k at loss eps_k = c + k h has H(gamma) = sum_k p_k (1 - gamma e^{-eps_k})_+, linear in gamma between nodes. It dominates a
pair if H(gamma_k) is at or above the pair's at every node and at 0 (the pair's curve is convex), and is dominated if every chord lies below a
tangent of the pair's curve. Neither needs total mass 1. proofs/fft.md, sections 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from accountants import deadline
from accountants.hockey_stick import TINY, UNIT, Calls, calls, puts
from accountants.pairs import Pair

Floats = NDArray[np.float64]

_MOST_SWEEPS = 400
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
        zero = self._zero
        here, there = self._values(self._nodes[zero:], calls), self._values(self._nodes[:zero], puts)
        call = here.upper + self._blur(self._nodes[zero:]) * here.tail
        put = there.upper + self._blur(self._nodes[:zero]) * there.tail
        masses, rounding = self._masses(np.arange(self._count + 1), np.concatenate((put, call)), -4.0 * UNIT, 0.0, 0.0)
        return GridLaw(self._start, self._step, np.maximum(masses + rounding, 0.0), float(call[-1]))

    def lower(self) -> GridLaw:
        """Is dominated by the pair: at every node the lower of the tangents to the cells beside it, made convex."""
        last = self._last()
        if last <= self._zero + 1:
            return GridLaw(self._start, self._step, np.zeros(1), 0.0)
        if last < self._count:
            return Lattice(self._pair, self._start, self._step, last).lower()
        curve, missing = self._tangents()
        # Losses beyond the last node count as if they were there: the whole curve is lower by its value at that node. (3.4)
        dropped = float(self._values(self._nodes[-1:], calls).upper[0])
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

    def _last(self) -> int:
        """The last node that isn't beyond the largest loss: the curve is above 0 just before it."""

        def reached(index: int) -> bool:
            before = self._nodes[index : index + 1] - 1e-6 * self._step
            return float(calls(self._pair, before).lower[0]) > 0.0

        low, high = self._zero, self._count
        if reached(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if reached(middle) else (low, middle)
        return low

    def _values(self, epsilons: Floats, kind: object) -> Calls:
        """In chunks that stay in the processor's cache."""
        function = calls if kind is calls else puts
        parts = [function(self._pair, epsilons[i : i + _CHUNK]) for i in range(0, len(epsilons), _CHUNK)]
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
        bridge = (float(values[zero]) + dropped + math.expm1(loss)) * (1.0 + lean)
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
        zero, count, h = self._zero, self._count, self._step
        middles = 0.5 * (self._nodes[:-1] + self._nodes[1:])
        straddling = zero - 1
        first = straddling if middles[straddling] >= 0.0 else zero
        above, below = self._values(middles[first:], calls), self._values(middles[:first], puts)
        gamma = math.exp(middles[straddling])
        # The straddling cell's tangent in both forms: put = call - 1 + gamma, slope likewise.
        if first == straddling:
            shift = math.expm1(middles[straddling])
            both = (above.lower[0] + shift, max(gamma - above.tail[0], 0.0))
        else:
            shift = -math.expm1(middles[straddling])
            both = (below.lower[-1] + shift, max(gamma - below.tail[-1], 0.0))
        doubt = 8.0 * UNIT * (abs(shift) + gamma)
        half_up, half_down = math.expm1(0.5 * h), -math.expm1(-0.5 * h)
        call, put = np.empty(count + 1 - zero), np.empty(zero)
        c_value, c_tail, c_blur = self._cells(above, middles[first:], both, doubt, first == straddling, before=True)
        p_value, p_tail, p_blur = self._cells(below, middles[:first], both, doubt, first != straddling, before=False)
        # c_* run over cells straddling ... count - 1, p_* over cells 0 ... straddling.
        call[:-1] = np.minimum(c_value[:-1] - c_tail[:-1] * half_up - c_blur[:-1], c_value[1:] + c_tail[1:] * half_down - c_blur[1:])
        put[1:] = np.minimum(p_value[:-1] + p_tail[:-1] * half_up - p_blur[:-1], p_value[1:] - p_tail[1:] * half_down - p_blur[1:])
        first, last = self._values(self._nodes[:1], puts), self._values(self._nodes[-1:], calls)
        put[0], missing = p_value[0] - p_tail[0] * half_down - p_blur[0], 0.0
        if float(first.upper[0]) <= 1e-12 * float(first.tail[0]):
            # No loss lies below the first node, where an atom may sit: the tangent of slope -1 will do.
            put[0] = min(put[0], 0.0)
        else:
            put[0] = min(put[0], float(first.lower[0]))
            missing = max((float(first.tail[0]) - float(first.lower[0])) * (1.0 + 1e-12) + float(first.tail[0]) * 8.0 * UNIT, 0.0)
        call[-1] = float(last.lower[0])
        call[-2] = min(call[-2], (float(last.lower[0]) - float(last.tail[0]) * math.expm1(-h)) * (1.0 - 1e-12))
        return np.concatenate((put, call)), missing

    def _cells(
        self, known: Calls, middles: Floats, both: tuple[float, float], doubt: float, complete: bool, before: bool
    ) -> tuple[Floats, Floats, Floats]:
        """(value, slope, allowance) of the cells' tangents, the straddling cell put before or after where it was known otherwise."""
        blur = (self._blur(middles) + 8.0 * UNIT) * known.tail + 8.0 * UNIT * known.lower + TINY
        if complete:
            return known.lower, known.tail, blur
        ends = (np.array([both[0]]), np.array([both[1]]), np.array([doubt]))
        inner = (known.lower, known.tail, blur)
        if before:
            return tuple(np.concatenate((end, part)) for end, part in zip(ends, inner, strict=True))  # type: ignore[return-value]
        return tuple(np.concatenate((part, end)) for end, part in zip(ends, inner, strict=True))  # type: ignore[return-value]
