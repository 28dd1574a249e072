r"""Mixtures of shifted copies of one noise density: the halves of dominating pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from zetadp.mechanisms.errors import InvalidParameter

SMALLEST_WEIGHT = 1e-300
"""Smaller weights of far components are rounded up to it, so that they keep their digits."""

LEAST_REMAINDER = 1e-10
"""Components with a total weight below this at a mixture's lower end are moved up: 1 minus all others would have lost its digits."""


@final
@dataclass(frozen=True)
class Mixture:
    """sum_j weights[j] f(x - shifts[j]): positive weights that sum to 1, shifts in ascending order, in units of the noise's scale."""

    weights: tuple[float, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (len(self.weights) == len(self.shifts) > 0 and min(self.weights) > 0.0):
            raise InvalidParameter("mixture", "as many positive weights as shifts, at least one", (self.weights, self.shifts))
        if not abs(math.fsum(self.weights) - 1.0) <= 1e-12:
            raise InvalidParameter("mixture", "weights that sum to 1", math.fsum(self.weights))
        if any(not a < b for a, b in zip(self.shifts, self.shifts[1:], strict=False)):
            raise InvalidParameter("mixture", "ascending shifts", self.shifts)

    @property
    def span(self) -> float:
        """Distance between the outermost shifts."""
        return self.shifts[-1] - self.shifts[0]

    @property
    def mirrored(self) -> Mixture:
        """The distribution of -x, where x has this mixture as its distribution."""
        return self if self.shifts == (0.0,) else _mirrored(self)


@lru_cache(maxsize=4096)
def _mirrored(mixture: Mixture) -> Mixture:
    # Subtracted from 0: negation would turn a shift of 0 into -0.
    return Mixture(mixture.weights[::-1], tuple(0.0 - shift for shift in mixture.shifts[::-1]))


def moved_up(weights: list[float]) -> tuple[int, tuple[float, ...]]:
    """(the lowest component with a weight left, the weights from there on): what lies below it is moved there."""
    weights = [max(weight, SMALLEST_WEIGHT) for weight in weights]
    lowest, moved = 0, weights[0]
    while moved < LEAST_REMAINDER:
        lowest += 1
        moved += weights[lowest]
    others = weights[lowest + 1 :]
    return lowest, (max(1.0 - math.fsum(others), SMALLEST_WEIGHT), *others)
