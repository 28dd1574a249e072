r"""Noise that is correlated along the steps: the plan's strategy matrix, and what a spec asks for. Free of torch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.analysis.banded import inverse_square_root_coefficients, multiples_of_norm_one, square_root_coefficients
from zetadp.mechanisms.base import Adjacency, NonNegative, OpenProbability, Value, is_absent
from zetadp.mechanisms.declared.correlated import LARGEST_STEPS, Buffer, CorrelatedNoise, inverse_column, never_rises
from zetadp.mechanisms.errors import InvalidParameter

LARGEST_BAND = 64
"""The most coefficients: the run keeps as many vectors of the network's size, twice."""

COEFFICIENT_BITS = 10
"""A plan's coefficients are multiples of 2^-10, so that sums on a grid have exact products with them."""

LONGEST = 2048
"""Steps over which the noise of gradients is followed."""

WEIGHT_BITS = 20
"""The weight of a buffered or banded inverse strategy is a multiple of 2^-20."""

Buffers = Annotated[tuple[Buffer, ...], Field(min_length=1, max_length=4)]

Weight = Annotated[float, Strict(), Field(ge=0.0, le=1.0, allow_inf_nan=False)]
InverseCoefficients = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=LARGEST_BAND)]

Coefficients = Annotated[tuple[NonNegative, ...], Field(min_length=2, max_length=LARGEST_BAND)]


@final
class BandedStrategy(Value):
    r"""Step t releases c_0 x_t + c_1 x_{t-1} + ... + c_{b-1} x_{t-b+1} + z_t, x the steps' clipped sums, z_t independent noise.

    The gradient of step t follows from what was released: y_t = (E_t - c_1 y_{t-1} - ... - c_{b-1} y_{t-b+1}) / c_0, whose noise is
    correlated along the steps so that sums of gradients have less of it. A unit that contributes g to x_t moves b releases by c_0 g, c_1 g,
    ..., together by at most |g|, as the squares of the coefficients add up to at most 1. Proof: mechanisms/proofs/banded_sums.md.

    Attributes:
      coefficients: c_0, ..., c_{b-1}, multiples of 2^-10; c_0 > 0, none negative, none above the one before, which keeps the noise of y
        bounded.
    Raises:
      ValidationError: squares that add up to more than 1, in exact arithmetic, other numbers, or coefficients that rise.
    Sources: Choquette-Choo et al. 2023, arXiv:2306.08153 (banded matrices and cyclic sampling); Kalinin and Lampert 2024, arXiv:2405.13763.
    """

    kind: Literal["banded_toeplitz"] = "banded_toeplitz"
    coefficients: Coefficients

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_falling(self.coefficients)
        if not all((one * 2.0**COEFFICIENT_BITS).is_integer() for one in self.coefficients):
            raise InvalidParameter("strategy.coefficients", "multiples of 2^-10", list(self.coefficients))
        if sum(Fraction(one) ** 2 for one in self.coefficients) > 1:
            raise InvalidParameter("strategy.coefficients", "such that their squares add up to at most 1", list(self.coefficients))
        return self

    @property
    def bands(self) -> int:
        return len(self.coefficients)

    @property
    def least_groups(self) -> int:
        """Otherwise a unit could take part again while its last contribution is still in the band."""
        return self.bands

    @property
    def is_one_release(self) -> bool:
        """Whether all steps together are charged as one release, not each turn as one of its sampling's."""
        return False

    def check(self, steps: int, groups: int) -> None:
        """Serves any number of steps and groups from ``least_groups`` on."""
        del steps, groups

    def gradient_noise(self, steps: int) -> float:
        """Standard deviation of the noise of the last of so many steps' gradients, in units of the released noise."""
        return _gradient_noise(np.array(self.coefficients), steps)


