r"""Poisson samples that are cut to a largest size. proofs/pairs.md, row 8."""

from __future__ import annotations

import math
from dataclasses import replace

from zetadp.accountants.densities import Density
from zetadp.accountants.densities.mixtures import SMALLEST_WEIGHT
from zetadp.accountants.dominating.fixed_size import fixed_size
from zetadp.accountants.dominating.poisson import poisson
from zetadp.accountants.dominating.shapes import NULL, moved_both_ways, moved_one_way, multiples
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Crowded, Pair
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.numerics.binomial import binomial_weights, log_binomial_tail


def truncated(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Row 8: while fewer others are sampled than there is room for, as a Poisson sample; otherwise one displaces another."""
    assert leaf.truncation is not None  # of this scheme
    adjacency, (most, population) = leaf.mechanism.neighbours[0], leaf.truncation
    plain = poisson(family, leaf, move)
    if isinstance(plain, str):
        return plain
    units = min(leaf.group, population)
    log_crowded = log_binomial_tail(population - units, leaf.probability, most - units + 1)
    if log_crowded == -math.inf:
        return plain
    # The more often samples are cut, the larger the loss must be: at least as far as the plain pair's components are apart.
    far = max(move, plain.distance if plain.lower != NULL else 0.0)
    displaced = fixed_size(family, leaf.probability, far, adjacency) if leaf.group == 1 else _displacing_group(family, leaf, move, plain)
    crowded = max(math.nextafter(math.exp(log_crowded), math.inf), SMALLEST_WEIGHT)
    return displaced if crowded >= 1.0 else replace(plain, crowded=Crowded(crowded, displaced))


def _displacing_group(family: Density, leaf: Leaf, move: float, plain: Pair) -> Pair:
    weights = binomial_weights(leaf.group, leaf.probability)
    match leaf.mechanism.neighbours[0]:
        case Adjacency.ADD_REMOVE:
            return moved_one_way(family, weights, multiples(2.0 * move, weights))
        case Adjacency.REPLACE_ONE:
            # Each of the group replaces another record, or is one more where there is still room.
            distances = multiples(max(move, plain.upper.shifts[-1] / leaf.group), weights)
            return moved_both_ways(family, weights, distances, distances)
        case Adjacency.ZERO_OUT:
            # Each of the group replaces another record; each of its nulls only takes that one's place.
            return moved_both_ways(family, weights, multiples(2.0 * move, weights), multiples(move, weights))
