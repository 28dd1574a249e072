r"""Groups in a random allocation: how far a unit of k records, each in one of t steps, moves all outputs. proofs/allocation.md, Groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from zetadp.accountants.allocation.replaced import at_nothing, distances, is_replaced
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.shared_sample import GaussianWithLaplace
from zetadp.mechanisms import GdpGuarantee
from zetadp.mechanisms.loss import GaussianLoss, IntegerLoss, LaplaceLoss
from zetadp.mechanisms.numerics.rounding import rounded_up

LARGEST_ALLOCATED_GROUP = 20
"""Records of a unit: 20 of them share steps in 627 ways."""

_SHORTER = 1.0 - 1e-13
"""More than the roundings of a distance and of what it is multiplied by."""


def squared_moves(size: int, steps: int) -> dict[int, float]:
    """Weights of the squared distances that the unit moves all outputs together, in squares of one record's; rounded up, in order.

    If s_i of the records are in step i, this is sum s_i^2. Of large ones only some are kept: others count as the next larger one.
    """
    kept = sorted({min(size + (2 << j) - 2, size * size) for j in range(2 * size.bit_length() + 1)})
    exact: dict[int, Fraction] = {}
    for shares in _partitions(size, size):
        ways = Fraction(math.factorial(size) * math.perm(steps, len(shares)), steps**size)
        ways /= math.prod(map(math.factorial, shares)) * math.prod(map(math.factorial, Counter(shares).values()))
        square = next(level for level in kept if level >= sum(share * share for share in shares))
        exact[square] = exact.get(square, Fraction(0)) + ways
    return {square: rounded_up(weight) for square, weight in sorted(exact.items()) if weight}


def _partitions(size: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Of the records to steps, the largest share first."""
    if size == 0:
        yield ()
    for share in range(min(size, largest), 0, -1):
        yield from ((share, *rest) for rest in _partitions(size - share, share))


def lower_parts(parts: Mapping[Leaf, int]) -> tuple[Mapping[Leaf, int], ...]:
    """Compositions that lose no more than these leaves, each the same but for random allocations that are only bounds, if any.

    One record of the group alone, and, for Gaussian noise, the sum of an epoch's outputs; of bins as if no two of them had a row in common.
    """
    if not any(_is_bounded(leaf) for leaf in parts):
        return ()
    sums = (False, True) if any(leaf.group > 1 or is_replaced(leaf) for leaf in parts) else (False,)
    return tuple(_replaced(parts, of_sum=of_sum) for of_sum in sums)


def _replaced(parts: Mapping[Leaf, int], *, of_sum: bool) -> Mapping[Leaf, int]:
    found: Counter[Leaf] = Counter()
    for leaf, count in parts.items():
        part = _less(leaf, of_sum=of_sum) if _is_bounded(leaf) else leaf
        if part is not None:
            found[part] += count
    return found


def _is_bounded(leaf: Leaf) -> bool:
    return leaf.scheme == "random_allocation" and (leaf.group > 1 or is_replaced(leaf) or leaf.attained is not None)


def _less(leaf: Leaf, *, of_sum: bool) -> Leaf | None:
    """None where nothing is known to be attained: without the leaf a composition loses no more than with it."""
    if leaf.attained is not None:
        steps, mechanism, _ = leaf.attained
        if mechanism is None:
            return None
        leaf = replace(leaf, probability=rounded_up(Fraction(1, steps)), steps=steps, mechanism=mechanism, attained=None)
        if leaf.group == 1 and not is_replaced(leaf):
            return leaf
    if isinstance(leaf.mechanism, GaussianWithLaplace) and (of_sum or is_replaced(leaf)):
        # Whoever doesn't look at the other outputs loses no more.
        leaf = replace(leaf, mechanism=leaf.mechanism.gaussian, releases=1)
    if is_replaced(leaf) and not isinstance(leaf.mechanism.privacy_loss(), GaussianLoss | LaplaceLoss | IntegerLoss):
        return None
    loss, known = leaf.mechanism.privacy_loss(), distances(leaf)
    apart, alone = (loss.distance, loss.distance) if known is None else known
    if not (of_sum and isinstance(loss, GaussianLoss)):
        one = replace(leaf, group=1)
        # One unit at nothing, and another one as far from it as both bounds allow.
        return at_nothing(one, min(apart, alone)) if is_replaced(leaf) else one
    adjacency, unit = leaf.mechanism.neighbours
    mu = leaf.group * min(apart, 2.0 * alone) / math.sqrt(leaf.steps) * _SHORTER
    return Leaf(1.0, GdpGuarantee(mu=mu, adjacency=adjacency, unit=unit))
