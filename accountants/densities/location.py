r"""Families of shifted copies of one noise density on the line: the methods that they all share."""

from __future__ import annotations

from typing import final

from zetadp.accountants.densities import curve, quadrature
from zetadp.accountants.densities.base import Calls, Density, Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.noise import Noise


class LocationDensity(Noise, Density):
    """Mixtures of shifted copies of a noise density, P's shifts at or above Q's."""

    is_discrete = False

    @final
    def calls(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Calls:
        return curve.calls(self, upper, lower, epsilons)

    @final
    def losses(self, upper: Mixture, lower: Mixture) -> LossLaw:
        return quadrature.losses(self, upper, lower)

    @final
    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        return quadrature.ratio_nodes(self, upper, lower, order, upper_half=upper_half)
