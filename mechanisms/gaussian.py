r"""The Gaussian mechanism on real vectors."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from pydantic import model_validator

from zetadp.mechanisms.base import AdditiveNoise, Adjacency, Assumption, Facts, Positive, Sensitivity, Step, size_of
from zetadp.mechanisms.loss import GaussianLoss
from zetadp.mechanisms.sampling.grid import contraction, released_by
from zetadp.mechanisms.sampling.source import Array, NoiseSource


@final
class Gaussian(AdditiveNoise):
    r"""Adds independent N(0, std^2) to every coordinate of a real vector: (l2 / std)-GDP, exactly.

    Attributes:
      std: standard deviation of each coordinate, in units of the query; in [1e-50, 1e50].
      sensitivity: with l2, and without bounds on real and imaginary parts.
    Raises:
      ValidationError: sensitivity without l2, or with l2_real or l2_imag.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Theorem 1. Proof: proofs/gaussian.md.

    >>> from zetadp.mechanisms import Sensitivity
    >>> Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record")).privacy_loss().gdp_mu
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent real Gaussian noise on every coordinate of a real vector.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=("Balle and Wang 2018, arXiv:1805.06530, Theorem 8", "Dong, Roth and Su 2022, arXiv:1905.02383, Theorem 1"),
        errata=("P11",),
        proof="gaussian.md",
    )

    kind: Literal["gaussian"] = "gaussian"
    std: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.sensitivity.stated_l2
        self.sensitivity.refuse_parts()
        return self

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def noise_scale(self) -> float:
        return self.std

    @property
    def noise_multiplier(self) -> float:
        """std / l2."""
        return self.std / self.sensitivity.stated_l2

    def noise(self, shape: tuple[int, ...], source: NoiseSource[Array]) -> Array:
        noise = source.standard_normal(shape)
        noise *= self.std
        return noise

    def contracted_to(self, numbers: int) -> float:
        """The factor that a value of so many real numbers is multiplied by before rounding (``grid``): its inverse widens the noise."""
        return contraction(self.least_distance(), numbers, "l2")

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        return self.release_part(value, source, size_of(value))

    def release_part(self, value: Array, source: NoiseSource[Array], numbers: int) -> Array:
        """``release`` for a part, of more than ``grid.FEW`` numbers, of a vector of so many: all parts in their order are the whole's."""
        self.check_kind(value, source)
        return source.released_normal(value, *self.on_grid(numbers))

    def on_grid(self, numbers: int) -> tuple[float, float, float]:
        """Factor, largest and scale of ``NoiseSource.released_normal`` for a vector of so many numbers."""
        return released_by(self.std, self.contracted_to(numbers), numbers)

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.sensitivity.stated_l2 / self.std)

    def scaled(self, factor: float) -> Self:
        return type(self)(std=self.std * factor, sensitivity=self.sensitivity)

    def derivation(self) -> tuple[Step, ...]:
        return (
            Step(symbol="l2", value=self.sensitivity.stated_l2, formula="given", source="sensitivity.l2"),
            Step(symbol="std", value=self.std, formula="given", source="std of each coordinate"),
            Step(symbol="mu", value=self.privacy_loss().mu, formula="l2 / std", source="Dong, Roth and Su 2022, Theorem 1"),
        )
