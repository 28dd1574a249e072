r"""Families of pairs that are made of another family's whole pairs."""

from __future__ import annotations

from typing import ClassVar

from zetadp.accountants.densities import Density, RatioNodes
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.mechanisms.loss import PrivacyLoss


class Derived(Density):
    """No mechanism states a loss of these; a pair has one copy each, one of them at 0.

    Attributes:
      base: the other family.
    """

    loss_type: ClassVar[type[PrivacyLoss]] = PrivacyLoss
    is_discrete = False
    has_atoms = False
    is_even = False
    base: Density

    @property
    def is_bound(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.is_bound

    def loss(self, distance: float) -> PrivacyLoss:
        """Of the base's whole pair: by quasi-convexity no Renyi divergence of a mean of its copies is larger."""
        return self.base.loss(distance)

    def gdp_mu(self, distance: float) -> float | None:
        del distance
        return None

    def ratio_nodes(self, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
        del upper, lower, order, upper_half
        return None


def is_reversed(upper: Mixture) -> bool:
    """Whether a pair's copy at 0 is the upper one: then it is shown in the other order."""
    return upper.shifts[-1] == 0.0
