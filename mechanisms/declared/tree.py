r"""Tree aggregation: noisy sums over all dyadic blocks of a sequence of steps, from which every prefix sum is computed (DP-FTRL)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Literal, Self, final

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Positive, Step
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.declared.correlated import Whole
from zetadp.mechanisms.loss import GaussianLoss

_ROUNDING = 1e-12
"""Relative allowance for a root and a few products: thousands of units of 1.1e-16."""


@final
class TreeAggregation(Declared):
    r"""For every h >= 0 and each full block of 2^h steps, from steps 0 to n - 1, the sum over the block with normal noise of its own.

    One unit takes part in at most ``max_participations`` steps, any two of them at least ``min_separation`` apart, and its presence moves
    nobody else to another step. Steps may depend on all that was released before. What is computed from the tree, such as prefix sums with
    the least variance, is a function of it. A tree that is completed by steps without data has so many steps as that makes; a tree that
    starts again with fresh noise is another release (``repeated``), with participations of its own.

    Attributes:
      std: of the noise of each block, in units of a step's sum; > 0.
      l2: how far one unit moves one step's sum at most; under replace_one by two units' contributions.
      steps: n, 1 to 10^6.
      min_separation: b >= 1; 1 allows every step.
      max_participations: k >= 1.
    Sources: Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; Kairouz et al. 2021 (DP-FTRL). Proof: proofs/declared.md.

    >>> tree = TreeAggregation(std=2.0, l2=1.0, steps=8, min_separation=1, max_participations=1, adjacency="zero_out", unit="record")
    >>> round(tree.tree_sensitivity**2, 9), round(tree.privacy_loss().mu, 9)
    (4.0, 1.0)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Tree aggregation, as in DP-FTRL: noisy sums over all dyadic blocks of steps, for one or several participations.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Kairouz et al. 2021, arXiv:2103.00039", "Chan, Shi and Song 2011"),
        errata=(),
        proof="declared.md",
    )

    kind: Literal["tree_aggregation"] = "tree_aggregation"
    std: Positive
    l2: Positive
    steps: Whole
    min_separation: Whole
    max_participations: Whole

    @classmethod
    def example(cls) -> Self:
        return cls(std=8.0, l2=1.0, steps=100, min_separation=10, max_participations=10, adjacency=Adjacency.ZERO_OUT, unit="record")

    @cached_property
    def tree_sensitivity(self) -> float:
        """The largest l2 norm of all blocks' numbers of one unit's participations, rounded up: exact for one, else an upper bound."""
        most, square = min(self.max_participations, -(-self.steps // self.min_separation)), 0
        for height in range(self.steps.bit_length()):
            # A block holds at most so many; where their sum is bounded, the sum of squares is largest in full blocks.
            held = min(most, -(-(2**height) // self.min_separation))
            full, rest = divmod(most, held)
            blocks = self.steps >> height
            square += blocks * held**2 if full >= blocks else full * held**2 + rest**2
        return math.sqrt(square) * (1.0 + _ROUNDING)

    @property
    def noise_scale(self) -> float:
        return self.std

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.l2 * self.tree_sensitivity / self.std * (1.0 + _ROUNDING))

    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "std")

    def derivation(self) -> tuple[Step, ...]:
        rule = "root of the sum over blocks of squared participations, at most min(k, ceil(2^h / b)) in a block and k in all"
        return (
            Step(symbol="l2", value=self.l2, formula="given", source="how far one unit moves one step's sum"),
            Step(symbol="std", value=self.std, formula="given", source="of each block's noise"),
            Step(symbol="k", value=float(self.max_participations), formula="given", source="max_participations"),
            Step(symbol="b", value=float(self.min_separation), formula="given", source="min_separation"),
            Step(symbol="sens(tree)", value=self.tree_sensitivity, formula=rule, source="proofs/declared.md"),
            Step(symbol="mu", value=self.privacy_loss().mu, formula="l2 sens(tree) / std", source="Kairouz et al. 2021"),
        )
