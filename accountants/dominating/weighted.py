r"""Records that each have a random share of their contribution: mixtures at any distances. proofs/pairs.md, row 11."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from zetadp.accountants.densities import Density
from zetadp.accountants.dominating.poisson import LARGEST_SAMPLED_GROUP
from zetadp.accountants.dominating.shapes import moved_both_ways, moved_one_way
from zetadp.accountants.leaf import Leaf, Weighting
from zetadp.accountants.pairs import Pair
from zetadp.accountants.shared_sample import Contributing, contribution, needed
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.numerics.rounding import rounded_up

MOST_SUMS = 200
"""Different sums of a group's shares that are told apart; others count as the next larger one."""

_EXACT = Context(prec=60, rounding=ROUND_CEILING)
_Law = dict[Decimal, Decimal]


def weighted(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """The pair of row 11."""
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"randomly weighted groups of more than {LARGEST_SAMPLED_GROUP} units have too large a mixture"
    assert leaf.weighting is not None  # of this scheme
    assert isinstance(leaf.mechanism, Contributing)  # checked by the event
    if leaf.mechanism.neighbours[0] is not Adjacency.REPLACE_ONE:
        weights, distances = _distances(leaf.weighting, leaf.group, move)
        return moved_one_way(family, weights, distances)
    if (c := contribution(leaf.mechanism, family.norm)) is None:
        return (
            f"random shares under replace_one need {needed(leaf.mechanism, family.norm)}, a bound on what one unit alone adds to the "
            f"query: {family.norm} bounds only the difference of two units"
        )
    weights, distances = _distances(leaf.weighting, leaf.group, c)
    return moved_both_ways(family, weights, distances, distances)


def _distances(weighting: Weighting, size: int, move: float) -> tuple[list[float], list[float]]:
    """(weights, rounded up but for the first one's, which stands for 1 minus the others; the distances that they belong to)."""
    found: dict[float, Fraction] = {}
    for total, weight in _sums(weighting, size):
        distance = rounded_up(Fraction(total)) * move
        found[distance] = found.get(distance, Fraction(0)) + Fraction(weight)
    distances = sorted(found)
    return [rounded_up(found[distance]) for distance in distances], distances


@lru_cache(maxsize=256)
def _sums(weighting: Weighting, size: int) -> tuple[tuple[Decimal, Decimal], ...]:
    """(sum of so many records' shares, its probability), ascending, of independent records; probabilities are rounded up."""
    with localcontext(_EXACT):
        one: _Law = {Decimal(share): Decimal(chance) for share, chance in zip(*weighting, strict=True)}
        first = next(iter(one))
        left = 1 - sum(map(Fraction, weighting.probabilities), Fraction(0))
        rest = Decimal(left.numerator) / Decimal(left.denominator)
        # Where rounded probabilities leave less than nothing, the first share has less, as the event says.
        one = {Decimal(0): rest, **one} if rest > 0 else one | {first: one[first] + rest}
        total: _Law = {Decimal(0): Decimal(1)}
        for digit in f"{size:b}":
            total = _coarser(_added(total, total))
            if digit == "1":
                total = _coarser(_added(total, one))
    return tuple(sorted(total.items()))


def _added(one: Mapping[Decimal, Decimal], other: Mapping[Decimal, Decimal]) -> _Law:
    found: _Law = {}
    for share, chance in one.items():
        for further, factor in other.items():
            found[share + further] = found.get(share + further, Decimal(0)) + chance * factor
    return found


def _coarser(law: _Law) -> _Law:
    """The same law, or one on a grid with mass moved up if there are too many sums."""
    if len(law) <= MOST_SUMS:
        return law
    step, found = max(law) / MOST_SUMS, _Law()
    for share, chance in law.items():
        above = (share / step).to_integral_value() * step
        found[above] = found.get(above, Decimal(0)) + chance
    return found
