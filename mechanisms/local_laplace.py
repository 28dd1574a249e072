r"""Laplace noise on each record separately: the sound local release of a vector in a box."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Positive, Sensitivity, Step
from zetadp.mechanisms.local import LocalRelease, quotient_up
from zetadp.mechanisms.loss import LaplaceLoss
from zetadp.mechanisms.sampling.source import Array, NoiseSource


@final
class LocalLaplace(LocalRelease):
    r"""Adds independent Laplace noise of this scale to every coordinate of every record of a box: (l1 / scale, 0)-DP for each record.

    Whatever is computed from the released records afterwards costs nothing more, over any number of epochs; whatever still uses the raw
    ones isn't covered. One coordinate has variance 2 scale^2, so at epsilon in n dimensions 2 (n (upper - lower) / epsilon)^2.

    Accountants compose it as n releases of one coordinate, which is exact (``coordinate``); ``privacy_loss`` is one release's with all of
    l1 in one coordinate: the same pure epsilon, and a valid bound beyond.

    Attributes:
      lower, upper: the bounds of every coordinate.
      dimension: coordinates of one record, n.
      scale: b, in units of the record.
      sensitivity: replace_one, with l1 at least n (upper - lower); epsilon is l1 / b, rounded up.
    Raises:
      ValidationError: as ``LocalRelease``.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Dwork, McSherry, Nissim and Smith 2006; errata S9, S14 and S16. Proof: proofs/local_laplace.md.

    >>> sensitivity = Sensitivity(l1=14.0, adjacency="replace_one", unit="record")
    >>> noise = LocalLaplace(lower=0.0, upper=1.0, dimension=14, scale=14.0, sensitivity=sensitivity)
    >>> noise.privacy_loss().pure_epsilon, noise.worst_variance
    (1.0, 392.0)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent Laplace noise on every coordinate of every record of a box: each record is released separately, once.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=("Dwork, McSherry, Nissim and Smith 2006, Proposition 1", "Kasiviswanathan et al. 2011, arXiv:0803.0924 (the local model)"),
        errata=("S8", "S9", "S14", "S16"),
        proof="local_laplace.md",
    )

    kind: Literal["local_laplace"] = "local_laplace"
    scale: Positive

    @classmethod
    def example(cls) -> Self:
        sensitivity = Sensitivity(l1=14.0, adjacency=Adjacency.REPLACE_ONE, unit="record")
        return cls(lower=0.0, upper=1.0, dimension=14, scale=14.0, sensitivity=sensitivity)

    @property
    def noise_scale(self) -> float:
        return self.scale

    @property
    def worst_variance(self) -> float:
        return 2.0 * self.scale**2

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        self.check_value(value, source)
        return self._with(source.standard_laplace(tuple(value.shape)), self.scale, value, source)

    def privacy_loss(self) -> LaplaceLoss:
        return LaplaceLoss(quotient_up(self.sensitivity.stated_l1, self.scale))

    def coordinate(self) -> Self:
        return type(self)(lower=self.lower, upper=self.upper, dimension=1, scale=self.scale, sensitivity=self._of_one_coordinate())

    def scaled(self, factor: float) -> Self:
        return type(self)(
            lower=self.lower, upper=self.upper, dimension=self.dimension, scale=self.scale * factor, sensitivity=self.sensitivity
        )

    def derivation(self) -> tuple[Step, ...]:
        box = f"given, at least n (upper - lower) = {self.least_l1(self.lower, self.upper, self.dimension)!r}"
        return (
            Step(symbol="n", value=float(self.dimension), formula="given", source="coordinates of one record"),
            Step(symbol="l1", value=self.sensitivity.stated_l1, formula=box, source="sensitivity.l1: the box's diameter"),
            Step(symbol="b", value=self.scale, formula="given", source="Laplace scale of each coordinate"),
            Step(symbol="variance", value=self.worst_variance, formula="2 b^2", source="of one released coordinate"),
            Step(symbol="epsilon_0", value=self.privacy_loss().epsilon, formula="l1 / b", source="proofs/local_laplace.md"),
        )
