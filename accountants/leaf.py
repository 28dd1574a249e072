"""A release on a sample, as accountants see it: what an event's tree comes down to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from zetadp.mechanisms import AnyAccounted
from zetadp.mechanisms.local import LocalRelease

Scheme = Literal["poisson", "truncated_poisson", "fixed_size", "random_allocation"]


@final
class Truncation(NamedTuple):
    """Where a Poisson sample is cut: the largest batch, and the largest data set that it is drawn from."""

    largest_batch: int
    population_size: int


@final
class Sizes(NamedTuple):
    """Of a sample of a fixed size, and of the smallest data set that it is drawn from."""

    sample: int
    population: int


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """A mechanism released once on a sample: a plain record that ``leaves`` returns, never stored or sent.

    Attributes:
      probability: the probability that one record is in the sample, in (0, 1].
      mechanism: what was released, or only declared.
      scheme: how the sample was drawn; Poisson sampling with probability 1 is all of the data, a sample of fixed size isn't.
      group: the largest number of the mechanism's units that one unit of the guarantee holds.
      steps: releases that a leaf of the scheme random_allocation stands for, of which each record takes part in one.
      truncation: where a sample of the scheme truncated_poisson is cut; else None.
      sizes: of a sample of the scheme fixed_size of which a group may hold several units; else None: the probability says it all.
      releases: how many releases of the same sample the mechanism stands for together.
    """

    probability: float
    mechanism: AnyAccounted
    scheme: Scheme = "poisson"
    group: int = 1
    truncation: Truncation | None = None
    steps: int = 1
    sizes: Sizes | None = None
    releases: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the release used all of the data, without any sampling."""
        return self.scheme == "poisson" and self.probability == 1.0


def coordinates(leaf: Leaf) -> tuple[Leaf, int]:
    """(one coordinate's release, how many). A sample shows all coordinates of a record or none: those aren't independent."""
    mechanism = leaf.mechanism
    if not isinstance(mechanism, LocalRelease) or leaf.probability < 1.0 or (one := mechanism.coordinate()) is None:
        return leaf, 1
    return Leaf(leaf.probability, one, leaf.scheme, leaf.group), mechanism.dimension
