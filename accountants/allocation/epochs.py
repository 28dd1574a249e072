r"""Epochs of random allocations under replace_one that have no pair, and what bounds them instead. proofs/allocation.md, (R1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from zetadp.accountants.allocation.replaced import is_replaced
from zetadp.accountants.leaf import Leaf
from zetadp.mechanisms import ApproximateGuarantee, PureGuarantee, ZcdpGuarantee
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.declared import DiscreteGaussian, DiscreteLaplace

_UP = 1.0 + 1e-14
"""More than the roundings of a quotient and its square."""


def bounding_release(leaf: Leaf) -> Leaf | None:
    """What is released once in the place of each epoch; None where the epoch has a pair, or nothing bounds it here."""
    mechanism = leaf.mechanism
    if not is_replaced(leaf):
        return None
    adjacency, unit = mechanism.neighbours
    whole = replace(leaf, probability=1.0, scheme="poisson", steps=1)
    match mechanism:
        case ApproximateGuarantee():
            return whole
        case DiscreteLaplace() if leaf.group > 1:
            epsilon = mechanism.moves / mechanism.scale * _UP
            return replace(whole, mechanism=PureGuarantee(epsilon=epsilon, adjacency=adjacency, unit=unit))
        case DiscreteGaussian() if leaf.group > 1:
            rho = 0.5 * math.pow(mechanism.moves / mechanism.scale, 2.0) * _UP
            return replace(whole, mechanism=ZcdpGuarantee(rho=rho, adjacency=adjacency, unit=unit))
        case _:
            return None


def bounding_steps(leaf: Leaf) -> tuple[Step, ...]:
    """How what is released in its place follows from the leaf's own release, where it is another one."""
    match bounding_release(leaf):
        case Leaf(mechanism=PureGuarantee() as known):
            symbol, value, formula = "epsilon", known.epsilon, "moves / scale"
        case Leaf(mechanism=ZcdpGuarantee() as known):
            symbol, value, formula = "rho", known.rho, "(moves / scale)^2 / 2"
        case _:
            return ()
    text = f"{formula}: what one release of {leaf.mechanism.kind} guarantees, which stands for it"
    return (Step(symbol=symbol, value=value, formula=text, source="proofs/allocation.md, (R1)"),)


def bounded_epochs(parts: Mapping[Leaf, int]) -> Mapping[Leaf, int]:
    """The leaves with such releases in the place of such epochs."""
    found: dict[Leaf, int] = {}
    for leaf, count in parts.items():
        part = bounding_release(leaf) or leaf
        found[part] = found.get(part, 0) + count
    return found
