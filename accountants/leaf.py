"""A release on a sample, as accountants see it: what an event's tree comes down to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, NamedTuple, final

from zetadp.accountants.shared_sample import Combined
from zetadp.mechanisms.base import Adjacency, Assumption, Facts, PrivacyUnit, Step
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import PrivacyLoss

Scheme = Literal["poisson", "truncated_poisson", "fixed_size", "random_allocation", "shuffled", "randomly_weighted"]
Draw = Literal["each_epoch", "once"]


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
class Weighting(NamedTuple):
    """Shares of what one record contributes at most, ascending, and how probable each is; with what is left of 1 it contributes nothing."""

    shares: tuple[float, ...]
    probabilities: tuple[float, ...]


@final
class Attained(NamedTuple):
    """Of an allocation whose own steps and mechanism are only a bound: those of the one that it loses at least.

    Attributes:
      steps: each unit is in one of them.
      mechanism: None where nothing is known to be lost.
      drawn: whether units draw their step afresh in every epoch, or their bin once for all epochs.
    """

    steps: int
    mechanism: Combined | None
    drawn: Draw


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """A mechanism released once on a sample: a plain record that ``leaves`` returns, never stored or sent.

    Attributes:
      probability: the probability that one record is in the sample, in (0, 1].
      mechanism: what was released, or only declared; what several releases of one sample amount to; the best of several runs of leaves.
      scheme: how the sample was drawn; Poisson sampling with probability 1 is all of the data, a sample of fixed size isn't.
      group: the largest number of the mechanism's units that one unit of the guarantee holds.
      steps: releases that a leaf of the scheme random_allocation or shuffled stands for, of which each record takes part in one.
      truncation: where a sample of the scheme truncated_poisson is cut; else None.
      sizes: of a sample of the scheme fixed_size of which a group may hold several units; else None: the probability says it all.
      weighting: of the scheme randomly_weighted; else None.
      releases: how many releases of the same sample the mechanism stands for together.
      attained: of the scheme random_allocation, where the leaf is only a bound of what was drawn; else None.
    """

    probability: float
    mechanism: Combined | Selection
    scheme: Scheme = "poisson"
    group: int = 1
    truncation: Truncation | None = None
    steps: int = 1
    sizes: Sizes | None = None
    releases: int = 1
    weighting: Weighting | None = None
    attained: Attained | None = None
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Computed once: every route looks its pair up, and a mechanism's own hash takes longer than the look."""
        if not self._hash:
            parts = tuple(getattr(self, one.name) for one in fields(self) if one.init)
            object.__setattr__(self, "_hash", hash(parts) or 1)
        return self._hash

    def __reduce__(self) -> tuple[type[Leaf], tuple[object, ...]]:
        """Without the hash: another process has its own."""
        return Leaf, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def is_whole(self) -> bool:
        """Whether the release used all of the data, without any sampling."""
        return self.scheme == "poisson" and self.probability == 1.0


def unshuffled(parts: Mapping[Leaf, int]) -> Mapping[Leaf, int]:
    """The leaves with one whole release in the place of every epoch of shuffled batches, which it dominates (proofs/shuffled.md, 1)."""
    if all(leaf.scheme != "shuffled" for leaf in parts):
        return parts
    found: dict[Leaf, int] = {}
    for leaf, count in parts.items():
        whole = replace(leaf, probability=1.0, scheme="poisson", steps=1) if leaf.scheme == "shuffled" else leaf
        found[whole] = found.get(whole, 0) + count
    return found


def coordinates(leaf: Leaf) -> tuple[Leaf, int]:
    """(one coordinate's release, how many). A sample shows all coordinates of a record or none: those aren't independent."""
    mechanism = leaf.mechanism
    if not isinstance(mechanism, LocalRelease) or leaf.probability < 1.0 or (one := mechanism.coordinate()) is None:
        return leaf, 1
    return Leaf(leaf.probability, one, leaf.scheme, leaf.group), mechanism.dimension


def by_record(leaf: Leaf, count: int) -> Iterator[tuple[Leaf, int]]:
    """Local mechanisms release each record separately: the k records of a unit are k releases, unless its size ties them together."""
    tied = leaf.scheme != "poisson" and leaf.probability < 1.0
    if isinstance(leaf.mechanism, LocalRelease) and not tied:
        yield Leaf(leaf.probability, leaf.mechanism, leaf.scheme), count * leaf.group
    else:
        yield leaf, count


def by_coordinate(found: Mapping[Leaf, int], most: int) -> dict[Leaf, int]:
    """Whole local releases as releases of their single coordinates, if it consists of those, and they aren't more than ``most``."""
    parts: dict[Leaf, int] = {}
    for leaf, count in found.items():
        part, number = coordinates(leaf)
        if parts.get(part, 0) + count * number > most:
            part, number = leaf, 1
        parts[part] = parts.get(part, 0) + count * number
    return parts


@final
class SelectedLoss(PrivacyLoss):
    """The loss of a selection, of which nothing is known but what ``selected`` and ``routes.rdp`` bound by its base."""

    def log_delta(self, epsilon: float) -> float:
        del epsilon
        return 0.0

    def renyi(self, order: float) -> float:
        del order
        return math.inf

    @property
    def distance(self) -> float:
        return math.inf


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """The best of a random number of runs of one base: takes a mechanism's place in a leaf of the event ``repeated_and_selected``.

    Attributes:
      runs: the law of how many runs there were.
      parts: the leaves of one run with their counts, at least one, their groups as large as the guarantee's.
    """

    kind: ClassVar[str] = "repeated_and_selected"
    CAN_BE_SAMPLED: ClassVar[bool] = False
    FACTS: ClassVar[Facts] = Facts(
        summary="The best of a random number of runs, such as a search for hyper-parameters.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=(
            "Liu and Talwar 2019, arXiv:1811.07971",
            "Papernot and Steinke 2022, arXiv:2110.03620",
            "Koskela, Redberg and Wang 2024, arXiv:2402.06701",
        ),
        errata=(),
        proof="selected.md",
    )

    runs: AnyRuns
    parts: tuple[tuple[Leaf, int], ...]

    @property
    def neighbours(self) -> tuple[Adjacency, PrivacyUnit]:
        return self.parts[0][0].mechanism.neighbours

    def privacy_loss(self) -> SelectedLoss:
        return SelectedLoss()

    def derivation(self) -> tuple[Step, ...]:
        base = tuple(step for leaf, _ in self.parts for step in leaf.mechanism.derivation())
        formula = f"runs of the base, {self.runs.kind.replace('_', ' ')}, of which only the best one's output is released"
        return (*base, Step(symbol="E[K]", value=self.runs.mean, formula=formula, source="repeated_and_selected.runs; proofs/selected.md"))


def unfolded(parts: Mapping[Leaf, int]) -> dict[Leaf, int]:
    """The leaves with one run of its base in the place of every selection: what was released or declared at all, not what it costs."""
    found: dict[Leaf, int] = {}
    for leaf, count in parts.items():
        inner = unfolded(dict(leaf.mechanism.parts)) if isinstance(leaf.mechanism, Selection) else {leaf: 1}
        for one, number in inner.items():
            found[one] = found.get(one, 0) + count * number
    return found
