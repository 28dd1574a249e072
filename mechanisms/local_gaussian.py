r"""Gaussian noise on each record separately: the local release of a vector in a box, at a cost that grows with the root of its length."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Positive, Sensitivity, Step
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import GaussianLoss
from zetadp.mechanisms.sampling.source import Array, NoiseSource


@final
class LocalGaussian(LocalRelease):
    r"""Adds independent N(0, std^2) to every coordinate of every record of a box: (l2 / std)-GDP for each record, exactly.

    Opposite corners differ by sqrt(n) (upper - lower) in the l2 norm. A unit of k records is k such releases, each with its own noise:
    sqrt(k) mu, where one release of all records as one vector (``gaussian`` in a group of k) would be charged k mu. There is no pure
    epsilon. Whatever is computed from the released records afterwards costs nothing more, over any number of epochs; whatever still uses
    the raw ones isn't covered.

    Attributes:
      lower, upper: the bounds of every coordinate.
      dimension: coordinates of one record, n.
      std: standard deviation of each coordinate, in units of the record.
      sensitivity: replace_one, with l2 at least sqrt(n) (upper - lower); mu is l2 / std.
    Raises:
      ValidationError: as ``LocalRelease``.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Dong, Roth and Su 2022, Theorem 1 and Corollary 3.3; errata S9, S14 and S16. Proof: proofs/local_gaussian.md.

    >>> sensitivity = Sensitivity(l2=4.0, adjacency="replace_one", unit="record")
    >>> noise = LocalGaussian(lower=0.0, upper=1.0, dimension=16, std=8.0, sensitivity=sensitivity)
    >>> noise.privacy_loss().gdp_mu, noise.worst_variance
    (0.5, 64.0)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent Gaussian noise on every coordinate of every record of a box: each record is released separately, once.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "Dong, Roth and Su 2022, arXiv:1905.02383, Theorem 1 and Corollary 3.3",
            "Kasiviswanathan et al. 2011, arXiv:0803.0924 (the local model)",
        ),
        errata=("P11", "S9", "S14", "S16"),
        proof="local_gaussian.md",
    )
    NORM: ClassVar[Literal["l1", "l2"]] = "l2"

    kind: Literal["local_gaussian"] = "local_gaussian"
    std: Positive

    @classmethod
    def example(cls) -> Self:
        return cls.for_box(0.0, 1.0, 14, 4.0, "record")

    @classmethod
    def for_box(cls, lower: float, upper: float, dimension: int, std: float, unit: str) -> Self:
        """The mechanism with the smallest l2 that the box allows."""
        sensitivity = Sensitivity(l2=cls.least_l2(lower, upper, dimension), adjacency=Adjacency.REPLACE_ONE, unit=unit)
        return cls(lower=lower, upper=upper, dimension=dimension, std=std, sensitivity=sensitivity)

    @property
    def noise_scale(self) -> float:
        return self.std

    @property
    def noise_multiplier(self) -> float:
        """std / l2."""
        return self.std / self.sensitivity.stated_l2

    @property
    def worst_variance(self) -> float:
        return self.std**2

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        self.check_value(value, source)
        return self._with(source.standard_normal(tuple(value.shape)), self.std, value, source)

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.sensitivity.stated_l2 / self.std)

    def scaled(self, factor: float) -> Self:
        return type(self)(lower=self.lower, upper=self.upper, dimension=self.dimension, std=self.std * factor, sensitivity=self.sensitivity)

    def derivation(self) -> tuple[Step, ...]:
        box = f"given, at least sqrt(n) (upper - lower) = {self.least_l2(self.lower, self.upper, self.dimension)!r}"
        return (
            Step(symbol="n", value=float(self.dimension), formula="given", source="coordinates of one record"),
            Step(symbol="l2", value=self.sensitivity.stated_l2, formula=box, source="sensitivity.l2: the box's diameter"),
            Step(symbol="std", value=self.std, formula="given", source="std of each coordinate"),
            Step(symbol="mu", value=self.privacy_loss().mu, formula="l2 / std", source="proofs/local_gaussian.md"),
        )