class WholeRunStrategy(Value, ABC):
    r"""Step t releases c_0 (C x)_t + z_t, and rows of different turns overlap: all steps together are one release of the mechanism.

    Units may be in every turn of their groups, and no benefit of sampling is claimed: c_0 makes the strategy's sensitivity at most 1 for
    units whose turns are as far apart as there are groups. C is 1 on its diagonal; none of its columns is negative, and none rises.

    Attributes:
      weight: c_0, a multiple of 2^-20 in (0, 1].
    """

    weight: Annotated[float, Strict(), Field(gt=0.0, le=1.0, allow_inf_nan=False)]

    @property
    @abstractmethod
    def _matrix(self) -> tuple[tuple[Buffer, ...], tuple[float, ...]]:
        """C, as a declared mechanism has it: its buffers, or the coefficients of its inverse."""

    @abstractmethod
    def gradient_noise(self, steps: int) -> float:
        """As for bands."""

    @property
    def least_groups(self) -> int:
        return 1

    @property
    def is_one_release(self) -> bool:
        """Turns' releases overlap: no benefit of sampling is proved."""
        return True

    def sensitivity(self, steps: int, groups: int) -> float:
        """The strategy's, without c_0, for turns of every ``groups``-th of so many steps; rounded up. Raises where a column rises."""
        if steps > LARGEST_STEPS:
            raise InvalidParameter("steps", f"<= {LARGEST_STEPS} with noise that is charged as one release of all steps", steps)
        buffers, inverse = self._matrix
        declared = CorrelatedNoise(
            std=1.0,
            l2=1.0,
            steps=steps,
            coefficients=(1.0,),
            buffers=buffers,
            inverse_coefficients=inverse,
            min_separation=groups,
            max_participations=-(-steps // groups),
            adjacency=Adjacency.ZERO_OUT,
            unit="record",
        )
        return declared.matrix_sensitivity

    def check(self, steps: int, groups: int) -> None:
        """Raises InvalidParameter if the weight is too large, or columns rise."""
        if not (self.weight * 2.0**WEIGHT_BITS).is_integer():
            raise InvalidParameter("strategy.weight", "a multiple of 2^-20", self.weight)
        if Fraction(self.weight) * Fraction(self.sensitivity(steps, groups)) > 1:
            expected = f"at most 1 over the strategy's sensitivity for {steps} steps and {groups} groups"
            raise InvalidParameter("strategy.weight", expected, self.weight)

    @classmethod
    def largest_weight(cls, sensitivity: float) -> float:
        """Rounded down by far more than machines' sums may differ by."""
        return math.floor(2**WEIGHT_BITS / sensitivity) / 2**WEIGHT_BITS


@final
class BufferedStrategy(WholeRunStrategy):
    r"""Step t releases c_0 (x_t + sum_i w_i s_i(t)) + z_t, with buffers s_i(t) = d_i s_i(t - 1) + x_{t - 1}: a BLT.

    Proof: mechanisms/proofs/banded_sums.md, 5.

    Attributes:
      buffers: w_i and d_i, at most 4; weights add up to at most 1, so that the matrix's columns fall.
      (others): as in ``WholeRunStrategy``.
    Sources: Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024, arXiv:2404.16706 (BLTs).
    """

    kind: Literal["buffered_toeplitz"] = "buffered_toeplitz"
    buffers: Buffers

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_weights(self.buffers, "strategy.buffers")
        return self

    @property
    def _matrix(self) -> tuple[tuple[Buffer, ...], tuple[float, ...]]:
        return self.buffers, ()

    def gradient_noise(self, steps: int) -> float:
        lags = np.arange(min(steps, LONGEST) - 1, dtype=np.float64)
        later = sum((one.weight * np.power(one.decay, lags) for one in self.buffers), np.zeros(len(lags)))
        return _gradient_noise(self.weight * np.concatenate(([1.0], later)), steps)


@final
class BandedInverseStrategy(WholeRunStrategy):
    r"""Step t releases c_0 u_t + z_t, with u_t = x_t + w_1 u_{t - 1} + ... + w_b u_{t - b}: C^-1 is a band (BandInvMF).

    The gradient that follows is x_t with the noise (z_t - w_1 z_{t - 1} - ... - w_b z_{t - b}) / c_0. Proof:
    mechanisms/proofs/banded_sums.md, 6. One coefficient lambda is DP-lambda-CGD.

    Attributes:
      coefficients: w_1, ..., w_b, at most 64, in [0, 1]; they add up to at most 1.
      (others): as in ``WholeRunStrategy``.
    Raises:
      ValidationError: coefficients that add up to more than 1, in exact arithmetic.
    Sources: Kalinin, McKenna, Upadhyay and Lampert 2025, arXiv:2505.12128.
    """

    kind: Literal["banded_inverse_toeplitz"] = "banded_inverse_toeplitz"
    coefficients: InverseCoefficients

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_sum(self.coefficients, "strategy.coefficients")
        return self

    @property
    def bands(self) -> int:
        """Earlier steps whose noise is taken back: b."""
        return len(self.coefficients)

    @property
    def _matrix(self) -> tuple[tuple[Buffer, ...], tuple[float, ...]]:
        return (), self.coefficients

    def sensitivity(self, steps: int, groups: int) -> float:
        _check_column(self.coefficients, min(steps, LARGEST_STEPS), "strategy.coefficients")
        return super().sensitivity(steps, groups)

    def gradient_noise(self, steps: int) -> float:
        return math.hypot(1.0, *self.coefficients[: steps - 1]) / self.weight

    def column_sum(self, steps: int) -> float:
        """Of C's first column, rounded up: how much errors of one size in every step may add up to."""
        return float(np.sum(inverse_column(self.coefficients, steps))) * (1.0 + 1e-6)


Strategy = BandedStrategy | BufferedStrategy | BandedInverseStrategy
AnyStrategy = Annotated[Strategy, Field(discriminator="kind")]


@final
class IndependentNoise(Value):
    """Every step's noise is independent of all other steps'."""

    kind: Literal["independent"] = "independent"

    def planned(self, steps: int, groups: int) -> None:
        """No strategy."""
        del steps, groups


@final
class BandedNoise(Value):
    r"""Banded noise by the square root of the matrix of sums, cut to ``bands``: c_j proportional to binomial(2j, j) / 4^j.

    Attributes:
      bands: b; the sampling must be cyclic_poisson or cyclic_allocation with at least as many groups.
    Sources: Kalinin and Lampert 2024, arXiv:2405.13763 (banded square roots).
    """

    kind: Literal["banded"] = "banded"
    bands: Annotated[int, Strict(), Field(ge=2, le=LARGEST_BAND)]

    def planned(self, steps: int, groups: int) -> BandedStrategy:
        """What the plan carries."""
        del steps, groups
        return BandedStrategy(coefficients=multiples_of_norm_one(square_root_coefficients(self.bands), COEFFICIENT_BITS))


@final
class GivenBands(Value):
    r"""Banded noise with coefficients of one's own, such as those that ``banded.optimal_coefficients`` finds.

    Attributes:
      coefficients: c_0, c_1, ... down the first column of the strategy matrix, in any unit: they are divided by their l2 norm, and rounded.
    """

    kind: Literal["given_bands"] = "given_bands"
    coefficients: Coefficients

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_falling(self.coefficients)
        return self

    def planned(self, steps: int, groups: int) -> BandedStrategy:
        """What the plan carries."""
        del steps, groups
        return BandedStrategy(coefficients=multiples_of_norm_one(self.coefficients, COEFFICIENT_BITS))


@final
class BufferedNoise(Value):
    r"""A buffered Toeplitz strategy (BLT): see ``BufferedStrategy``.

    Attributes:
      buffers: 1 to 4.
    """

    kind: Literal["buffered"] = "buffered"
    buffers: Buffers

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_weights(self.buffers, "noise.buffers")
        return self

    def planned(self, steps: int, groups: int) -> BufferedStrategy:
        """What the plan of so many steps and groups carries."""
        return _buffered(self.buffers, steps, groups)


@final
class LambdaNoise(Value):
    r"""DP-lambda-CGD: each step's gradient has the noise z_t - decay z_{t - 1}. Takes two more vectors of the network's size.

    Attributes:
      decay: lambda, in (0, 1).
    """

    kind: Literal["lambda_cgd"] = "lambda_cgd"
    decay: OpenProbability

    def planned(self, steps: int, groups: int) -> BandedInverseStrategy:
        """What the plan of so many steps and groups carries: an inverse of one band."""
        return _banded_inverse((self.decay,), steps, groups)


@final
class BandedInverseNoise(Value):
    r"""A strategy whose inverse is banded (BandInvMF): see ``BandedInverseStrategy``. Takes 2 b more vectors of the network's size.

    Attributes:
      bands: b, how many earlier steps' noise is taken back, 1 to 64: with the coefficients of (1 - x)^(1/2), the inverse of the square root
        of the matrix of sums, 1/2, 1/8, 1/16, ...; None with coefficients of one's own.
      coefficients: w_1, ..., w_b; None for those.
    Raises:
      ValidationError: both, or neither; coefficients that add up to more than 1.
    Sources: Kalinin, McKenna, Upadhyay and Lampert 2025, arXiv:2505.12128.
    """

    kind: Literal["banded_inverse"] = "banded_inverse"
    bands: Annotated[int, Strict(), Field(ge=1, le=LARGEST_BAND)] | None = Field(default=None, exclude_if=is_absent)
    coefficients: InverseCoefficients | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.bands is None) == (self.coefficients is None):
            raise InvalidParameter("noise", "with exactly one of bands and coefficients", [self.bands, self.coefficients])
        if self.coefficients is not None:
            _check_sum(self.coefficients, "noise.coefficients")
        return self

    def planned(self, steps: int, groups: int) -> BandedInverseStrategy:
        """What the plan of so many steps and groups carries."""
        coefficients = self.coefficients or inverse_square_root_coefficients(self.bands or LARGEST_BAND)
        _check_column(coefficients, min(steps, LARGEST_STEPS), "noise.coefficients")
        return _banded_inverse(coefficients, steps, groups)


