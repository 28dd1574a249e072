r"""The Laplace mechanism on real vectors, and what complex vectors share with it."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from pydantic import model_validator

from zetadp.mechanisms.base import AdditiveNoise, Adjacency, Assumption, Facts, Positive, Sensitivity, Step, size_of, with_laplace_noise
from zetadp.mechanisms.local import quotient_up
from zetadp.mechanisms.loss import LaplaceLoss
from zetadp.mechanisms.sampling.grid import contraction
from zetadp.mechanisms.sampling.source import Array, NoiseSource


class LaplaceNoise(AdditiveNoise):
    r"""Independent Laplace noise of one scale on every real component, for a sensitivity with l1 over all of them.

    Attributes:
      scale: b of each real component, in units of the query.
    """

    scale: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(scale=1.0, sensitivity=Sensitivity(l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.sensitivity.stated_l1
        self.sensitivity.refuse_parts()
        return self

    @property
    @final
    def noise_scale(self) -> float:
        return self.scale

    @final
    def contracted_to(self, numbers: int) -> float:
        """The factor that a value of so many real numbers is multiplied by before rounding (``grid``): its inverse widens the noise."""
        return contraction(self.least_distance(), numbers, "l1")

    @final
    def privacy_loss(self) -> LaplaceLoss:
        return LaplaceLoss(quotient_up(self.sensitivity.stated_l1, self.scale))

    @final
    def scaled(self, factor: float) -> Self:
        return type(self)(scale=self.scale * factor, sensitivity=self.sensitivity)


@final
class Laplace(LaplaceNoise):
    r"""Adds independent Laplace noise of density e^{-|x| / scale} / (2 scale) to every coordinate: (l1 / scale, 0)-DP, exactly.

    Attributes:
      scale: b, in units of the query; the standard deviation is sqrt(2) b.
      sensitivity: with l1.
    Raises:
      ValidationError: sensitivity without l1, or with l2_real or l2_imag.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Dwork, McSherry, Nissim and Smith 2006; Dong, Roth and Su 2022, Section 2. Proof: proofs/laplace.md.

    >>> from zetadp.mechanisms import Sensitivity
    >>> Laplace(scale=2.0, sensitivity=Sensitivity(l1=1.0, adjacency="add_remove", unit="record")).privacy_loss().pure_epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent Laplace noise on every coordinate of a real vector.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=("Dwork, McSherry, Nissim and Smith 2006, Proposition 1", "Mironov 2017, arXiv:1702.07476, Proposition 6"),
        errata=("S8",),
        proof="laplace.md",
    )

    kind: Literal["laplace"] = "laplace"

    @property
    def is_complex(self) -> bool:
        return False

    def noise(self, shape: tuple[int, ...], source: NoiseSource[Array]) -> Array:
        noise = source.standard_laplace(shape)
        noise *= self.scale
        return noise

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        self.check_kind(value, source)
        return with_laplace_noise(self.noise_scale, self.contracted_to(size_of(value)), value, source)

    def derivation(self) -> tuple[Step, ...]:
        return (
            Step(symbol="l1", value=self.sensitivity.stated_l1, formula="given", source="sensitivity.l1"),
            Step(symbol="b", value=self.scale, formula="given", source="Laplace scale of each coordinate"),
            Step(
                symbol="epsilon_0",
                value=self.privacy_loss().epsilon,
                formula="l1 / b, rounded up",
                source="Dwork, McSherry, Nissim and Smith 2006",
            ),
        )
