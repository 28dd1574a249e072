r"""Randomized response: two points, (e^d, 1) / (1 + e^d) against (1, e^d) / (1 + e^d) at distance d. Its halves have one component each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.bounded import WholeResponse
from zetadp.accountants.densities.sums.profile import Sum
from zetadp.accountants.densities.sums.response import MOST_RELEASES, RepeatedResponse
from zetadp.accountants.densities.sums.shown import MOST_RELEASES as MOST_SHOWN_SOMETIMES
from zetadp.accountants.densities.sums.shown import RepeatedShown
from zetadp.accountants.densities.transforms import Transform
from zetadp.mechanisms.loss import PrivacyLoss, ResponseLoss


@final
@dataclass(frozen=True)
class ResponseDensity(Density):
    """Two points, with losses -d and d."""

    loss_type = ResponseLoss
    name = "randomized response"
    norm = "l2"
    is_discrete = True
    mixes = False
    has_atoms = True
    has_transform = True

    def loss(self, distance: float) -> PrivacyLoss:
        return ResponseLoss(distance)

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        return _distance(upper, lower)

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        """(1 - e^{eps - d}) / (1 + e^-d) between -d and d, 0 and 1 - e^eps outside. (1.5)"""
        distance = _distance(upper, lower)
        likely = 1.0 / (1.0 + math.exp(-distance))
        low, high = epsilons < -distance, epsilons >= distance
        ahead = np.clip(epsilons - distance, -2.0 * distance, 0.0)
        value = np.where(low, -np.expm1(np.minimum(epsilons, 0.0)), -np.expm1(ahead) * likely)
        tail = np.where(high, 0.0, np.where(low, np.exp(np.minimum(epsilons, 0.0)), np.exp(ahead) * likely))
        rounding = 8.0 * UNIT * value
        return Calls(np.where(high, 0.0, value - rounding), np.where(high, 0.0, value + rounding + TINY), tail, 16.0 * UNIT * tail)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        distance = _distance(upper, lower)
        likely = -math.log1p(math.exp(-distance))
        return LossLaw(np.array([-distance, distance]), np.array([likely - distance, likely]), (-distance, distance))

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        del order, upper_half  # there are only two atoms, and the pair is symmetric
        distance = _distance(upper, lower)
        loss = np.array([-distance, distance])
        log_weight = np.array([0.0, -distance]) - math.log1p(math.exp(-distance))
        return RatioNodes(log_weight, loss, np.expm1(np.minimum(loss, 1.0)), np.exp(log_weight + loss) - np.exp(log_weight))

    def transform(self, upper: Mixture, lower: Mixture, count: int, improbable: float) -> Transform:
        del improbable  # losses are bounded: no outcome is left out
        return WholeResponse(_distance(upper, lower), count)

    def repeated(self, distance: float, count: int, shown: float) -> Sum | None:
        if shown < 1.0 and count > 1:
            return RepeatedShown(distance, count, shown) if count <= MOST_SHOWN_SOMETIMES else None
        return RepeatedResponse(distance, count, shown) if count <= MOST_RELEASES else None


DENSITY = ResponseDensity()


def _distance(upper: Mixture, lower: Mixture) -> float:
    return upper.shifts[-1] - lower.shifts[0]
