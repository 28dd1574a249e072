r"""Truths of 50 digits for one or two releases, whose moment functions decay too slowly for ``truth``.

The ratio of both densities rises with x, so that one release has delta(eps) = P(x > c) - e^eps Q(x > c), with log P/Q = eps at c; two have
the mean over the first one's loss L of delta(eps - L). The mean is integrated by the double exponential rule on both sides of where
eps - L leaves the second one's losses, with two steps that must agree.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

from flint import arb, ctx

from benchmarks.truth import DIGITS, PRECISION, Law, Unsettled, float_of

_REACH = 19.0
"""Standard deviations: what is beyond has less than 1e-78."""


class Few:
    """One direction of neighbours of one or two releases."""

    def __init__(self, law: Law, *, removed: bool) -> None:
        assert law.count <= 2
        ctx.prec = PRECISION
        self._law, self._removed = law, removed
        self._above = [(arb(weight), arb(shift)) for weight, shift in law.above]
        self._below = [(arb(weight), arb(shift)) for weight, shift in law.below]
        shifts = [float_of(shift) for _, shift in (*law.above, *law.below)]
        self._low, self._high = min(shifts), max(shifts)

    def delta(self, epsilon: arb, digits: int = DIGITS) -> arb:
        """delta at epsilon. Raises Unsettled."""
        ctx.prec = PRECISION
        if self._law.count == 1:
            return self._one(epsilon)
        before = self._two(epsilon, 5)
        for level in range(6, 10):
            after = self._two(epsilon, level)
            if bool(abs(after - before) <= arb(10) ** -(digits + 2) * abs(after)):
                return after
            before = after
        raise Unsettled("the double exponential rule doesn't settle")

    def epsilon(self, delta: arb, near: float) -> arb:
        """The root: secants for log delta from a first guess."""
        ctx.prec = PRECISION
        last = arb(max(near, 0.0))
        point = last + arb(max(near, 1e-6)) * arb("1e-7")
        heights = [(self.delta(at) / delta).log() for at in (last, point)]
        for _ in range(40):
            slope = (heights[1] - heights[0]) / (point - last)
            move = heights[1] / slope
            last, point = point, (point - move).mid()
            if not abs(float(move.mid())) > 1e-53 * abs(float(point)):
                return point
            heights = [heights[1], (self.delta(point) / delta).log()]
        raise Unsettled("secants don't end")

    def _two(self, epsilon: arb, level: int) -> arb:
        """The first release's loss is L or -L; only losses up to ``epsilon`` minus the second one's least leave a choice."""
        sign = -1 if self._removed else 1
        ends = [arb(self._low - _REACH), arb(self._high + _REACH)]
        # The second one's delta is 1 - e^(eps - L) from where eps - L is below all its losses.
        edges = [self._where(sign * (epsilon - least)) for least in self._least()]
        inner = [edge for edge in edges if edge is not None and ends[0] < edge < ends[1]]
        points = [ends[0], *inner, ends[1]]
        return sum((self._piece(epsilon, a, b, level) for a, b in itertools.pairwise(points)), arb(0))

    def _least(self) -> list[arb]:
        """The least loss that one release can have, if there is one."""
        if not self._removed and self._law.below == ((1, 0),) and self._law.above[0][1] == 0:
            return [self._above[0][0].log()]
        return []

    def _piece(self, epsilon: arb, low: arb, high: arb, level: int) -> arb:
        step, half, middle = arb(2) ** -level, (high - low) / 2, (high + low) / 2
        total = arb(0)
        count = int(5.2 * 2**level)
        for k in range(-count, count + 1):
            t = step * k
            sinh, cosh = t.sinh_cosh()
            inner = arb.pi() / 2 * sinh
            x = middle + half * inner.tanh()
            weight = half * arb.pi() / 2 * cosh / inner.cosh() ** 2
            total += weight * self._density(x, given=not self._removed) * self._one(self._rest(epsilon, x))
        return total * step

    def _rest(self, epsilon: arb, x: arb) -> arb:
        loss = self._loss(x)
        return epsilon + loss if self._removed else epsilon - loss

    def _one(self, epsilon: arb) -> arb:
        """P(x > c) - e^eps Q(x > c); of the other direction Q(x < c) - e^eps P(x < c), with log P/Q = -eps at c."""
        edge = self._where(-epsilon if self._removed else epsilon)
        if edge is None:
            value = 1 - epsilon.exp()
            return value if value > 0 else arb(0)
        own, other = (self._below, self._above) if self._removed else (self._above, self._below)
        return self._tail(own, edge) - epsilon.exp() * self._tail(other, edge)

    def _tail(self, side: list[tuple[arb, arb]], edge: arb) -> arb:
        sign = -1 if self._removed else 1
        return sum((weight * (sign * (edge - shift) / arb(2).sqrt()).erfc() / 2 for weight, shift in side), arb(0))

    def _density(self, x: arb, *, given: bool) -> arb:
        side = self._above if given else self._below
        return sum((weight * (-((x - shift) ** 2) / 2).exp() for weight, shift in side), arb(0)) / (2 * arb.pi()).sqrt()

    def _loss(self, x: arb) -> arb:
        return (_ratio(self._above, x) / _ratio(self._below, x)).log()

    def _where(self, loss: arb) -> arb | None:
        """x with log P/Q = loss; None where all losses are larger. Infinitely far where all are smaller."""
        target = float(loss.mid())
        low, high = self._low - 1e3, self._high + 1e3
        if self._float_loss(low) > target or ((least := self._least_loss()) is not None and not loss > least):
            return None
        if self._float_loss(high) < target:
            return arb(high)
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._float_loss(middle) < target else (low, middle)
        x = arb(0.5 * (low + high))
        for _ in range(12):
            above, below = _ratio(self._above, x), _ratio(self._below, x)
            slope = _slope(self._above, x) / above - _slope(self._below, x) / below
            move = (((above / below).log() - loss) / slope).mid()
            x = (x - move).mid()
            if abs(float(move)) < 1e-60:
                return x
        return x

    def _least_loss(self) -> arb | None:
        if self._law.below == ((1, 0),) and self._law.above[0][1] == 0:
            return self._above[0][0].log()
        return None

    def _float_loss(self, x: float) -> float:
        return _float_ratio(self._law.above, x) - _float_ratio(self._law.below, x)


def _ratio(side: list[tuple[arb, arb]], x: arb) -> arb:
    return sum((weight * (shift * x - shift * shift / 2).exp() for weight, shift in side), arb(0))


def _slope(side: list[tuple[arb, arb]], x: arb) -> arb:
    return sum((weight * shift * (shift * x - shift * shift / 2).exp() for weight, shift in side), arb(0))


def _float_ratio(side: tuple, x: float) -> float:
    parts = [log_weight + shift * x - 0.5 * shift * shift for log_weight, shift in _floats(side)]
    top = max(parts)
    return top + math.log(math.fsum(math.exp(part - top) for part in parts))


@lru_cache(maxsize=64)
def _floats(side: tuple) -> tuple[tuple[float, float], ...]:
    return tuple((float(arb(weight).log().mid()), float_of(shift)) for weight, shift in side)
