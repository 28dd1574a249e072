r"""What bounds on Renyi divergences say of tests: the region of binary pairs that satisfy them, in both orders of neighbours.

delta at an epsilon, the curve of tests and the advantage are decided by one event at a time, and merging all outcomes into the event and
its complement only lowers divergences. So their exact values over **all** mechanisms are those over binary pairs: a convex set in the
plane (proofs/notions.md, section 6). Its corner is randomised response; below the corner only one order of neighbours matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import final

from zetadp.accountants.notions import randomized_response as rr
from zetadp.accountants.notions.digits import ONE, TWO, ZERO, exp
from zetadp.accountants.notions.proposals import DeltaSearch, EpsilonSearch, MirroredMissSearch, MissSearch, RenyiBounds, Touch
from zetadp.accountants.notions.tangents import Constraint, pair

_MARGIN = Decimal("1e-25")
_TINY = Decimal((0, (1,), -(10**15)))
"""A delta below it is given as it: exponents end at -10^18."""
_FLOAT_SHARE = 1e-9
"""Likewise where the requested epsilon is a smaller share of randomised response's: sums of the two hide it."""
_FLOAT_NOISE = 1e8
"""Where (order) * epsilon is beyond this, floats can't distinguish orders well enough, and the answer is called a bound."""


@final
@dataclass(frozen=True)
class Extreme:
    """A value, the order it rests on (None at the corner), and the pair (p, q) that has it."""

    value: Decimal
    order: float | None
    p: Decimal
    q: Decimal
    tight: bool = True


