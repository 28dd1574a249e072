r"""The worst of all pairs whose losses lie in an interval of length eta: L has the density e^{l/2} / (4 sinh(eta / 2)) on (-eta, eta).

Its halves have one component each, at distance eta. mechanisms/proofs/declared.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.base import TINY, Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.bounded import WholeRange
from zetadp.accountants.densities.quadrature import panels
from zetadp.accountants.densities.transforms import Transform
from zetadp.mechanisms.loss import PrivacyLoss, RangeLoss

_NODES = 4001
_REACH = 160.0
"""Losses further below eta have a probability below e^-80 under P; estimates leave them out."""


@final
@dataclass(frozen=True)
class RangeDensity(Density):
    """A whole Laplace pair at this distance, without its atoms."""

    loss_type = RangeLoss
    name = "bounded range"
    norm = "l2"
    is_discrete = False
    mixes = False
    is_loose = True
    has_atoms = False
    has_transform = True

    def loss(self, distance: float) -> PrivacyLoss:
        return RangeLoss(distance)

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        return _distance(upper, lower)

    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        """(1 - e^{(eps - eta) / 2})^2 / (1 - e^-eta) between -eta and eta, 0 and 1 - e^eps outside."""
        eta = _distance(upper, lower)
        low, high = epsilons < -eta, epsilons >= eta
        half = np.clip(0.5 * (epsilons - eta), -eta, 0.0)
        scale, short = -math.expm1(-eta), -np.expm1(half)
        value = np.where(low, -np.expm1(np.minimum(epsilons, 0.0)), short * short / scale)
        tail = np.where(high, 0.0, np.where(low, np.exp(np.minimum(epsilons, 0.0)), np.exp(half) * short / scale))
        # The difference eps - eta is off by a unit of the larger one, which counts as much as that distance of eps itself.
        rounding = 16.0 * UNIT * value + 4.0 * UNIT * (np.abs(epsilons) + eta) * tail
        doubt = 16.0 * UNIT * tail + 4.0 * UNIT * (np.abs(epsilons) + eta) * np.where(high | low, 0.0, np.exp(half) / scale)
        return Calls(np.where(high, 0.0, np.maximum(value - rounding, 0.0)), np.where(high, 0.0, value + rounding + TINY), tail, doubt)

    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        eta = _distance(upper, lower)
        losses = np.linspace(max(-eta, eta - _REACH), eta, _NODES)
        logs = 0.5 * (losses - eta)
        return LossLaw(losses, logs - float(np.logaddexp.reduce(logs)), ())

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        del upper_half  # the pair is symmetric, so that nobody asks for its worse direction
        eta = _distance(upper, lower)
        found = panels(np.array([-eta, eta]), max(1.0, order / 4.0))
        if found is None:
            return None
        loss, log_width = found
        log_weight = log_width - 0.5 * (loss + eta) - math.log(2.0) - math.log(-math.expm1(-eta))
        return RatioNodes(log_weight, loss, np.expm1(np.minimum(loss, 1.0)), np.exp(log_weight + loss) - np.exp(log_weight))

    def transform(self, upper: Mixture, lower: Mixture, count: int, improbable: float) -> Transform:
        del improbable  # losses are bounded: no outcome is left out
        return WholeRange(_distance(upper, lower), count)


DENSITY = RangeDensity()


def _distance(upper: Mixture, lower: Mixture) -> float:
    return upper.shifts[-1] - lower.shifts[0]
