r"""Truths of 50 digits for one or two releases, whose moment functions decay too slowly for ``truth``.

The ratio of both densities rises with x, so that one release has delta(eps) = P(x > c) - e^eps Q(x > c), with log P/Q = eps at c; two have
the mean over the first one's loss L of delta(eps - L). The mean is integrated by the double exponential rule on both sides of where
eps - L leaves the second one's losses, with two steps that must agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

from flint import arb, ctx

from benchmarks.truth import DIGITS, PRECISION, Law, Unsettled, float_of

_REACH = 19.0
"""Standard deviations: what is beyond has less than 1e-78."""


MOST_LEVEL = 9
"""Steps of 2^-9."""


class Few:
    """One direction of neighbours of one or two releases."""

    def __init__(self, law: Law, *, removed: bool) -> None:
        assert law.count <= 2
        ctx.prec = PRECISION
        self._level = 5
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
        before = self._two(epsilon, self._level)
        while self._level < MOST_LEVEL:
            self._level += 1
            after = self._two(epsilon, self._level)
            if bool(abs(after - before) <= arb(10) ** -(digits + 2) * abs(after)):
                self._level -= 1
                return after
            before = after
        raise Unsettled("the double exponential rule doesn't settle")

    def epsilon(self, delta: arb, near: float) -> arb:
        """The root: secants for log delta from a first guess, at the step that sufficed there."""
        ctx.prec = PRECISION
        last = arb(max(near, 0.0))
        self.delta(last)
        point = last + arb(max(near, 1e-6)) * arb("1e-8")
        heights = [(self._quick(at) / delta).log() for at in (last, point)]
        for _ in range(40):
            slope = (heights[1] - heights[0]) / (point - last)
            move = (heights[1] / slope).mid()
            last, point = point, (point - move).mid()
            if abs(float(move)) <= 1e-53 * abs(float(point)):
                break
            heights = [heights[1], (self._quick(point) / delta).log()]
        if not abs(self.delta(point) / delta - 1) < arb(10) ** -DIGITS:
            raise Unsettled("secants don't end at a root")
        return point

    def _quick(self, epsilon: arb) -> arb:
        return self._one(epsilon) if self._law.count == 1 else self._two(epsilon, self._level)

    def _two(self, epsilon: arb, level: int) -> arb:
        """The mean over the first release's loss, which is L or -L."""
        least = self._least_loss()
        ends = [arb(self._low - _REACH), arb(self._high + _REACH)]
        # From there on the second one's delta is 1 - e^(eps - L), as all its losses are larger, or 0, as all are smaller.
        edge = None if least is None else self._where(-epsilon - least if self._removed else epsilon - least)
        inner = [edge] if edge is not None and ends[0] < edge < ends[1] else []
        points = [ends[0], *inner, ends[1]]
        return sum((self._piece(epsilon, a, b, level) for a, b in itertools.pairwise(points)), arb(0))

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
        """x with log P/Q = loss; None where all losses are larger. Newton for what is nearly straight, from a bisection in floats."""
        least = self._least_loss()
        if least is not None:
            if not loss > least:
                return None
            # P/Q = w_0 (1 + sum of w_j/w_0 e^{a_j x - a_j^2/2}): the logarithm of the sum is nearly straight, and loses no digits.
            parts = [(weight / self._above[0][0], shift) for weight, shift in self._above[1:]]
            wanted = (loss - least).expm1().log()
            x = self._bisected(lambda x: _float_ratio(self._law.above[1:], x) - float(least.mid()), float(wanted.mid()))
        else:
            wanted = loss
            x = self._bisected(lambda x: _float_ratio(self._law.above, x) - _float_ratio(self._law.below, x), float(loss.mid()))
        for _ in range(30):
            if least is not None:
                value = _ratio(parts, x)
                height, slope = value.log(), _slope(parts, x) / value
            else:
                above, below = _ratio(self._above, x), _ratio(self._below, x)
                height, slope = (above / below).log(), _slope(self._above, x) / above - _slope(self._below, x) / below
            move = ((height - wanted) / slope).mid()
            x = (x - move).mid()
            if abs(float(move)) < 1e-60 * (1.0 + abs(float(x))):
                return x
        raise Unsettled("Newton doesn't end")

    def _bisected(self, height: Callable[[float], float], wanted: float) -> arb:
        low, high = self._low - 1e3, self._high + 1e3
        for _ in range(45):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if height(middle) < wanted else (low, middle)
        return arb(0.5 * (low + high))

    def _least_loss(self) -> arb | None:
        """The least loss that one release can have, if there is one."""
        if self._law.below == ((1, 0),) and self._law.above[0][1] == 0:
            return self._above[0][0].log()
        return None


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
