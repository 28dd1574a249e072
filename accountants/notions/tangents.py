r"""Lines above the region of binary pairs that a bound on one Renyi divergence leaves: each is a proof, wherever it touches.

Let (p, q) be the probabilities of one event under two neighbours, a = order = 1 + k, E(z) = (e^{kz} - 1) / k (z itself at k = 0). The
divergence is at most v exactly where p E(log p/q) + (1 - p) E(log (1 - p)/(1 - q)) <= E(v), a convex set. For u > 0 and d > 0 the tangent
of the left side in the direction p/q = e^u, (1 - p)/(1 - q) = e^-d bounds every point of the set:

    p <= s q + n,     log s = w + log((1 - e^{-aw}) k / (a (1 - e^{-kw}))) - d,     w = u + d,
                      n = (E(v) + F - e^{-kd} (1 - e^-d)) / (a (E(u) + F)),         F = (1 - e^{-kd}) / k.

So delta(log s) <= n, for any u and d whatever. Proof: proofs/notions.md, section 7. Source: Asoodeh, Liao, Calmon, Kosut and Sankar 2021
(the dual of their program). All functions take and give decimals within ``digits.precise``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import final

from zetadp.accountants.notions.digits import ONE, ZERO, exp, expm1, log1p

_AIM = Decimal("1e-27")
"""Relative distance below the requested epsilon at which a slope is aimed: it costs as little of delta."""
_STEPS = 12
NARROW = 1e-5
"""Below this width a difference of logarithms is taken as a derivative: floats don't see it otherwise."""
_LARGEST_EXPONENT = Decimal("1e15")
"""Beyond it a tangent says nothing anyway."""


