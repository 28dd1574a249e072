r"""Noise on whole numbers on a whole-numbered query, drawn by others: by one party, or by several whose noise adds up."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Step, is_absent
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import IntegerLoss
from zetadp.mechanisms.numerics.integer_laws import GaussianLaw, GaussianSumLaw, IntegerLaw, LaplaceLaw, SkellamLaw

LEAST_SCALE, LARGEST_GAUSSIAN_SCALE, LARGEST_LAPLACE_SCALE = 0.1, 2e3, 1e2
"""With less noise one output is many times as probable as the next: it hides nothing. With more, a table of all outcomes is too large, and
discrete noise is hardly told from that on the line."""

LEAST_SUMMED_SCALE, MOST_PARTIES = 0.5, 10**6
"""Below half a unit of noise for each party the published bound on sums of discrete Gaussians isn't proved."""

_LEAST_VARIANCE, _LARGEST_VARIANCE = 2.0**-7, 2.0**22
"""A little beyond the squares of the scales, which rounding of a factor's square must not leave."""

_PROOF = "declared.md"


class IntegerNoise(Declared):
    """Noise on a query with whole values, of one coordinate: one count, or a histogram in which one unit changes a single bin.

    Attributes:
      moves: how far one unit moves the value at most; a whole number, 1 to 10^6.
      contribution: how far one unit alone moves it from what it is without that unit; a whole number, 1 to 10^6, or None. Under replace_one
        moves bounds only the difference of two units; Poisson sampling leaves a unit out, and needs this bound too.
    Raises:
      ValidationError: a contribution under another adjacency, where moves already covers it.
    """

    CAN_BE_SAMPLED: ClassVar[bool] = True

    moves: Annotated[int, Strict(), Field(ge=1, le=10**6)]
    # Omitted from JSON if absent: most have none.
    contribution: Annotated[int, Strict(), Field(ge=1, le=10**6)] | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _check_contribution(self) -> Self:
        if self.contribution is not None and self.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidParameter("contribution", f"absent under {self.adjacency.value} (moves already covers it)", self.contribution)
        return self

    @final
    def at_nothing(self, moves: int) -> Self:
        """The same noise for neighbours of which one has nothing in the unit's place, and the other one's value is this far from it."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(fields | {"moves": moves, "contribution": None, "adjacency": Adjacency.ZERO_OUT})

    @property
    @abstractmethod
    def law(self) -> IntegerLaw:
        """The law of the noise that hides the value."""

    @property
    @abstractmethod
    def noise_scale(self) -> float: ...

    def privacy_loss(self) -> IntegerLoss:
        return IntegerLoss(self.law, self.moves / self.law.scale)

    def derivation(self) -> tuple[Step, ...]:
        return Step(symbol="Delta", value=float(self.moves), formula="given", source="moves"), *self._noise_steps()

    @abstractmethod
    def _noise_steps(self) -> tuple[Step, ...]: ...


class _Scaled(IntegerNoise):
    """Noise that is given by its scale."""

    SYMBOL: ClassVar[str]
    scale: float

    @classmethod
    def example(cls) -> Self:
        return cls(scale=2.0, moves=1, adjacency=Adjacency.ADD_REMOVE, unit="record")

    @property
    @final
    def noise_scale(self) -> float:
        return self.scale

    @final
    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "scale")

    def _noise_steps(self) -> tuple[Step, ...]:
        return (Step(symbol=self.SYMBOL, value=self.scale, formula="given", source=f"scale of {self.kind_name()}"),)


@final
class DiscreteGaussian(_Scaled):
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
    SYMBOL = "sigma"
    SCALES = (LEAST_SCALE, LARGEST_GAUSSIAN_SCALE)

    kind: Literal["discrete_gaussian"] = "discrete_gaussian"
    scale: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=LEAST_SCALE, le=LARGEST_GAUSSIAN_SCALE)]

    @property
    def law(self) -> GaussianLaw:
        return GaussianLaw(self.scale)


@final
class DiscreteLaplace(_Scaled):
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
    SYMBOL = "b"
    SCALES = (LEAST_SCALE, LARGEST_LAPLACE_SCALE)

    kind: Literal["discrete_laplace"] = "discrete_laplace"
    scale: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=LEAST_SCALE, le=LARGEST_LAPLACE_SCALE)]

    @property
    def law(self) -> LaplaceLaw:
        return LaplaceLaw(self.scale)


@final
class DiscreteGaussianSum(_Scaled):
    r"""Distributed discrete Gaussian noise: each of several parties adds its own, of probability proportional to e^{-x^2 / (2 scale^2)}.

    The sum of discrete Gaussians isn't a discrete Gaussian. Where its law can't be tabled here, that of as many of the parties as can be
    bounds it from above, and so does the published Renyi bound.

    Attributes:
      scale: sigma of each party's noise, the same for all; 0.5 to 2000.
      honest: the least number of parties whose noise is in the sum and unknown to the attacker: those that neither drop out nor collude;
        1 to 10^6.
    Sources: Kairouz, Liu and Steinke 2021. Proof: proofs/declared.md.

    >>> shared = DiscreteGaussianSum(scale=2.0, honest=4, moves=1, adjacency="add_remove", unit="record")
    >>> alone = DiscreteGaussian(scale=4.0, moves=1, adjacency="add_remove", unit="record")
    >>> round(shared.privacy_loss().log_delta(0.5) - alone.privacy_loss().log_delta(0.5), 12)
    0.0
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Discrete Gaussian noise added by several parties to a whole-numbered query, whole or sampled.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Kairouz, Liu and Steinke 2021, arXiv:2102.06387",),
        errata=(),
        proof=_PROOF,
    )
    SCALES = (LEAST_SUMMED_SCALE, LARGEST_GAUSSIAN_SCALE)
    SYMBOL = "sigma"

    kind: Literal["discrete_gaussian_sum"] = "discrete_gaussian_sum"
    scale: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=LEAST_SUMMED_SCALE, le=LARGEST_GAUSSIAN_SCALE)]
    honest: Annotated[int, Strict(), Field(ge=1, le=MOST_PARTIES)]

    @classmethod
    def example(cls) -> Self:
        return cls(scale=2.0, honest=3, moves=1, adjacency=Adjacency.ADD_REMOVE, unit="record")

    @property
    def law(self) -> GaussianSumLaw:
        return GaussianSumLaw.of(self.scale, self.honest, LARGEST_GAUSSIAN_SCALE)

    def _noise_steps(self) -> tuple[Step, ...]:
        given = (*super()._noise_steps(), Step(symbol="n", value=self.honest, formula="given", source="honest"))
        law = self.law
        if not law.is_part:
            return given
        part = "of these, whose sum can be tabled; with the others' noise nobody loses more: post-processing"
        return *given, Step(symbol="n'", value=law.parties, formula=part, source="mechanisms/proofs/declared.md")


