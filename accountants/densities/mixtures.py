r"""Mixtures of shifted copies of one noise density: the halves of dominating pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from zetadp.mechanisms.errors import InvalidParameter


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
