r"""The spectral mechanism: a low-pass filtered signal with white noise in the coordinates that the filter keeps."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Mechanism, Positive, Sensitivity, Step, size_of, with_normal_noise
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import GaussianLoss
from zetadp.mechanisms.numerics.spectrum import LONGEST_AXIS, MOST_AXES, LowPass
from zetadp.mechanisms.sampling.grid import contraction
from zetadp.mechanisms.sampling.source import Array, NoiseSource

AxisNumber = Annotated[int, Strict(), Field(ge=1, le=LONGEST_AXIS)]
AxisNumbers = Annotated[tuple[AxisNumber, ...], Field(min_length=1, max_length=MOST_AXES)]
"""One positive number for each of one or two axes."""


@final
class Spectral(Mechanism):
    r"""Projects a real signal onto its first frequencies and adds white noise there: (l2 / std)-GDP, exactly.

    With P the orthogonal projection onto the first K rfft frequencies of each axis (unitary transforms), the release is P(value + Z), Z
    real white noise N(0, std^2). In an orthonormal basis of P's range that is independent N(0, std^2) on each of the
    ``kept_dimensions`` = prod min(2 K - 1, N) real coordinates; in the spectrum it is Hermitian noise. Its variance at every position is
    std^2 kept_dimensions / prod N. The filter lowers the noise, not the privacy loss: K never enters mu.

    Attributes:
      shape: (N,) or (N1, N2): the trailing axes of a value; axes before them are independent signals of one release.
      kept: K on each axis, in [1, N].
      std: standard deviation of each real orthonormal coordinate, in units of the query.
      sensitivity: with l2, a bound over all signals of the value together; of the query, or of its projection (which is no longer).
    Raises:
      ValidationError: K above N, kept and shape of different length, sensitivity without l2, or with l2_real or l2_imag.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Feng et al. 2023, Algorithm 1 (its noise corrected; errata P1 to P5); Dong, Roth and Su 2022. Proof: proofs/spectral.md.

    >>> sensitivity = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
    >>> mechanism = Spectral(shape=(8,), kept=(3,), std=2.0, sensitivity=sensitivity)
    >>> mechanism.privacy_loss().gdp_mu, mechanism.low_pass.kept_dimensions
    (0.5, 5)
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A real signal's first frequencies, with independent Gaussian noise on each of their real orthonormal coordinates.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "Feng, Xu, Wen, Venkatasubramaniam and Ding 2023, Spectral-DP, Algorithm 1 (noise and count of coefficients corrected)",
            "Dong, Roth and Su 2022, arXiv:1905.02383, Theorem 1",
        ),
        errata=("P1", "P2", "P4", "P5", "P7", "P16", "P19"),
        proof="spectral.md",
    )

    kind: Literal["spectral"] = "spectral"
    shape: AxisNumbers
    kept: AxisNumbers
    std: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(shape=(8,), kept=(3,), std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.low_pass  # refuses K above N and axes that don't match
        _ = self.sensitivity.stated_l2
        self.sensitivity.refuse_parts()
        return self

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def low_pass(self) -> LowPass:
        """The filter: which frequencies are kept, and how many dimensions that is."""
        return LowPass(self.shape, self.kept)

    @property
    def noise_scale(self) -> float:
        return self.std

    @property
    def noise_multiplier(self) -> float:
        """std / l2."""
        return self.std / self.sensitivity.stated_l2

    def example_value(self) -> NDArray[Any]:
        """One period of a cosine over the whole signal, small enough for any shape that an example has."""
        ramp = np.arange(self.low_pass.dimensions) / self.low_pass.dimensions
        return 0.25 * np.cos(2.0 * np.pi * ramp).reshape(self.shape)

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        """P(P value + noise) in float64, of the shape of ``value``: (..., *shape). Raises as ``Mechanism.release`` does."""
        self.check_value(value, source)
        trailing = tuple(value.shape)[-len(self.shape) :]
        if trailing != self.shape:
            raise InvalidParameter("value", f"of trailing shape {list(self.shape)}", list(value.shape))
        # Projected first, so that a bound on the projected query is enough; projected last, so that the rounding of the first projection
        # outside the kept frequencies is removed again instead of being released without noise.
        projected = source.low_pass(value, self.kept)
        if not source.all_finite(projected):
            raise InvalidParameter("value", "small enough for its transform to be finite", "a value whose sums overflow")
        noisy = with_normal_noise(self.std, contraction(self.least_distance(), size_of(projected), "l2"), projected, source)
        return source.low_pass(noisy, self.kept)

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.sensitivity.stated_l2 / self.std)

    def scaled(self, factor: float) -> Self:
        return type(self)(shape=self.shape, kept=self.kept, std=self.std * factor, sensitivity=self.sensitivity)

    def derivation(self) -> tuple[Step, ...]:
        kept, source = float(self.low_pass.kept_dimensions), "mechanisms/proofs/spectral.md"
        return (
            Step(symbol="l2", value=self.sensitivity.stated_l2, formula="given", source="sensitivity.l2"),
            Step(symbol="std", value=self.std, formula="given", source="std of each real orthonormal coordinate that the filter keeps"),
            Step(symbol="kept_dimensions", value=kept, formula="product over axes of min(2 K - 1, N); not part of mu", source=source),
            Step(symbol="mu", value=self.privacy_loss().mu, formula="l2 / std", source="Dong, Roth and Su 2022, Theorem 1"),
        )