@final
@dataclass(frozen=True)
class Region:
    """zCDP with ``rho``, or one Renyi order with its bound; both positive. Use within ``digits.precise``."""

    rho: float | None = None
    order: float | None = None
    value: float = 0.0

    @cached_property
    def digits(self) -> int:
        """Enough digits that squares of the smallest widths keep fifty, and so do exponents of the largest."""
        order, level = (1.0, self.rho) if self.rho is not None else (self.order or 1.0, self.value)
        # epsilon lies between the root and the sum.
        root = math.sqrt(2.0 * level / order)
        return 60 + max(0, -2 * math.floor(math.log10(root))) + max(0, math.ceil(math.log10(order * (root + level))))

    @cached_property
    def epsilon(self) -> Decimal:
        """Of the randomised response that just satisfies the bounds, rounded up by 1e-25 of itself."""
        return self._epsilon() * (ONE + _MARGIN)

    def _epsilon(self) -> Decimal:
        if self.rho is not None:
            return rr.epsilon_of_concentration(Decimal(self.rho))
        assert self.order is not None  # one of the two is given
        return rr.epsilon_of_renyi(Decimal(self.order), Decimal(self.value))

    @property
    def _bounds(self) -> RenyiBounds:
        epsilon = float(self.epsilon)
        if self.rho is not None:
            return RenyiBounds(epsilon, rho=self.rho)
        assert self.order is not None  # one of the two is given
        return RenyiBounds(epsilon, k=self.order - 1.0, value=self.value)

    def _constraint(self, touch: Touch | None) -> Constraint:
        """Of the order touched; at the corner the one that is active there: order 1 of zCDP."""
        if self.rho is not None:
            k = Decimal(touch.k) if touch is not None else ZERO
            return Constraint(k, (ONE + k) * Decimal(self.rho))
        assert self.order is not None  # one of the two is given
        return Constraint(Decimal(self.order) - ONE, Decimal(self.value))

    def _corner(self, value: Decimal) -> Extreme:
        return Extreme(value, None, self.corner, ONE - self.corner)

    @cached_property
    def corner(self) -> Decimal:
        """Probability that the randomised response tells the truth."""
        return ONE / (ONE + exp(-self.epsilon))

    @cached_property
    def _corner_slope(self) -> Decimal:
        """log of the steepest slope at which the corner is the extreme point."""
        return self._constraint(None).log_slope(TWO * self.epsilon, self.epsilon)

    def _may_be_corner(self, at: float) -> bool:
        return at <= 1.01 * self._rough_corner_slope

    @cached_property
    def _rough_corner_slope(self) -> float:
        """The same in floats; for small widths above it, since it is (2 order - 1) epsilon^2 / 6 there."""
        epsilon, order = float(self.epsilon), self.order or 1.0
        if order * epsilon < 1e-3:
            return order * epsilon * epsilon
        return self._constraint(None).rough_slope(2.0 * epsilon) - epsilon

    @cached_property
    def _corner_delta(self) -> float:
        """delta at the corner's steepest slope, roughly; 0 where floats can't say."""
        epsilon = float(self.epsilon)
        return -math.expm1(self._rough_corner_slope - epsilon) / (1.0 + math.exp(-epsilon)) if epsilon < 700.0 else 0.0

    def delta(self, at: Decimal) -> Extreme:
        """The largest delta at the epsilon ``at`` >= 0."""
        if self._may_be_corner(float(at)) and at <= self._corner_slope * (ONE - _MARGIN):
            return self._corner(rr.delta(self.epsilon, at))
        touch = self._widened(DeltaSearch(self._bounds, float(at)).run())
        delta, u = self._constraint(touch).delta(at, Decimal(touch.place))
        if float(delta) > 0.9 * self._corner_delta:
            # delta falls, so it is at most what it is where the corner ends: of use where floats see no difference between the two.
            highest = rr.delta(self.epsilon, self._corner_slope)
            if delta >= highest:
                return Extreme(highest, touch.k + 1.0, self.corner, ONE - self.corner, tight=False)
        delta = max(delta, _TINY)
        p, q = _touched(delta, at, u, Decimal(touch.place))
        return Extreme(delta, touch.k + 1.0, p, q, self._tight(touch, float(at)))

    def epsilon_at(self, delta: Decimal) -> Extreme:
        """The largest epsilon at which some mechanism still has more than this delta, in (0, 1)."""
        if float(delta) > 0.5 * self._corner_delta and delta >= rr.delta(self.epsilon, self._corner_slope) * (ONE + _MARGIN):
            return self._corner(rr.epsilon_at(self.epsilon, delta))
        touch = self._widened(EpsilonSearch(self._bounds, float(delta.ln())).run())
        epsilon, u = self._constraint(touch).epsilon(delta, Decimal(touch.place))
        p, q = _touched(delta, epsilon, u, Decimal(touch.place))
        return Extreme(epsilon, touch.k + 1.0, p, q, self._tight(touch, float(epsilon)))

    def false_negative_rate(self, alpha: Decimal) -> Extreme:
        """The least false negative rate at false positive rate ``alpha`` in (0, 1)."""
        if alpha <= ONE - self.corner:
            touch = MissSearch(self._bounds, float(alpha)).run()
            beta = self._constraint(touch).miss(alpha, Decimal(touch.place))
        else:
            touch = MirroredMissSearch(self._bounds, float(alpha)).run()
            beta = self._constraint(touch).mirrored_miss(alpha, Decimal(touch.place))
        return Extreme(beta, touch.k + 1.0, ONE - beta, alpha, self._tight(touch, float(self.epsilon)))

    def _widened(self, touch: Touch) -> Touch:
        """d is kept above 1e-18 epsilon: below, it changes a value by as little, relatively, and costs digits."""
        return replace(touch, place=max(touch.place, 1e-18 * float(self.epsilon)))

    def _tight(self, touch: Touch, epsilon: float) -> bool:
        size = float(self.epsilon)
        return touch.found and (1.0 + touch.k) * max(epsilon, size) < _FLOAT_NOISE and epsilon > _FLOAT_SHARE * size


def _touched(delta: Decimal, at: Decimal, u: Decimal, d: Decimal) -> tuple[Decimal, Decimal]:
    """The binary pair at the tangent's place; below e^-40 d isn't sharp, and the pair follows from delta = p - e^at q."""
    p, q = pair(u, d)
    if p >= Decimal("1e-3"):
        return p, q
    sharp = ONE - exp(at - u) if at < u else ZERO
    return (delta / sharp, delta / sharp * exp(-u)) if sharp > ZERO else (p, q)
