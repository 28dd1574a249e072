r"""Dominating pairs as every route sees them: two mixtures of shifted copies of one noise density.

P = sum_j p_j f(x - a_j) against Q = sum_j q_j f(x - b_j), f the standard normal or the Laplace density e^{-|x|} / 2 (``densities``). Whole
and sampled releases, groups and every kind of sampling have such a pair (``dominating``, proofs/pairs.md); their log ratio never
decreases in x. Randomized response is a separate kind of pair, on two points, local releases may be *shown* only with some probability, and
where samples are cut to a size, another pair takes the place of the first one as often as that happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from zetadp.accountants.densities import Density
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.mechanisms.errors import InvalidParameter


@final
@dataclass(frozen=True)
class Pair:
    r"""(P, Q) with log dP/dQ non-decreasing: every shift of P is at or above every shift of Q.

    Attributes:
      family: the noise density f, or two points.
      upper: P.
      lower: Q.
      worst_of_both: the release may choose at every step which of (P, Q) and (Q, P) it shows (replace_one with samples of a fixed
        size): the pair meant has the profile max(H(P || Q), H(Q || P)) at every epsilon >= 0 and is symmetric.
      shown: probability in (0, 1] that the output is one of P or Q; otherwise it is the same for both neighbours, and says so. Below 1
        for pairs of one component each: the pair meant is ((1 - shown) R + shown P, (1 - shown) R + shown Q), R apart from both.
      crowded: another pair, and the probability with which the release shows that one instead, and says so.

    >>> from zetadp.accountants.densities import GAUSSIAN
    >>> Pair(GAUSSIAN, Mixture((0.99, 0.01), (0.0, 1.0)), Mixture((1.0,), (0.0,))).symmetric
    False
    """

    family: Density
    upper: Mixture
    lower: Mixture
    worst_of_both: bool = False
    shown: float = 1.0
    crowded: Crowded | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.shown <= 1.0:
            raise InvalidParameter("pair.shown", "in (0, 1]", self.shown)
        if (self.shown < 1.0 or not self.family.mixes) and not (self.is_plain and not self.worst_of_both):
            raise InvalidParameter(
                "pair", "of one component each where its family has no mixtures or it is shown only sometimes", self.upper.shifts
            )
        if self.crowded is not None and self.shown < 1.0:
            raise InvalidParameter("pair.shown", "1 where another pair may take its place", self.shown)
        if not self.upper.shifts[0] >= self.lower.shifts[-1]:
            raise InvalidParameter("pair", "P's shifts at or above Q's", (self.upper.shifts, self.lower.shifts))

    @property
    def symmetric(self) -> bool:
        """Whether (Q, P) has the same profile, so that one direction is enough: a mirror image, or the worst of both by definition."""
        if not (self.family.is_even or self.worst_of_both):
            return False
        mirrored = self.lower.mirrored
        offset = mirrored.shifts[0] - self.upper.shifts[0]
        same = mirrored.weights == self.upper.weights and all(
            a == b + offset for a, b in zip(mirrored.shifts, self.upper.shifts, strict=True)
        )
        return (self.worst_of_both or same) and (self.crowded is None or self.crowded.pair.symmetric)

    @property
    def is_whole(self) -> bool:
        """One shifted copy against another: a release that isn't sampled."""
        return self.is_plain and self.shown == 1.0

    @property
    def distance(self) -> float:
        """The distance of the outermost shifts: mu or epsilon of a whole release."""
        own = self.upper.shifts[-1] - self.lower.shifts[0]
        return own if self.crowded is None else max(own, self.crowded.pair.distance)

    @property
    def is_plain(self) -> bool:
        """One component on each side, and no other pair."""
        return len(self.upper.weights) == len(self.lower.weights) == 1 and self.crowded is None

    @property
    def uncrowded(self) -> Pair:
        """The pair without the other one."""
        return Pair(self.family, self.upper, self.lower, self.worst_of_both, self.shown)


@final
@dataclass(frozen=True)
class Crowded:
    """The pair that a release shows with a probability in (0, 1), which is public, as is when it does."""

    probability: float
    pair: Pair

    def __post_init__(self) -> None:
        if not 0.0 < self.probability < 1.0:
            raise InvalidParameter("crowded.probability", "in (0, 1)", self.probability)


SHIFT_ERROR = 1e-14
"""Relative error allowed for a shift, and for ``shown`` below 1: a few roundings on the way from a mechanism's parameters."""


def widened(pair: Pair) -> Pair:
    """The pair with every distance larger by ``SHIFT_ERROR``: it dominates the exact pair that this pair represents."""
    return stretched(pair, SHIFT_ERROR)


def narrowed(pair: Pair) -> Pair:
    """The pair with every distance smaller by ``SHIFT_ERROR``: the exact pair that this pair represents dominates it."""
    return stretched(pair, -SHIFT_ERROR)


@lru_cache(maxsize=8192)
def stretched(pair: Pair, error: float) -> Pair:
    """The pair with every distance larger by this share of it; smaller if it is negative."""
    factor = 1.0 + error

    def moved(mixture: Mixture) -> Mixture:
        if mixture.shifts == (0.0,):
            return mixture
        return Mixture(mixture.weights, tuple(shift * factor for shift in mixture.shifts))

    shown = min(pair.shown * factor, 1.0) if pair.shown < 1.0 else 1.0
    crowded = None if pair.crowded is None else Crowded(pair.crowded.probability, stretched(pair.crowded.pair, error))
    return Pair(pair.family, moved(pair.upper), moved(pair.lower), pair.worst_of_both, shown, crowded)
