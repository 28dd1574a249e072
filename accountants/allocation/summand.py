r"""One step's share of a random allocation, as a pair whose losses are tiny: Z = eta (X - 1), X = dP/dQ under Q.

A composition adds its losses; with tiny ones 1 - e^{-y} is y, so that the delta of t of them at eta t (gamma - 1) is eta times
E[(sum of t copies of X - t gamma)_+], whatever the noise: what random allocation asks for. proofs/allocation.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from zetadp.accountants.allocation.derived import Derived, is_reversed
from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import TINY, Calls, Density, Floats, LossLaw
from zetadp.accountants.densities.mixtures import Mixture

ETA = 1e-100
"""Large enough for products with probabilities to stay floats, and so small that its square is nothing beside it."""

LINEAR = 1e-14
"""Losses up to this count as equal to 1 - e^{-loss}, to within half of it, relatively; larger ones are as improbable as ``beyond`` says."""

LARGEST_SQUARE = 92.0
"""Largest log E[X^2], at which what is beyond LINEAR is below 1e-45."""


def beyond(log_square: float) -> float:
    """E[Y; Y > LINEAR] / (eta t) for the sum Y of t losses is at most this: E[Y^2] / LINEAR over eta t. (1)"""
    return ETA / LINEAR * math.exp(log_square) * (1.0 + 1e-9)


@final
@dataclass(frozen=True)
class Summand(Derived):
    """The pair (law of Z under Q, e^{-Z} times it) of a base family; in the other order the losses are -Z.

    Attributes:
      base: whose whole pairs X is the ratio of.
      log_square: at least log E[X^2] for every distance that is asked for.
    """

    name = "share of a random allocation"
    norm = "l2"
    is_infinitesimal = True
    base: Density
    log_square: float

    @property
    def is_discrete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.is_discrete

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        if is_reversed(upper):
            return ETA * (1.0 + 4.0 * UNIT)
        largest = self.base.largest_loss(upper, lower)
        return ETA * math.expm1(largest) * (1.0 + 16.0 * UNIT) if largest < 600.0 else math.inf

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        """eta E[(X - 1 - y)_+], or eta E[(1 - y - X)_+] in the other order, at y = epsilon / eta >= 0. (2), (3)"""
        return self._puts(upper, lower, epsilons / ETA) if is_reversed(upper) else self._calls(upper, lower, epsilons / ETA)

    def _calls(self, upper: Mixture, lower: Mixture, y: Floats) -> Calls:
        # A node that stands for 0 may be a little below. Nothing is asked for further down.
        far = y < -0.5
        y = np.where(far, 0.0, y)
        level = np.log1p(y)
        # Asked a little before: an atom may lie between.
        error = 8.0 * UNIT * np.abs(level)
        there = self.base.calls(upper, lower, level - error)
        mass = there.tail / (1.0 + y)
        moved = 2.0 * error * (there.tail + there.doubt) * (1.0 + 1e-9)
        low = (there.lower - moved) * (1.0 - 2.0 * LINEAR) - beyond(self.log_square)
        high = np.where(far, math.inf, ETA * there.upper * (1.0 + 8.0 * UNIT) + TINY)
        return Calls(ETA * np.maximum(low, 0.0), high, mass, there.doubt / (1.0 + y) + 8.0 * LINEAR * mass)

    def _puts(self, upper: Mixture, lower: Mixture, y: Floats) -> Calls:
        inside = y < 1.0
        rest = np.where(inside, 1.0 - y, 1.0)
        level = np.where(inside, -np.log1p(-np.where(inside, y, 0.0)), 0.0)
        # 1 - y is off by 2u, and so is its logarithm, over itself; and the factor in front.
        error = 8.0 * UNIT * level + 2.0 * UNIT / rest
        there = self.base.calls(upper, lower, level - error)
        mass = there.lower + there.tail
        moved = 2.0 * error * (there.upper + there.tail + there.doubt) * (1.0 + 1e-9)
        doubt = there.doubt + (there.upper - there.lower) + 8.0 * LINEAR * mass
        return Calls(
            np.where(inside, ETA * np.maximum(rest * (there.lower - moved), 0.0) * (1.0 - 8.0 * UNIT), 0.0),
            np.where(inside, ETA * rest * (there.upper + moved) * (1.0 + 8.0 * UNIT) + TINY, 0.0),
            np.where(inside, mass, 0.0),
            np.where(inside, doubt, 0.0),
        )

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        turned = is_reversed(upper)
        law = self.base.losses(lower.mirrored, upper.mirrored) if turned else self.base.losses(upper, lower)
        kept = np.abs(law.losses) < 600.0
        losses, logs = ETA * np.expm1(law.losses[kept]), (law.log_weights - law.losses)[kept]
        return LossLaw(-losses[::-1], logs[::-1], ()) if turned else LossLaw(losses, logs, ())
