r"""Private selection: the index of the best of many scores, and which of many queries are above a threshold."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Positive, Step
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.loss import RangeLoss, ResponseLoss
from zetadp.mechanisms.numerics.rounding import rounded_up

_PROOF = "declared.md"


@final
class NoisyMax(Declared):
    r"""The index of the largest of many scores, each with independent noise: nothing but the index is released.

    With Gumbel noise it is the exponential mechanism (index i has a probability proportional to e^{score_i / scale}), and its range is
    bounded; with exponential noise it is permute-and-flip; with Laplace noise, report noisy max. All of them have
    epsilon = 2 score_sensitivity / scale, or half of it if scores are monotonic.

    Attributes:
      noise: gumbel, exponential or laplace.
      scale: of the noise, in units of a score; > 0.
      score_sensitivity: how far one unit moves any one score at most; > 0.
      monotonic: whether one unit moves all scores in the same direction, as counts do under add_remove.
    Sources: McSherry and Talwar 2007; McKenna and Sheldon 2020; Ding, Kifer, Sayed, Steinke, Wang, Xiao and Zhang 2021; Durfee and
    Rogers 2019. Proof: proofs/declared.md.

    >>> who = {"adjacency": "add_remove", "unit": "record"}
    >>> NoisyMax(noise="gumbel", scale=4.0, score_sensitivity=1.0, **who).privacy_loss()
    RangeLoss(eta=0.5)
    >>> NoisyMax(noise="laplace", scale=4.0, score_sensitivity=1.0, monotonic=True, **who).privacy_loss()
    ResponseLoss(epsilon=0.25, shown=1.0)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="The index of the largest of many scores with noise: exponential mechanism, permute-and-flip, report noisy max.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "McSherry and Talwar 2007",
            "McKenna and Sheldon 2020, arXiv:2010.12603",
            "Ding et al. 2021, arXiv:2105.07260",
            "Durfee and Rogers 2019, arXiv:1905.04273",
        ),
        errata=(),
        proof=_PROOF,
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["noisy_max"] = "noisy_max"
    noise: Literal["gumbel", "exponential", "laplace"]
    scale: Positive
    score_sensitivity: Positive
    monotonic: Annotated[bool, Strict()] = Field(default=False)

    @classmethod
    def example(cls) -> Self:
        return cls(noise="gumbel", scale=4.0, score_sensitivity=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")

    @property
    def epsilon(self) -> float:
        """2 score_sensitivity / scale, or half of it if monotonic, rounded up."""
        return rounded_up((1 if self.monotonic else 2) * Fraction(self.score_sensitivity) / Fraction(self.scale))

    @property
    def noise_scale(self) -> float:
        return self.scale

    def privacy_loss(self) -> RangeLoss | ResponseLoss:
        return RangeLoss(self.epsilon) if self.noise == "gumbel" else ResponseLoss(self.epsilon)

    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "scale")

    def derivation(self) -> tuple[Step, ...]:
        times = "" if self.monotonic else "2 "
        return (
            Step(symbol="Delta", value=self.score_sensitivity, formula="given", source="score_sensitivity"),
            Step(symbol="b", value=self.scale, formula="given", source=f"scale of the {self.noise} noise on every score"),
            Step(
                symbol="eta" if self.noise == "gumbel" else "epsilon_0",
                value=self.epsilon,
                formula=f"{times}Delta / b, rounded up",
                source="Durfee and Rogers 2019" if self.noise == "gumbel" else "Ding et al. 2021",
            ),
        )


@final
class SparseVector(Declared):
    r"""Which of a sequence of queries are above a noisy threshold, until ``most_above`` of them were: the sparse vector technique.

    Only "above" and "below" are released, no value. The threshold's noise is drawn once; every query has fresh noise.
    epsilon = sensitivity / threshold_scale + 2 most_above sensitivity / query_scale, with 1 in place of 2 if queries are monotonic.

    Attributes:
      threshold_scale: of the Laplace noise on the threshold; > 0.
      query_scale: of the Laplace noise on every query; > 0.
      query_sensitivity: how far one unit moves any one query at most; > 0.
      most_above: answers "above" after which it stops; 1 to 10^6. Below ones cost nothing.
      monotonic: whether one unit moves all queries in the same direction.
    Sources: Lyu, Su and Li 2017, Algorithm 7, Theorems 4 and 5, without its numeric answers. Proof: proofs/declared.md.

    >>> who = {"adjacency": "add_remove", "unit": "record"}
    >>> SparseVector(threshold_scale=4.0, query_scale=16.0, query_sensitivity=1.0, most_above=2, **who).privacy_loss().epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Which of many queries are above a threshold, with Laplace noise on both: the sparse vector technique.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Dwork, Naor, Reingold, Rothblum and Vadhan 2009", "Lyu, Su and Li 2017, arXiv:1603.01699, Theorems 4 and 5"),
        errata=(),
        proof=_PROOF,
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["sparse_vector"] = "sparse_vector"
    threshold_scale: Positive
    query_scale: Positive
    query_sensitivity: Positive
    most_above: Annotated[int, Strict(), Field(ge=1, le=10**6)]
    monotonic: Annotated[bool, Strict()] = Field(default=False)

    @classmethod
    def example(cls) -> Self:
        return cls(
            threshold_scale=8.0, query_scale=32.0, query_sensitivity=1.0, most_above=4, adjacency=Adjacency.ADD_REMOVE, unit="record"
        )

    @property
    def epsilon(self) -> float:
        """The sum of the threshold's and the answers' shares, rounded up."""
        moves = (1 if self.monotonic else 2) * self.most_above
        share = 1 / Fraction(self.threshold_scale) + moves / Fraction(self.query_scale)
        return rounded_up(Fraction(self.query_sensitivity) * share)

    @property
    def noise_scale(self) -> float:
        return max(self.threshold_scale, self.query_scale)

    def privacy_loss(self) -> ResponseLoss:
        return ResponseLoss(self.epsilon)

    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "threshold_scale", "query_scale")

    def derivation(self) -> tuple[Step, ...]:
        times = "" if self.monotonic else "2 "
        return (
            Step(symbol="Delta", value=self.query_sensitivity, formula="given", source="query_sensitivity"),
            Step(symbol="b1", value=self.threshold_scale, formula="given", source="Laplace scale on the threshold"),
            Step(symbol="b2", value=self.query_scale, formula="given", source="Laplace scale on every query"),
            Step(symbol="c", value=float(self.most_above), formula="given", source="most_above"),
            Step(
                symbol="epsilon_0",
                value=self.epsilon,
                formula=f"Delta / b1 + {times}c Delta / b2, rounded up",
                source="Lyu, Su and Li 2017, Theorems 4 and 5",
            ),
        )
