r"""Noise on whole numbers: discrete Gaussian and discrete Laplace noise on a whole-numbered query, drawn by others."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Step
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.loss import IntegerLaw, IntegerLoss

LEAST_SCALE, LARGEST_GAUSSIAN_SCALE, LARGEST_LAPLACE_SCALE = 0.1, 2e3, 1e2
"""With less noise one output is many times as probable as the next: it hides nothing. With more, a table of all outcomes is too large, and
discrete noise is hardly told from that on the line."""

_PROOF = "declared.md"


class IntegerNoise(Declared):
    """Noise on a query with whole values, of one coordinate: one count, or a histogram in which one unit changes a single bin.

    Attributes:
      moves: how far one unit moves the value at most; a whole number, 1 to 10^6.
    """

    CAN_BE_SAMPLED: ClassVar[bool] = True
    LAW: ClassVar[IntegerLaw]

    moves: Annotated[int, Strict(), Field(ge=1, le=10**6)]
    scale: float

    @classmethod
    def example(cls) -> Self:
        return cls(scale=2.0, moves=1, adjacency=Adjacency.ADD_REMOVE, unit="record")

    @property
    @final
    def noise_scale(self) -> float:
        return self.scale

    @final
    def privacy_loss(self) -> IntegerLoss:
        return IntegerLoss(self.LAW, self.noise_scale, self.moves / self.noise_scale)

    @final
    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "scale")

    @final
    def derivation(self) -> tuple[Step, ...]:
        return (
            Step(symbol="Delta", value=float(self.moves), formula="given", source="moves"),
            Step(symbol="sigma" if self.LAW == "gaussian" else "b", value=self.noise_scale, formula="given", source=f"scale of {self.LAW}"),
        )


@final
class DiscreteGaussian(IntegerNoise):
    r"""Noise of probability proportional to e^{-x^2 / (2 scale^2)} on the whole numbers; its deviation is at most scale.

    Attributes:
      scale: sigma; 0.1 to 2000.
    Sources: Canonne, Kamath and Steinke 2020. Proof: proofs/declared.md.

    >>> round(DiscreteGaussian(scale=2.0, moves=1, adjacency="add_remove", unit="record").privacy_loss().renyi(2.0), 6)
    0.25
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Discrete Gaussian noise on a whole-numbered query, whole or sampled.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Canonne, Kamath and Steinke 2020, arXiv:2004.00010",),
        errata=(),
        proof=_PROOF,
    )
    LAW = "gaussian"
    SCALES = (LEAST_SCALE, LARGEST_GAUSSIAN_SCALE)

    kind: Literal["discrete_gaussian"] = "discrete_gaussian"
    scale: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=LEAST_SCALE, le=LARGEST_GAUSSIAN_SCALE)]


@final
class DiscreteLaplace(IntegerNoise):
    r"""Noise of probability proportional to e^{-|x| / scale} on the whole numbers: the two-sided geometric mechanism.

    Attributes:
      scale: b; 0.1 to 100.
    Sources: Ghosh, Roughgarden and Sundararajan 2009. Proof: proofs/declared.md.

    >>> DiscreteLaplace(scale=2.0, moves=1, adjacency="add_remove", unit="record").privacy_loss().pure_epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Discrete Laplace (two-sided geometric) noise on a whole-numbered query, whole or sampled.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Ghosh, Roughgarden and Sundararajan 2009, arXiv:0811.2841",),
        errata=(),
        proof=_PROOF,
    )
    LAW = "laplace"
    SCALES = (LEAST_SCALE, LARGEST_LAPLACE_SCALE)

    kind: Literal["discrete_laplace"] = "discrete_laplace"
    scale: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=LEAST_SCALE, le=LARGEST_LAPLACE_SCALE)]
