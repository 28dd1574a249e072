r"""A record's private loss coefficients, released once: the sound form of SPOF (stabilised perturbed loss function) in the local model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict

from zetadp.mechanisms.analysis.cross_entropy import LARGEST_POINT, Expansion
from zetadp.mechanisms.base import SMALLEST_SCALE, Adjacency, Assumption, Facts, Number, Positive, Sensitivity, Step
from zetadp.mechanisms.local import LocalRelease, quotient_up
from zetadp.mechanisms.loss import LaplaceLoss
from zetadp.mechanisms.sampling.source import Array, NoiseSource

ExpansionPoint = Annotated[Number, Field(ge=-LARGEST_POINT, le=LARGEST_POINT)]


@final
class SpofCoefficients(LocalRelease):
    r"""Releases the coefficients of z of a record's expanded cross-entropy with Laplace noise: (l1 / scale, 0)-DP, exactly.

    For features x in [0, 1]^n the loss of one feature, softplus(z + c) - x (z + c), expands to second order about z + c = a into

        constant + [s + v (c - a) - x] z + (v / 2) z^2,      s = sigmoid(a), v = s (1 - s),

    in which only the coefficient of z is private. Released is [s + v (c - a)] - (x + Laplace(scale)), one number a feature; what
    else the loss needs is public (``public_linear``, ``quadratic``), and ``recovered`` gives back the noisy record x + Laplace(scale).
    Everything computed from the release alone is as private as the release, over any number of epochs; what also uses x itself (an encoder
    fed with the raw record, for example) isn't. A user with k rows spends k times as much (an event ``grouped`` by k says so).

    Attributes:
      dimension: n, features in a record; the last axis of a released value.
      lower, upper: 0 and 1, the box that the cross-entropy is for; a record outside is refused, never silently clipped.
      expansion_point: a, public; |a| <= 1e6.
      stabilisation: c, a public constant added to z; |c| <= 1e6. No field lets it depend on data.
      scale: b of the noise, in units of a feature (whose range is 1).
      sensitivity: replace_one, with l1 >= n: opposite corners of the box differ by 1 in each of n released features, so that a smaller
        bound would promise what two records refute.
    Raises:
      ValidationError: as ``LocalRelease``.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md);
      features scaled to [0, 1] by public numbers.
    Sources: Habib, Chou and Kim, SPOF, equations (8) to (12) made right (errata S1 to S3), Proposition 2. Proof:
      proofs/spof_coefficients.md, proofs/cross_entropy.md.

    >>> sensitivity = Sensitivity(l1=14.0, adjacency="replace_one", unit="record")
    >>> noise = SpofCoefficients(dimension=14, expansion_point=0.0, stabilisation=2.5, scale=14.0, sensitivity=sensitivity)
    >>> noise.privacy_loss().pure_epsilon, noise.quadratic
    (1.0, 0.125)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="The private coefficients of a record's expanded cross-entropy, released once with Laplace noise (local model).",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "Habib, Chou and Kim, Stabilization of Perturbed Loss Function, equations (8) to (12) and Proposition 2 (corrected)",
            "Dwork, McSherry, Nissim and Smith 2006, Proposition 1",
        ),
        errata=("S3", "S7", "S8", "S9", "S11", "S13", "S14", "S16", "S26"),
        proof="spof_coefficients.md",
    )

    kind: Literal["spof_coefficients"] = "spof_coefficients"
    lower: Annotated[float, Strict(), Field(ge=0.0, le=0.0)] = 0.0
    upper: Annotated[float, Strict(), Field(ge=1.0, le=1.0)] = 1.0
    expansion_point: ExpansionPoint
    stabilisation: ExpansionPoint
    scale: Positive

    @classmethod
    def example(cls) -> Self:
        return cls.for_epsilon(14, 0.0, 2.5, 1.0, "record")

    @classmethod
    def for_epsilon(cls, dimension: int, expansion_point: float, stabilisation: float, epsilon: float, unit: str) -> Self:
        """The least noise for this pure epsilon of a record, rounded toward more noise; epsilon in [1e-40, 1e40]."""
        sensitivity = Sensitivity(l1=float(dimension), adjacency=Adjacency.REPLACE_ONE, unit=unit)
        scale = max(quotient_up(dimension, epsilon), SMALLEST_SCALE)
        return cls(dimension=dimension, expansion_point=expansion_point, stabilisation=stabilisation, scale=scale, sensitivity=sensitivity)

    @property
    def noise_scale(self) -> float:
        return self.scale

    @property
    def worst_variance(self) -> float:
        return 2.0 * self.scale**2

    @property
    def _expansion(self) -> Expansion:
        return Expansion(self.expansion_point, self.stabilisation)

    @property
    def public_linear(self) -> float:
        """s + v (c - a), the public part of every coefficient of z."""
        return self._expansion.public_linear

    @property
    def quadratic(self) -> float:
        """v / 2, the coefficient of z^2: the same for every record, and public."""
        return self._expansion.quadratic

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        """The noisy coefficients of z for records in [0, 1]^n, shape (..., n): an array of the same shape."""
        self.check_value(value, source)
        # A function of x + noise alone, so that rounding of the public part is post-processing.
        noisy = self._with(source.standard_laplace(tuple(value.shape)), self.scale, value, source)
        return -noisy + self.public_linear

    def recovered(self, released: Array) -> Array:
        """The noisy record x + Laplace(scale) behind a release, for use wherever a trainer would use x."""
        return -released + self.public_linear

    def polynomial(self, released: Array, z: Array) -> Array:
        """The perturbed loss of each feature at z without its constant, released z + (v / 2) z^2. The constant has no gradient."""
        return (released + self.quadratic * z) * z

    def privacy_loss(self) -> LaplaceLoss:
        return LaplaceLoss(quotient_up(self.sensitivity.stated_l1, self.scale))

    def coordinate(self) -> Self:
        return type(self)(
            dimension=1,
            expansion_point=self.expansion_point,
            stabilisation=self.stabilisation,
            scale=self.scale,
            sensitivity=self._of_one_coordinate(),
        )

    def scaled(self, factor: float) -> Self:
        return type(self)(
            dimension=self.dimension,
            expansion_point=self.expansion_point,
            stabilisation=self.stabilisation,
            scale=self.scale * factor,
            sensitivity=self.sensitivity,
        )

    def derivation(self) -> tuple[Step, ...]:
        n = float(self.dimension)
        proof = "proofs/spof_coefficients.md"
        return (
            Step(symbol="n", value=n, formula="given", source="features of a record in [0, 1]^n"),
            Step(
                symbol="l1(record)", value=n, formula="n |d(coefficient of z)/dx| = n, for every a and c", source="proofs/cross_entropy.md"
            ),
            Step(symbol="l1", value=self.sensitivity.stated_l1, formula="given, at least n", source="sensitivity.l1"),
            Step(symbol="b", value=self.scale, formula="given", source="Laplace scale of each coefficient of z"),
            Step(symbol="epsilon_0", value=self.privacy_loss().epsilon, formula="l1 / b", source=proof),
        )
