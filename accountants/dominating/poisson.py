r"""Poisson samples, of one unit or of a group: mixtures around what nobody of it moves. proofs/pairs.md, rows 2 and 3."""

from __future__ import annotations

from zetadp.accountants.densities import Density
from zetadp.accountants.dominating.shapes import NULL, moved_both_ways, moved_one_way, multiples, two
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair
from zetadp.accountants.shared_sample import Contributing, contribution, needed
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.declared.integers import IntegerNoise
from zetadp.mechanisms.numerics.binomial import binomial_weights

LARGEST_SAMPLED_GROUP = 1000
"""The mixture of a Poisson-sampled group has one component more than the group has members; beyond this no route is fast."""


def poisson(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Rows 2 and 3: as many move the output as the sample holds of the group's units."""
    q = leaf.probability
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"a sample with groups of more than {LARGEST_SAMPLED_GROUP} units has too large a mixture"
    if leaf.mechanism.neighbours[0] is not Adjacency.REPLACE_ONE:
        if leaf.group == 1:
            return Pair(family, two(q, move), NULL)
        weights = binomial_weights(leaf.group, q)
        return moved_one_way(family, weights, multiples(move, weights))
    assert isinstance(leaf.mechanism, Contributing)  # nothing else that is only declared is sampled under this adjacency
    c, norm = contribution(leaf.mechanism, family.norm), family.norm
    if c is None:
        stated = "moves" if isinstance(leaf.mechanism, IntegerNoise) else norm
        return (
            f"Poisson sampling under replace_one needs {needed(leaf.mechanism, norm)}, a bound on what one unit alone adds to the query: "
            f"{stated} bounds only the difference of two units, and a sample can leave both out"
        )
    if leaf.group == 1:
        return Pair(family, two(q, c), two(q, c).mirrored)
    weights = binomial_weights(leaf.group, q)
    return moved_both_ways(family, weights, multiples(c, weights), multiples(c, weights))