@final
class Skellam(IntegerNoise):
    r"""Skellam noise: the difference of two Poisson numbers of mean variance / 2 each. Sums of it are again of this kind.

    Attributes:
      variance: of all noise in the sum that the attacker doesn't know: each party's variance times the least number of parties that
        neither drop out nor collude; 2^-7 to 2^22.
    Sources: Agarwal, Kairouz and Liu 2021. Proof: proofs/declared.md.

    >>> noise = Skellam(variance=4.0, moves=1, adjacency="add_remove", unit="record")
    >>> round(math.exp(noise.privacy_loss().log_delta(0.0)), 6)  # P[0] = e^-4 I_0(4)
    0.207002
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Skellam noise on a whole-numbered query, of one party or of several, whole or sampled.",
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=("Agarwal, Kairouz and Liu 2021, arXiv:2110.04995",),
        errata=(),
        proof=_PROOF,
    )
    SCALES = (LEAST_SCALE, LARGEST_GAUSSIAN_SCALE)

    kind: Literal["skellam"] = "skellam"
    variance: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=_LEAST_VARIANCE, le=_LARGEST_VARIANCE)]

    @classmethod
    def example(cls) -> Self:
        return cls(variance=4.0, moves=1, adjacency=Adjacency.ADD_REMOVE, unit="record")

    @property
    def law(self) -> SkellamLaw:
        return SkellamLaw(self.variance)

    @property
    def noise_scale(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor * factor, "variance")

    def _noise_steps(self) -> tuple[Step, ...]:
        return (Step(symbol="mu", value=self.variance, formula="given", source="variance of skellam"),)