@final
@dataclass(frozen=True)
class Constraint:
    """A Renyi divergence of at most ``value`` at order 1 + ``k``; order 1 (``k`` = 0) is the Kullback-Leibler divergence."""

    k: Decimal
    value: Decimal

    @property
    def order(self) -> Decimal:
        return ONE + self.k

    def _shrunk(self, z: Decimal) -> Decimal:
        """(1 - e^{-kz}) / k."""
        return -expm1(-self.k * z) / self.k if self.k > ZERO else z

    def _scaled_limit(self, u: Decimal) -> Decimal:
        """E(value) e^{-ku}."""
        return exp(min(self.k * (self.value - u), _LARGEST_EXPONENT)) * self._shrunk(self.value)

    def log_slope(self, w: Decimal, d: Decimal) -> Decimal:
        """log s. In w alone it is convex and rises from 0 at slope 1/2 towards slope 1."""
        shrunk, aw = self._shrunk(w), self.order * w
        if aw > ONE:
            return w - d + (-expm1(-aw) / (self.order * shrunk)).ln()
        return w - d + log1p((exp(-self.k * w) * -expm1(-w) - shrunk) / (self.order * shrunk))

    def intercept(self, u: Decimal, d: Decimal) -> Decimal:
        """n; delta at the slope's epsilon is at most this."""
        below = exp(-self.k * u) * self._shrunk(d)
        rest = below - exp(-self.k * (u + d)) * -expm1(-d)
        return (self._scaled_limit(u) + rest) / (self.order * (self._shrunk(u) + below))

    def delta(self, epsilon: Decimal, d: Decimal) -> tuple[Decimal, Decimal]:
        """An upper bound on delta(epsilon) and the u it was found at: that of a slope whose epsilon is just below the requested one."""
        # From above, where Newton's method for a convex function stays, first in floats.
        start = 2.0 * float(epsilon + d)
        if self.k > ZERO:
            start = min(start, float(epsilon + d + log1p(ONE / self.k)))
        w, aim = Decimal(self._near(start, float(epsilon + d))), epsilon * (ONE - _AIM)
        for _ in range(_STEPS):
            gap = aim - self.log_slope(w, d)
            if abs(gap) < _AIM * epsilon:
                return min(ONE, self.intercept(w - d, d)), w - d
            w = max(w + gap / self._rise(float(w)), d + w * Decimal("1e-3"))
        # It didn't get there: any smaller slope is sound as well.
        while self.log_slope(w, d) > epsilon:
            w = d + (w - d) * Decimal("0.999")
        return min(ONE, self.intercept(w - d, d)), w - d

    def rough_slope(self, w: float) -> float:
        """``log_slope`` at d = 0 in floats."""
        k, a = float(self.k), float(self.order)
        if w < NARROW:
            return w * (1.0 + _bent((k + 0.5) * w))
        shrunk = -math.expm1(-k * w) / k if k > 0.0 else w
        if a * w < 1.0:
            return w + math.log1p((math.exp(-k * w) * -math.expm1(-w) - shrunk) / (a * shrunk))
        return w + math.log(-math.expm1(-a * w)) - math.log(a * shrunk)

    def _near(self, w: float, log_slope: float) -> float:
        """A float near the w at which the slope, but for its factor e^-d, has this logarithm."""
        for _ in range(_STEPS):
            step = (self.rough_slope(w) - log_slope) / float(self._rise(w))
            w = max(w - step, 1e-3 * w)
            if abs(step) < 1e-9 * w:
                break
        return w

    def _rise(self, w: float) -> Decimal:
        """Derivative of ``log_slope`` by w, for steps towards a root: in [1/2, 1], to a float's digits."""
        k, a, x = float(self.k), float(self.order), w
        if a * x < 1e-4:
            return Decimal("0.5")
        if x < NARROW:
            z = (k + 0.5) * x
            return Decimal(max(0.5, min(1.0, 1.0 + _bent(z) + z * _bent_slope(z))))
        steep = (k / math.expm1(k * x) if k * x < 700.0 else 0.0) if k > 0.0 else 1.0 / x
        return Decimal(max(0.5, min(1.0, 1.0 + (a / math.expm1(a * x) if a * x < 700.0 else 0.0) - steep)))

    def epsilon(self, delta: Decimal, d: Decimal) -> tuple[Decimal, Decimal]:
        """An upper bound on epsilon(delta) and the u it was found at: the u at which the intercept is delta."""
        k, a = self.k, self.order
        fallen = self._shrunk(d)
        rest = fallen - exp(-k * d) * -expm1(-d)
        if k == ZERO:
            u = (self.value + rest) / delta - fallen
        else:
            # log of k (E(value) + rest) / (a delta), which may be beyond every exponent.
            limit = k * self.value + (-expm1(-k * self.value)).ln()
            log_c = limit + log1p(k * rest * exp(-limit)) - a.ln() - delta.ln()
            u = log1p(exp(log_c) - k * fallen) / k if log_c < ZERO else (log_c + log1p(exp(-k * d - log_c))) / k
        return (max(ZERO, self.log_slope(u + d, d)) if u > ZERO else Decimal("Infinity")), u

    def miss(self, alpha: Decimal, d: Decimal) -> Decimal:
        """A lower bound on 1 - p where q = alpha: the tangent's value there, touching where 1 - p = (1 - alpha) e^-d."""
        missed = (ONE - alpha) * exp(-d)
        u = log1p((ONE - alpha) * -expm1(-d) / alpha)
        gained = self._shrunk(u)
        kept = (gained - self._scaled_limit(u)) / (self.order * (gained + exp(-self.k * u) * self._shrunk(d)))
        return max(ZERO, missed * self.k / self.order + kept)

    def mirrored_miss(self, alpha: Decimal, u: Decimal) -> Decimal:
        """A lower bound on q where p = 1 - alpha, touching where q = p e^-u: the other order of neighbours, complemented."""
        p = ONE - alpha
        d = log1p(p * -expm1(-u) / alpha)
        fallen = exp(-self.k * u) * self._shrunk(d)
        residue = p * self._shrunk(u) - alpha * fallen - self._scaled_limit(u)
        return max(ZERO, exp(-u) * (p + residue / -expm1(-self.order * (u + d))))


def _bent(z: float) -> float:
    """1 / (e^z - 1) - 1 / z."""
    if z < 1e-3:
        return -0.5 + z / 12.0
    return (1.0 / math.expm1(z) if z < 700.0 else 0.0) - 1.0 / z


def _bent_slope(z: float) -> float:
    """Its derivative."""
    if z < 1e-2:
        return 1.0 / 12.0 - z * z / 240.0
    return 1.0 / (z * z) - (0.25 / math.sinh(0.5 * z) ** 2 if z < 700.0 else 0.0)


def pair(u: Decimal, d: Decimal) -> tuple[Decimal, Decimal]:
    """(p, q) with p / q = e^u and (1 - p) / (1 - q) = e^-d.

    >>> from zetadp.accountants.notions.digits import precise
    >>> with precise(): [round(float(x), 6) for x in pair(Decimal(2).ln(), Decimal(2).ln())]
    [0.666667, 0.333333]
    """
    ratio, missed = exp(-u), expm1(-d)
    # 1 - e^-(u + d) = (1 - e^-d) + e^-d (1 - e^-u), from what is known already.
    p = -missed / (-missed + (ONE + missed) * -expm1(-u))
    return p, p * ratio
