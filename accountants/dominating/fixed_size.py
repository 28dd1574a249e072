r"""Samples of a fixed size, in which one unit displaces another. proofs/pairs.md, rows 4 to 6."""

from __future__ import annotations

from zetadp.accountants.densities import Density, LocationDensity
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating.displaced import Displaced
from zetadp.accountants.dominating.poisson import LARGEST_SAMPLED_GROUP
from zetadp.accountants.dominating.shapes import NULL, moved_one_way, multiples, two
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.numerics.hypergeometric import hypergeometric

LARGEST_DISPLACEMENT = 250.0
"""Scales of the noise that a group may move a sample of a fixed size under replace_one: beyond, it is bounded by the whole release."""


def fixed_size(family: Density, q: float, move: float, adjacency: Adjacency) -> Pair:
    """Rows 4 to 6 for one unit, in a sample with probability q."""
    if q == 1.0:
        # Everybody is in the sample: one displaces another only if neighbours differ in size.
        return Pair(family, Mixture((1.0,), (2.0 * move if adjacency is Adjacency.ADD_REMOVE else move,)), NULL)
    distance = move if adjacency is Adjacency.REPLACE_ONE else 2.0 * move
    return Pair(family, two(q, distance), NULL, worst_of_both=adjacency is not Adjacency.ADD_REMOVE)


def fixed_size_group(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Rows 4 to 6: as many are displaced as the sample holds of the group's units."""
    assert leaf.sizes is not None  # of this scheme and a group
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"a sample with groups of more than {LARGEST_SAMPLED_GROUP} units has too large a mixture"
    adjacency = leaf.mechanism.neighbours[0]
    if leaf.sizes.sample == leaf.sizes.population:
        return Pair(family, Mixture((1.0,), (leaf.group * (2.0 if adjacency is Adjacency.ADD_REMOVE else 1.0) * move,)), NULL)
    weights = hypergeometric(max(leaf.sizes.population, leaf.group), leaf.group, leaf.sizes.sample)
    if adjacency is Adjacency.ADD_REMOVE:
        return moved_one_way(family, weights, multiples(2.0 * move, weights))
    if not isinstance(family, LocationDensity):
        return f"groups with samples of a fixed size under {adjacency.value} aren't supported here for {family.name} noise"
    if leaf.group * move > LARGEST_DISPLACEMENT:
        return Pair(family, Mixture((1.0,), (leaf.group * move,)), NULL)
    each = move if adjacency is Adjacency.REPLACE_ONE else 2.0 * move
    return _displaced(family, moved_one_way(family, weights, multiples(each, weights)))


def _displaced(family: LocationDensity, pair: Pair) -> Pair:
    """The pair with the profile (3), in the frame in which the copy that didn't move is at 0, whether it has any weight left or not."""
    if pair.is_plain:
        return pair
    upper = Mixture(pair.upper.weights, tuple(shift - pair.lower.shifts[0] for shift in pair.upper.shifts))
    is_of_one = len(upper.shifts) == 2 and upper.shifts[0] == 0.0
    return Pair(family if is_of_one else Displaced(family), upper, NULL, worst_of_both=True)
