r"""The family of a random allocation's pairs: the base's pair on one of t coordinates, chosen uniformly, against nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from zetadp.accountants.allocation.curve import WHOLE, curve_of
from zetadp.accountants.allocation.derived import Derived, is_reversed
from zetadp.accountants.densities import Calls, Density, Floats, LossLaw
from zetadp.accountants.densities.mixtures import Mixture

_NODES = 1000
_ROUGH: Floats = np.geomspace(1e-6, 40.0, 400)
_LOOKS = 40
_LEAST_TAIL, _LAST_TAIL = 1e-17, 1e-30
_SLOPE_NODES, _FURTHER = 20, 4.0


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
        curve = curve_of(self.base, upper.shifts[-1] - lower.shifts[0], self.steps, self.shares)
        return curve.backward(epsilons) if is_reversed(upper) else curve.forward(epsilons)

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
    end = _ROUGH[0]
    # No further than it is needed, as a curve is laid out as far as it is asked for.
    for part in np.split(_ROUGH, _LOOKS):
        known = family.calls(upper, lower, part)
        seen = np.flatnonzero(known.lower + known.tail > _LEAST_TAIL)
        end = part[seen[-1]] if len(seen) else end
        if len(seen) < len(part):
            break
    edges = np.linspace(0.0, end, _NODES + 1)
    there = family.calls(upper, lower, edges)
    beyond = np.maximum.accumulate((there.lower + there.tail)[::-1])[::-1]
    edges, beyond = _continued(family, upper, lower, edges, beyond)
    masses = np.append(beyond[:-1] - beyond[1:], beyond[-1])
    return edges + 0.5 * end / _NODES, masses


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
