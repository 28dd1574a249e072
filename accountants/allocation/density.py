r"""The family of a random allocation's pairs: the base's pair on one of t coordinates, chosen uniformly, against nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from zetadp.accountants.allocation.curve import WHOLE, AllocationCurve, curve_of
from zetadp.accountants.allocation.derived import Derived, is_reversed
from zetadp.accountants.densities import Calls, Density, Floats, LossLaw
from zetadp.accountants.densities.mixtures import Mixture

_NODES = 400
_FIRST_END, _LARGEST_END = 0.05, 40.0
_FAST, _SLOW = 1.5, 1.12
"""How much further each look for the end goes, before a tail is ``_SMALL_TAIL`` and then: what is beyond isn't laid out."""

_SMALL_TAIL, _MOST_GAPS = 1e-3, 6
_LEAST_TAIL, _LAST_TAIL = 1e-15, 1e-30
_SLOPE_NODES, _FURTHER = 8, 4.0


@final
@dataclass(frozen=True)
class Allocated(Derived):
    """((1/t) sum_i of the base's copy at its distance on coordinate i, all copies at 0); a pair has one copy each.

    Attributes:
      base: the family of one release.
      steps: t.
      shares: the base's copies, whole ones or, for a group, a mixture; as shares of a pair's distance, of which the largest is 1.
    """

    width = 1e-5
    is_laid_out = True
    base: Density
    steps: int
    shares: Mixture = WHOLE

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"randomly allocated {self.base.name}"

    @property
    def norm(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.norm

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        return self.base.largest_loss(upper, lower)

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        curve = self.curve(upper, lower)
        return curve.backward(epsilons) if is_reversed(upper) else curve.forward(epsilons)

    def curve(self, upper: Mixture, lower: Mixture) -> AllocationCurve:
        return curve_of(self.base, upper.shifts[-1] - lower.shifts[0], self.steps, self.shares)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        ahead = _tails(self, upper, lower)
        behind = _tails(self, lower.mirrored, upper.mirrored)
        # P(L > eps) ahead; P(-L > eps) is e^{-eps} times what the other order has beyond eps, as a mass of its first law.
        losses = np.concatenate((-behind[0][::-1], ahead[0]))
        weights = np.concatenate(((behind[1] * np.exp(-behind[0]))[::-1], ahead[1]))
        rest = max(1.0 - float(weights.sum()), 0.0)
        weights[len(behind[0])] += rest
        kept = weights > 1e-290
        return LossLaw(losses[kept], np.log(weights[kept]), ())


@lru_cache(maxsize=16)
def _tails(family: Allocated, upper: Mixture, lower: Mixture) -> tuple[Floats, Floats]:
    """(losses > 0, P's mass near each)"""
    end = _end(family, upper, lower)
    edges = np.linspace(0.0, end, _NODES + 1)
    there = family.calls(upper, lower, edges)
    beyond = np.maximum.accumulate((there.lower + there.tail)[::-1])[::-1]
    edges, beyond = _continued(family, upper, lower, edges, beyond)
    masses = np.append(beyond[:-1] - beyond[1:], beyond[-1])
    return edges + 0.5 * end / _NODES, masses


def _end(family: Allocated, upper: Mixture, lower: Mixture) -> float:
    """Where about the tail falls below ``_LEAST_TAIL``."""
    end = min(math.log1p(family.curve(upper, lower).spread), _FIRST_END)
    gaps = 0
    while end < _LARGEST_END and gaps < _MOST_GAPS:
        known = family.calls(upper, lower, np.array([end]))
        tail = float(known.lower[0] + known.tail[0])
        if tail > _LEAST_TAIL:
            gaps = 0
        elif known.upper[0] > _SMALL_TAIL * _SMALL_TAIL:
            # Grids may know nothing from below between what many ratios and what one large ratio does.
            gaps += 1
        else:
            break
        end *= _FAST if tail > _SMALL_TAIL else _SLOW
    return end


def _continued(family: Allocated, upper: Mixture, lower: Mixture, edges: Floats, beyond: Floats) -> tuple[Floats, Floats]:
    """The same further on, about: falling as fast as at the end, or, forwards, as slowly as one large ratio does."""
    first, end = edges[-_SLOPE_NODES], edges[-1]
    slope = math.log(beyond[-_SLOPE_NODES] / beyond[-1]) / (end - first) if 0.0 < beyond[-1] < beyond[-_SLOPE_NODES] else math.inf
    more = end * np.linspace(1.0, _FURTHER, _NODES // 2 + 1)[1:]
    tails = beyond[-1] * np.exp(-np.minimum(slope * (more - end), 700.0))
    if not is_reversed(upper):
        alone = family.base.calls(upper, lower, np.log1p(family.steps * np.expm1(np.minimum(more, 600.0))))
        tails = np.minimum(np.maximum(tails, alone.lower + alone.tail), beyond[-1])
    kept = int(np.count_nonzero(tails > _LAST_TAIL))
    return np.append(edges, more[:kept]), np.append(beyond, tails[:kept])
