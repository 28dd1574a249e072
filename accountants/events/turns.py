r"""Samples of a unit's turns in correlated noise, as samples of single turns, whose columns share no row: proofs/correlated.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from zetadp.accountants.leaf import Attained, Draw, Leaf
from zetadp.mechanisms.declared import CorrelatedNoise
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.rounding import rounded_up


def by_turn(leaf: Leaf, drawn: Draw) -> Iterator[tuple[Leaf, int]]:
    """(the leaf for one turn or one epoch of them, how many), where a band's turns were sampled; otherwise the leaf itself, once.

    Raises:
      InvalidParameter: a group, whose records may have different turns; turns that aren't whole epochs.
    """
    noise = leaf.mechanism
    if not isinstance(noise, CorrelatedNoise) or not noise.is_banded or leaf.scheme not in ("poisson", "random_allocation"):
        yield leaf, 1
        return
    if leaf.group > 1:
        expected = "1 around samples of correlated_noise: units of a group may have different turns, whose rows overlap"
        raise InvalidParameter("grouped.size", expected, leaf.group)
    if leaf.scheme == "poisson":
        yield from ((replace(leaf, mechanism=turn), count) for turn, count in noise.turns)
    elif drawn == "once":
        yield _bins(leaf, noise), 1
    else:
        yield from _epochs(leaf, noise)


def _epochs(leaf: Leaf, noise: CorrelatedNoise) -> Iterator[tuple[Leaf, int]]:
    """One allocation for each epoch; in the last one the last turn may have fewer rows, and bounds it from below."""
    if noise.most_turns % leaf.steps:
        expected = f"a divisor of the {noise.most_turns} turns of a unit (max_participations, at most steps / min_separation, rounded up)"
        raise InvalidParameter("randomly_allocated.steps", expected, leaf.steps)
    epochs = noise.most_turns // leaf.steps
    (whole, _), *others = noise.turns
    if not others:
        yield replace(leaf, mechanism=whole), epochs
        return
    ((last, _),) = others
    if epochs > 1:
        yield replace(leaf, mechanism=whole), epochs - 1
    yield replace(leaf, mechanism=whole, attained=Attained(leaf.steps, last, "each_epoch")), 1


def _bins(leaf: Leaf, noise: CorrelatedNoise) -> Leaf:
    """Bins that are a band apart have no row in common: an allocation to so many of them, of all rounds of the first bin together."""
    band = max(place for place, one in enumerate(noise.coefficients, 1) if one != 0.0)
    apart = leaf.steps // band
    attained = Attained(leaf.steps, noise.starting(leaf.steps - 1), "once")
    if apart == 1:
        return replace(leaf, probability=rounded_up(Fraction(1)), steps=1, attained=attained)
    return replace(leaf, probability=rounded_up(Fraction(1, apart)), steps=apart, attained=attained)
