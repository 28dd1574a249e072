r"""Noise that is correlated along the steps: the plan's strategy matrix, and what a spec asks for. Free of torch."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import NonNegative, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter

LARGEST_BAND = 64
"""The most coefficients: the run keeps as many vectors of the network's size, twice."""

COEFFICIENT_BITS = 10
"""A plan's coefficients are multiples of 2^-10, so that sums on a grid have exact products with them."""

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


@final
class IndependentNoise(Value):
    """Every step's noise is independent of all other steps'."""

    kind: Literal["independent"] = "independent"

    def planned(self) -> None:
        """No strategy."""
        return


@final
class BandedNoise(Value):
    r"""Banded noise by the square root of the matrix of sums, cut to ``bands``: c_j proportional to binomial(2j, j) / 4^j.

    Attributes:
      bands: b; the sampling must be cyclic_poisson with at least as many groups.
    Sources: Kalinin and Lampert 2024, arXiv:2405.13763 (banded square roots).
    """

    kind: Literal["banded"] = "banded"
    bands: Annotated[int, Strict(), Field(ge=2, le=LARGEST_BAND)]

    def planned(self) -> BandedStrategy:
        """What the plan carries."""
        return BandedStrategy(coefficients=_of_norm_one(square_root_coefficients(self.bands)))


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

    def planned(self) -> BandedStrategy:
        """What the plan carries."""
        return BandedStrategy(coefficients=_of_norm_one(self.coefficients))


AnyNoise = Annotated[IndependentNoise | BandedNoise | GivenBands, Field(discriminator="kind")]


def is_independent(noise: object) -> bool:
    """Whether it is the noise of most runs, which JSON leaves out."""
    return isinstance(noise, IndependentNoise)


def square_root_coefficients(bands: int) -> tuple[Positive, ...]:
    """The first ``bands`` coefficients of (1 - x)^(-1/2), whose square is the matrix of prefix sums: 1, 1/2, 3/8, 5/16, ..."""
    found = [1.0]
    for lag in range(1, bands):
        found.append(found[-1] * (2 * lag - 1) / (2 * lag))
    return tuple(found)


def _of_norm_one(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """The multiples of 2^-10 next to the coefficients in the largest unit, to 2^-30 of it, in which their squares add up to at most 1."""
    scale = 2**COEFFICIENT_BITS
    lower, upper = Fraction(0), Fraction(1) / Fraction(coefficients[0])
    for _ in range(30):
        middle = (lower + upper) / 2
        whole = [round(scale * middle * Fraction(one)) for one in coefficients]
        lower, upper = (middle, upper) if sum(one * one for one in whole) <= scale * scale else (lower, middle)
    return tuple(round(scale * lower * Fraction(one)) / scale for one in coefficients)


def _check_falling(coefficients: tuple[float, ...]) -> None:
    if not 0.0 < coefficients[0] <= 1e100 or any(later > before for before, later in pairwise(coefficients)):
        raise InvalidParameter("coefficients", "c_0 > 0 and none above the one before", list(coefficients))
