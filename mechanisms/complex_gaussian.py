r"""The complex Gaussian mechanism, circular or not, with its tight GDP parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Self, final

from pydantic import model_validator

from zetadp.mechanisms.base import AdditiveNoise, Adjacency, Assumption, Correlation, Facts, Positive, Sensitivity, Step, size_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import GaussianLoss
from zetadp.mechanisms.sampling.grid import LARGEST, STEP, contraction, released_by
from zetadp.mechanisms.sampling.source import Array, NoiseSource


@final
class ComplexGaussian(AdditiveNoise):
    r"""Adds independent complex Gaussian noise n to every coordinate of a complex vector, circular or not.

    sd Re n = std_real, sd Im n = std_imag (or both ``std``) and corr(Re n, Im n) = correlation. The release is mu-GDP, exactly, with
    mu the largest Mahalanobis length of a move whose real part has length r <= l2_real, imaginary part s <= l2_imag and
    r^2 + s^2 <= l2^2 (missing bounds are l2):

        mu^2 = max [(r / std_real)^2 + (s / std_imag)^2 + 2 |correlation| (r / std_real)(s / std_imag)] / (1 - correlation^2).

    Attributes:
      std: standard deviation of each real component, in units of the query. Not sqrt(E|n|^2), which is ``total_std``.
      std_real, std_imag: the two components' deviations instead, if they differ; both or neither.
      correlation: of Re n and Im n; in (-1, 1).
      sensitivity: with l2, optionally l2_real and l2_imag.
    Raises:
      ValidationError: not exactly one of std and (std_real, std_imag), |correlation| >= 1, or sensitivity without l2.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Riess et al. 2024, Theorem 1 (a looser bound; errata C3); errata C6 (general covariance); Dong, Roth and Su 2022 (GDP).
      Proof: proofs/complex_gaussian.md.

    >>> sensitivity = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
    >>> round(ComplexGaussian(std=1.0, correlation=0.5, sensitivity=sensitivity).privacy_loss().gdp_mu, 4)
    1.4142
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent complex Gaussian noise, circular or not, on every coordinate of a complex vector.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "Riess, Ziller, Kolek, Rueckert, Schnabel and Kaissis 2024, Definition 1 and Theorem 1 (bound made tight)",
            "Dong, Roth and Su 2022, arXiv:1905.02383, Theorem 1",
        ),
        errata=("Z1", "Z2", "Z7", "C1", "C3", "C6"),
        proof="complex_gaussian.md",
    )

    kind: Literal["complex_gaussian"] = "complex_gaussian"
    std: Positive | None = None
    std_real: Positive | None = None
    std_imag: Positive | None = None
    correlation: Correlation = 0.0

    @classmethod
    def example(cls) -> Self:
        return cls(
            std=1.0,
            correlation=0.3,
            sensitivity=Sensitivity(l2=1.0, l2_real=0.8, l2_imag=0.7, adjacency=Adjacency.ADD_REMOVE, unit="record"),
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts = (self.std_real is not None, self.std_imag is not None)
        if self.std is not None and any(parts):
            raise InvalidParameter("std", "given alone, or std_real and std_imag without it", "both")
        if self.std is None and not all(parts):
            raise InvalidParameter("std", "given, or both std_real and std_imag", "neither" if not any(parts) else "only one of the two")
        _ = self.sensitivity.stated_l2
        return self

    @property
    def is_complex(self) -> bool:
        return True

    @property
    def stds(self) -> tuple[float, float]:
        """Standard deviations of the real and of the imaginary component."""
        if self.std is not None:
            return self.std, self.std
        assert self.std_real is not None  # checked at construction
        assert self.std_imag is not None
        return self.std_real, self.std_imag

    @property
    def total_std(self) -> float:
        """sqrt(E|n|^2) of one complex coordinate: sqrt(2) std if both components agree."""
        return math.hypot(*self.stds)

    @property
    def noise_scale(self) -> float:
        return max(self.stds)

    def noise(self, shape: tuple[int, ...], source: NoiseSource[Array]) -> Array:
        std_real, std_imag = self.stds
        # Real pairs, never a complex draw: libraries give those half the variance per component.
        real, other = source.standard_normal(shape), source.standard_normal(shape)
        return real * std_real + (real * self.correlation + other * self._independent) * (1j * std_imag)

    @property
    def _independent(self) -> float:
        """Standard deviation of the part of Im n that Re n doesn't determine, in units of Im n's deviation."""
        return math.sqrt((1.0 - self.correlation) * (1.0 + self.correlation))

    def contracted_to(self, numbers: int) -> float:
        """The factor that a value of so many real numbers is multiplied by before rounding (``grid``): its inverse widens the noise."""
        # Correlated noise has independent parts in other coordinates, in which the arithmetic before rounding has a larger error.
        each = None if self.correlation == 0.0 else STEP + 2.0**-48 * LARGEST / self._independent
        return contraction(self.least_distance(), numbers, "l2", each)

    @property
    def is_circular(self) -> bool:
        """Whether both components have the same deviation, without correlation."""
        return self.correlation == 0.0 and self.stds[0] == self.stds[1]

    def release_part(self, value: Array, source: NoiseSource[Array], numbers: int) -> Array:
        """``release`` of circular noise for a part, of more than ``grid.FEW`` real numbers, of a vector of so many complex ones."""
        self.check_kind(value, source)
        assert self.is_circular  # other noise draws all real parts before all imaginary ones
        return source.complex(source.released_normal(source.pairs(value), *self.on_grid(2 * numbers)))

    def on_grid(self, numbers: int) -> tuple[float, float, float]:
        """Factor, largest and scale of ``NoiseSource.released_normal`` for circular noise on so many real numbers."""
        return released_by(self.noise_scale, self.contracted_to(numbers), numbers)

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        if self.is_circular:
            return self.release_part(value, source, size_of(value))
        self.check_value(value, source)
        (std_real, std_imag), rho, rest = self.stds, self.correlation, self._independent
        shape, numbers = tuple(value.shape), 2 * size_of(value)
        kept = self.contracted_to(numbers)
        first, second = source.standard_normal(shape), source.standard_normal(shape)
        if rho == 0.0:
            real = source.released(value.real, first, *released_by(std_real, kept, numbers))
            return real + 1j * source.released(value.imag, second, *released_by(std_imag, kept, numbers))
        # In the coordinates in which the noise is independent. A pair that is too long is shortened: clamping each coordinate could move
        # two values apart.
        real, imag = source.wide(value.real) * (kept / std_real), source.wide(value.imag) * (kept / std_imag)
        real, other = source.shortened(real, (imag - real * rho) * (1.0 / rest), LARGEST)
        real = source.released(real, first, 1.0, math.inf, 1.0)
        other = source.released(other, second, 1.0, math.inf, 1.0)
        return real * (std_real / kept) + (real * rho + other * rest) * (1j * (std_imag / kept))

    def worst_move(self) -> tuple[float, float]:
        """(r, s): lengths of the real and imaginary part of the move that attains mu. Errata C6."""
        big, real, imag = _bounds(self.sensitivity)
        if math.hypot(real / big, imag / big) <= 1.0:
            return real, imag
        # The maximum is on the arc r = l2 cos t, s = l2 sin t, between the two bounds; there the form is a sinusoid in 2t that rises to
        # its peak and falls, so the peak clamped to the arc is the maximum.
        first, last = math.acos(real / big), math.asin(imag / big)
        std_real, std_imag = self.stds
        # Divided by the larger deviation, so that squares stay within float64.
        v, w = std_real / self.noise_scale, std_imag / self.noise_scale
        peak = 0.5 * math.atan2(2.0 * abs(self.correlation) * v * w, (w - v) * (w + v))
        # At an end of the arc the bound itself is used: the cosine of an arc cosine near pi/2 would have lost its digits.
        if peak <= first:
            return real, math.sqrt((big - real) * (big + real))
        if peak >= last:
            return math.sqrt((big - imag) * (big + imag)), imag
        return big * math.cos(peak), big * math.sin(peak)

    def privacy_loss(self) -> GaussianLoss:
        r, s = self.worst_move()
        std_real, std_imag = self.stds
        x, y, rho = r / std_real, s / std_imag, abs(self.correlation)
        # x^2 + y^2 + 2 rho x y = (x - y)^2 + 2 (1 + rho) x y: no overflow, and exact where x = y.
        return GaussianLoss(
            math.hypot(x - y, math.sqrt(2.0 * (1.0 + rho)) * math.sqrt(x) * math.sqrt(y)) / math.sqrt((1.0 - rho) * (1.0 + rho))
        )

    def scaled(self, factor: float) -> Self:
        if self.std is not None:
            return type(self)(std=self.std * factor, correlation=self.correlation, sensitivity=self.sensitivity)
        std_real, std_imag = self.stds
        return type(self)(
            std_real=std_real * factor, std_imag=std_imag * factor, correlation=self.correlation, sensitivity=self.sensitivity
        )

    def derivation(self) -> tuple[Step, ...]:
        big, real, imag = _bounds(self.sensitivity)
        std_real, std_imag = self.stds
        r, s = self.worst_move()
        corner = math.hypot(real / big, imag / big) <= 1.0
        where = "corner r = a, s = b (a^2 + b^2 <= D^2)" if corner else "arc r = D cos t, s = D sin t, t = atan2(2|c|, v_i - v_r)/2 clamped"
        return (
            Step(symbol="D", value=big, formula="given", source="sensitivity.l2"),
            Step(symbol="a", value=real, formula="min(l2_real, D)", source="sensitivity.l2_real (D where absent)"),
            Step(symbol="b", value=imag, formula="min(l2_imag, D)", source="sensitivity.l2_imag (D where absent)"),
            Step(symbol="s_r", value=std_real, formula="given", source="std of the real component; v_r = s_r^2"),
            Step(symbol="s_i", value=std_imag, formula="given", source="std of the imaginary component; v_i = s_i^2"),
            Step(symbol="rho", value=self.correlation, formula="given", source="correlation; c = rho s_r s_i"),
            Step(symbol="r", value=r, formula=where, source="errata C6"),
            Step(symbol="s", value=s, formula=where, source="errata C6"),
            Step(
                symbol="mu",
                value=self.privacy_loss().mu,
                formula="sqrt(((r/s_r)^2 + (s/s_i)^2 + 2|rho| (r/s_r)(s/s_i)) / (1 - rho^2))",
                source="errata C3, C6; Dong, Roth and Su 2022",
            ),
        )


def whitened_length(moves: Sequence[complex], std_real: float, std_imag: float, correlation: float) -> float:
    r"""|S^-1/2 d| of a move d, S the covariance of (Re n, Im n): its two releases are exactly this mu apart.

    >>> whitened_length([3.0 + 4.0j], 1.0, 2.0, 0.0) == 13.0**0.5
    True
    """
    # With x = Re d / std_real, y = Im d / std_imag: (x, y) R^-1 (x, y)^T = y^2 + (x - rho y)^2 / (1 - rho^2).
    independent = math.sqrt((1.0 - correlation) * (1.0 + correlation))
    parts = [(move.real / std_real, move.imag / std_imag) for move in moves]
    return math.hypot(*(y for _, y in parts), *((x - correlation * y) / independent for x, y in parts))


def _bounds(sensitivity: Sensitivity) -> tuple[float, float, float]:
    """(l2, bound on the real part, bound on the imaginary part)."""
    big = sensitivity.l2
    assert big is not None  # checked at construction
    real = big if sensitivity.l2_real is None else sensitivity.l2_real
    imag = big if sensitivity.l2_imag is None else sensitivity.l2_imag
    return big, real, imag
