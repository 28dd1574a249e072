r"""The lattice route: whole Laplace releases and randomized response, with atoms at both ends of (-e, e), on a lattice with every atom.

The distributions, their composition and the proofs are those of the grid route (``fft.py``). With h = e / m the atoms need no splitting,
and only the part of the loss between them, of mass about e / 2, is discretised; a few points per e are enough. Distinct e with a common
divisor share a lattice; others go to ``fft``. Randomized response alone, at one e, has its own sum (``sums/response.py``; ``sums/shown.py``
where it is shown only sometimes), and so does Laplace noise when few releases or a loss close to the largest one make it short
(``sums/laplace.py``). proofs/lattice.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple, final

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.densities.sums.profile import Sum, SummedProfile
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, narrowed, widened
from zetadp.accountants.profile import PrivacyProfile
from zetadp.accountants.routes.fft.fft import FftProfile, unsupported_parts
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.mechanisms.base import Step

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


@final
class _Repetition(NamedTuple):
    """One pair, released a number of times without other releases, and the sum for its composed loss."""

    pair: Pair
    times: int
    law: Sum

    @classmethod
    def of(cls, parts: Mapping[Leaf, int]) -> _Repetition | None:
        """The repetition of all these leaves; None if they differ, or if their family has no sum for that many of them."""
        if any(unsupported_reason(leaf) is not None for leaf in parts):
            return None
        pairs = {pair_of(leaf) for leaf in parts}
        one, times = pairs.pop(), sum(parts.values())
        law = None if pairs else _sum_of(one, times)
        return None if law is None else cls(one, times, law)

    def profile(self, steps: tuple[Step, ...], rest: PrivacyProfile | None) -> SummedProfile:
        """The profile between the sums of a larger and a smaller distance. ``rest`` answers where they are long; None if they never are."""
        upper, lower = (_sum_of(one, self.times) for one in (widened(self.pair), narrowed(self.pair)))
        assert upper is not None
        assert lower is not None
        return SummedProfile(upper, lower, steps, ROUTE, self.law.short_from, rest)


def _sum_of(pair: Pair, times: int) -> Sum | None:
    return pair.family.repeated(pair.distance, times, pair.shown) if pair.is_plain else None


def unsupported_parts_of_lattice(parts: Mapping[Leaf, int]) -> str | None:
    """Why these leaves have no common lattice here, or None."""
    found = _Repetition.of(parts)
    if found is not None and found.law.short_from == 0.0:
        return None
    for leaf in parts:
        if (reason := unsupported_reason(leaf)) is not None:
            return reason
        pair = pair_of(leaf)
        if not (pair.family.has_atoms and pair.is_plain):
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

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        return unsupported_parts_of_lattice(parts)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        found = _Repetition.of(parts)
        if found is None:
            return FftProfile(parts, ROUTE)
        rest = FftProfile(parts, ROUTE) if found.law.short_from > 0.0 else None
        return found.profile((*leaf_steps(parts), found.law.step(in_part=unsupported_parts(parts) is None)), rest)