AnyNoise = Annotated[
    IndependentNoise | BandedNoise | GivenBands | BufferedNoise | LambdaNoise | BandedInverseNoise, Field(discriminator="kind")
]


def is_independent(noise: object) -> bool:
    """Whether it is the noise of most runs, which JSON leaves out."""
    return isinstance(noise, IndependentNoise)


def _gradient_noise(column: NDArray[np.float64], steps: int) -> float:
    """The l2 norm of the first column of C^-1: of its first ``LONGEST`` steps, beyond which hardly anything is left of it."""
    from scipy.signal import lfilter

    pulse = np.zeros(min(steps, LONGEST))
    pulse[0] = 1.0
    return float(np.linalg.norm(lfilter([1.0], column, pulse)))


def _buffered(buffers: tuple[Buffer, ...], steps: int, groups: int) -> BufferedStrategy:
    whole = BufferedStrategy(weight=1.0, buffers=buffers).sensitivity(steps, groups)
    return BufferedStrategy(weight=WholeRunStrategy.largest_weight(whole), buffers=buffers)


def _banded_inverse(coefficients: tuple[float, ...], steps: int, groups: int) -> BandedInverseStrategy:
    whole = BandedInverseStrategy(weight=1.0, coefficients=coefficients).sensitivity(steps, groups)
    return BandedInverseStrategy(weight=WholeRunStrategy.largest_weight(whole), coefficients=coefficients)


def _check_falling(coefficients: tuple[float, ...]) -> None:
    if not 0.0 < coefficients[0] <= 1e100 or any(later > before for before, later in pairwise(coefficients)):
        raise InvalidParameter("coefficients", "c_0 > 0 and none above the one before", list(coefficients))


def _check_sum(coefficients: tuple[float, ...], name: str) -> None:
    if sum(map(Fraction, coefficients)) > 1:
        raise InvalidParameter(name, "numbers that add up to at most 1", list(coefficients))


def _check_column(coefficients: tuple[float, ...], steps: int, name: str) -> None:
    if not never_rises(inverse_column(coefficients, steps)):
        raise InvalidParameter(name, f"such that no column of the strategy matrix rises within {steps} steps", list(coefficients))


def _check_weights(buffers: tuple[Buffer, ...], name: str) -> None:
    # Added as the declared mechanism adds them: that c_1 is at most c_0 is all that its columns need to fall.
    if sum(one.weight for one in buffers) > 1.0:
        raise InvalidParameter(name, "of weights that add up to at most 1", [one.weight for one in buffers])
