r"""Mechanisms that release every record separately, so that each record's owner could run them: the local model."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Adjacency, Mechanism, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.rounding import rounded_up
from zetadp.mechanisms.sampling.grid import STEP, contraction
from zetadp.mechanisms.sampling.source import Array, NoiseSource

Edge = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=-LARGEST_SCALE, le=LARGEST_SCALE)]
Dimension = Annotated[int, Strict(), Field(ge=1, le=10**6)]


class LocalRelease(Mechanism):
    r"""Releases each record of a box [lower, upper]^dimension separately, with its own randomness.

    The last axis of a value is one record's coordinates; every index before it is a record. The neighbours are two values of one record
    (replace_one): with a record more or less, the number of outputs would distinguish them. A unit of k records is k releases, and a
    sample's records are released or not: nothing else hides them (accountants/proofs/pairs.md, row 7).

    Attributes:
      lower, upper: the bounds of every coordinate: a public choice, never derived from the data.
      dimension: coordinates of one record, n.
      sensitivity: replace_one; l1 at least n (upper - lower) and l2 at least sqrt(n) (upper - lower), the diameters of the box, exactly
        (no rounding below them passes). Given is the one that the noise needs (``NORM``); the other may be.
    Raises:
      ValidationError: an empty box, another adjacency, or a sensitivity that the box exceeds or that says something else.
    """

    NORM: ClassVar[Literal["l1", "l2"]] = "l1"

    lower: Edge
    upper: Edge
    dimension: Dimension

    @staticmethod
    def least_l1(lower: float, upper: float, dimension: int) -> float:
        """The smallest float that is at least dimension (upper - lower).

        >>> LocalRelease.least_l1(0.0, 1.0, 14)
        14.0
        """
        return rounded_up(dimension * (Fraction(upper) - Fraction(lower)))

    @staticmethod
    def least_l2(lower: float, upper: float, dimension: int) -> float:
        """The smallest float that is at least sqrt(dimension) (upper - lower).

        >>> LocalRelease.least_l2(0.0, 1.0, 16)
        4.0
        """
        square = dimension * (Fraction(upper) - Fraction(lower)) ** 2
        # Starts a few units below the root's float and goes up to the first one that is large enough.
        found = math.sqrt(dimension) * (upper - lower) * (1.0 - 1e-15)
        while Fraction(found) ** 2 < square:
            found = math.nextafter(found, math.inf)
        return found

    def coordinate(self) -> Self | None:
        """The release of one coordinate alone, if the whole is ``dimension`` of these with independent noise; otherwise None.

        A record's worst neighbour then moves every coordinate across the whole box, and the releases of single coordinates compose to
        exactly the whole (accountants/proofs/pairs.md, row 7).
        """
        return None

    def _of_one_coordinate(self) -> Sensitivity:
        """The share of one coordinate in the stated l1, rounded up."""
        given = self.sensitivity
        return Sensitivity(l1=rounded_up(Fraction(given.stated_l1) / self.dimension), adjacency=given.adjacency, unit=given.unit)

    @property
    def width(self) -> float:
        """upper - lower."""
        return self.upper - self.lower

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The largest variance of one released coordinate, over all records of the box; in squared units of the record."""

    @property
    def is_complex(self) -> bool:
        return False

    def contracted_to(self, _numbers: int) -> float:
        """The factor that a record's coordinates are multiplied by before they are rounded (``grid``): its inverse widens the noise."""
        return contraction(self.width / self.noise_scale, 1, "l2", STEP)

    def _with(self, noise: Array, scale: float, value: Array, source: NoiseSource[Array]) -> Array:
        """A checked value plus ``scale`` times this standard noise, on the noise's grid, exactly (``grid``)."""
        # Relative to the box's centre, so that the error of the product before rounding is a share of the box. This holds for each
        # coordinate, and so for the whole: a record moves each across the box at most.
        centre = 0.5 * self.lower + 0.5 * self.upper
        kept = self.contracted_to(1)
        return source.released(source.wide(value) - centre, noise, kept / scale, math.inf, scale / kept) + centre

    def example_value(self) -> NDArray[Any]:
        return np.full((2, self.dimension), 0.5 * self.lower + 0.5 * self.upper)

    def check_value(self, value: Array, source: NoiseSource[Array]) -> None:
        super().check_value(value, source)
        shape = tuple(value.shape)
        if not shape or shape[-1] != self.dimension:
            raise InvalidParameter("value", f"records of {self.dimension} coordinates along its last axis", f"shape {shape}")
        if not source.all_within(value, self.lower, self.upper):
            # Silent clipping would be a hidden bias; clipping to this public box is the caller's decision.
            raise InvalidParameter(
                "value", f"within [{self.lower!r}, {self.upper!r}] in every coordinate", "a value outside (clip it first)"
            )

    @model_validator(mode="after")
    def _check_box(self) -> Self:
        if not SMALLEST_SCALE <= self.width <= LARGEST_SCALE:
            raise InvalidParameter("upper", f"above lower by {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}", self.upper)
        given = self.sensitivity
        if given.adjacency is not Adjacency.REPLACE_ONE:
            raise InvalidParameter(
                "sensitivity.adjacency", "replace_one (a local release reveals the number of records)", given.adjacency.value
            )
        if getattr(given, self.NORM) is None:
            raise InvalidParameter(f"sensitivity.{self.NORM}", "given for a local release", None)
        side = Fraction(self.upper) - Fraction(self.lower)
        if given.l1 is not None and Fraction(given.l1) < self.dimension * side:
            least = self.least_l1(self.lower, self.upper, self.dimension)
            raise InvalidParameter("sensitivity.l1", f"at least dimension * (upper - lower), here {least!r}", given.l1)
        if given.l2 is not None and Fraction(given.l2) ** 2 < self.dimension * side**2:
            least = self.least_l2(self.lower, self.upper, self.dimension)
            raise InvalidParameter("sensitivity.l2", f"at least sqrt(dimension) * (upper - lower), here {least!r}", given.l2)
        _refuse_other_bounds(given)
        return self


def _refuse_other_bounds(given: Sensitivity) -> None:
    for name in ("l2_real", "l2_imag", "l1_contribution", "l2_contribution"):
        if getattr(given, name) is not None:
            raise InvalidParameter(
                f"sensitivity.{name}", "absent for a local release, which releases each real-valued record separately", getattr(given, name)
            )


def quotient_up(numerator: float, denominator: float) -> float:
    """The smallest float that is at least numerator / denominator, both > 0."""
    return rounded_up(Fraction(numerator) / Fraction(denominator))


def multiple_up(count: int, value: float) -> float:
    """The smallest float that is at least count * value, for count and value > 0; infinite if there is none.

    >>> multiple_up(3, 0.1) > 3 * 0.09999999999999999, multiple_up(10, 0.1) > 1.0, multiple_up(2, math.inf)
    (True, True, inf)
    """
    return rounded_up(count * Fraction(value)) if count * value < math.inf else math.inf
