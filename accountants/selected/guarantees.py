r"""What one (epsilon, delta) guarantee of the best run says of delta at smaller epsilons. proofs/selected.md, section 3.

A guarantee (e, d) of both orders of the outputs bounds H at e^e by d, and at e^-e by M (1 - e^-e) + d e^-e, M the probability that there
is an output. H is convex: between them it is below the chord,

    delta(eps) <= d + (M - d) (e^e - e^eps) / (1 + e^e),    0 <= eps <= e.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

_ROUNDING = 1e-14
"""Allowance for a few terms of one sign, relative: some forty units of 1.1e-16."""


@final
class Guarantee(NamedTuple):
    """Of the best run, in both directions of neighbours; both rounded up."""

    epsilon: float
    delta: float

    def delta_at(self, epsilon: float, mass: float) -> float:
        """An upper end of delta at this epsilon >= 0; ``mass``: an upper end of the probability that there is an output."""
        if epsilon >= self.epsilon:
            return self.delta
        if self.epsilon == math.inf:
            return 1.0
        share = -math.expm1(epsilon - self.epsilon) / (1.0 + math.exp(-self.epsilon))
        return min((self.delta + max(mass - self.delta, 0.0) * share) * (1.0 + _ROUNDING), 1.0)

    def epsilon_at(self, delta: float, mass: float) -> float:
        """An epsilon >= 0 at which delta is at most this; infinite where the guarantee doesn't say."""
        if delta < self.delta or self.epsilon == math.inf:
            return math.inf
        if delta >= mass:
            return 0.0
        share = (delta - self.delta) / (mass - self.delta) * (1.0 + math.exp(-self.epsilon)) * (1.0 - _ROUNDING)
        return max(self.epsilon + math.log1p(-share), 0.0) + _ROUNDING * self.epsilon if share < 1.0 else 0.0
