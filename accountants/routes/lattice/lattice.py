r"""The lattice route: whole Laplace releases and randomized response, with atoms at both ends of (-e, e), on a lattice of every atom.

The laws, their composition and the proofs are the grid route's (``fft.py``); with h = e / m the atoms need no splitting, and only the
part of the loss between them, of mass about e / 2, is discretised: a few points per e do. Distinct e with a common divisor share a
lattice; others are for ``fft``. Randomized response alone, at one e, has a sum of its own (``binomial.py``), and so has Laplace noise where
few releases or a loss next to the largest one make it short (``repeated_laplace.py``). proofs/lattice.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import final

from accountants.dominating import pair_of, unsupported_reason
from accountants.events import Event, Leaf, leaves, non_private_reason
from accountants.pairs import Family, Pair
from accountants.profile import Accountant, NonPrivateProfile, PrivacyProfile
from accountants.routes.fft.fft import FftProfile, unsupported_parts
from accountants.routes.lattice import repeated_laplace
from accountants.routes.lattice.binomial import MOST_RELEASES, binomial_profile
from accountants.routes.lattice.repeated_laplace import laplace_profile
from accountants.routes.rdp.rdp import leaf_steps
from mechanisms.errors import UnsupportedEvent

ROUTE = "lattice"

LARGEST_DIVISOR = 64
"""Distinct losses share a lattice if their ratios are fractions whose common denominator is at most this."""


def shared_divisor(distances: tuple[float, ...]) -> float | None:
    """The largest number of which all distances are multiples, up to rounding; None if there is none within ``LARGEST_DIVISOR``.

    >>> shared_divisor((0.5, 0.75)), shared_divisor((1.0, 2.0**0.5))
    (0.25, None)
    """
    ratios = [Fraction(distance / distances[0]).limit_denominator(LARGEST_DIVISOR) for distance in distances]
    parts = math.lcm(*(ratio.denominator for ratio in ratios))
    close = all(
        abs(float(ratio) - distance / distances[0]) <= 1e-13 * float(ratio) for ratio, distance in zip(ratios, distances, strict=True)
    )
    return distances[0] / parts if close and parts <= LARGEST_DIVISOR else None


def is_repeated_response(parts: Mapping[Leaf, int]) -> bool:
    """Whether all that is released is randomized response at one distance: its composed loss is binomial, and needs no grid."""
    count = sum(parts.values())
    if count > MOST_RELEASES or any(unsupported_reason(leaf) is not None for leaf in parts):
        return False
    pairs = {pair_of(leaf) for leaf in parts}
    return len(pairs) == 1 and all(pair.family is Family.RESPONSE and (pair.is_whole or count == 1) for pair in pairs)


def repeated_laplace_of(parts: Mapping[Leaf, int]) -> tuple[Pair, int] | None:
    """(pair, how often) where all that is released is whole Laplace noise at one distance, not too often for its sum; else None."""
    count = sum(parts.values())
    if count > repeated_laplace.MOST_RELEASES or any(unsupported_reason(leaf) is not None for leaf in parts):
        return None
    pairs = {pair_of(leaf) for leaf in parts}
    one = pairs.pop()
    return (one, count) if not pairs and one.family is Family.LAPLACE and one.is_whole else None


def unsupported_parts_of_lattice(parts: Mapping[Leaf, int]) -> str | None:
    """Why these leaves have no common lattice here, or None."""
    if is_repeated_response(parts):
        return None
    found = repeated_laplace_of(parts)
    if found is not None and repeated_laplace.short_from(found[0].distance, found[1]) == 0.0:
        return None
    for leaf in parts:
        if (reason := unsupported_reason(leaf)) is not None:
            return reason
        pair = pair_of(leaf)
        if pair.family is Family.GAUSSIAN or len(pair.upper.weights) > 1 or len(pair.lower.weights) > 1:
            return "only whole Laplace and local releases have all their atoms on a lattice"
    if shared_divisor(tuple(pair_of(leaf).distance for leaf in parts)) is None:
        return "its losses have no common divisor"
    return unsupported_parts(parts)


@final
class LatticeAccountant(Accountant):
    """Whole Laplace releases and local releases, sampled or not, repeated and composed, whose losses have a common divisor."""

    name = ROUTE
    summary = "Losses of Laplace noise and randomized response with their atoms on a lattice, between two laws; milliseconds at any delta."
    sources = ("accountants/proofs/lattice.md", "accountants/proofs/fft.md", "Doroshenko et al. 2022, arXiv:2207.04380")

    def unsupported(self, event: Event) -> str | None:
        if non_private_reason(event) is not None:
            return None
        return unsupported_parts_of_lattice(leaves(event))

    def profile(self, event: Event) -> PrivacyProfile:
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        parts = leaves(event)
        if (reason := unsupported_parts_of_lattice(parts)) is not None:
            raise UnsupportedEvent(self.name, reason)
        if is_repeated_response(parts):
            return binomial_profile(pair_of(next(iter(parts))), sum(parts.values()), leaf_steps(parts), ROUTE)
        if (found := repeated_laplace_of(parts)) is not None:
            rest = None if unsupported_parts(parts) is not None else FftProfile(parts, ROUTE)
            return laplace_profile(*found, leaf_steps(parts), ROUTE, rest)
        return FftProfile(parts, ROUTE)
