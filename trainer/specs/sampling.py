r"""How a step's units are drawn: the plan's samplings, each with the event that is accounted for it, and what a spec asks for.

A sampling states the event of its own steps, so no plan can draw in one way and be accounted for another. Where a sample's size matters,
N is the counted, public number of units; every noisy sum is divided by a public constant, never by the sample's own size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.accountants.events import (
    Event,
    FixedSizeSampled,
    PoissonSampled,
    RandomlyAllocated,
    Release,
    Repeated,
    TruncatedPoissonSampled,
)
from zetadp.mechanisms.base import Adjacency, Count, Value
from zetadp.mechanisms.errors import InvalidParameter

LARGEST_FEDERATION = 10_000
"""The most nodes."""

LARGEST_CYCLE = 1024
"""The most groups of cyclic sampling."""

LARGEST_ALLOCATION = 10**6
"""The most steps of an epoch."""

GroupSeed = Annotated[int, Strict(), Field(ge=0, lt=2**53)]


class Declared:
    r"""What some rules have as a field, and ``Counted`` as a property. Declared for type checkers alone, as in ``plan_base.Stated``.

    Attributes:
      is_declared: whether N was declared, and may differ from the actual number of units, or counted.
    """

    if TYPE_CHECKING:
        is_declared: bool


class SamplingRule(Value, Declared, ABC):
    r"""How one step's sample is drawn.

    Every rule also says how many places with units there are (``nodes``).

    Attributes:
      records: N, units to sample from: training records, or users where the guarantee is for users. A public number.
      expected_batch_size: units expected in a sample: the public constant that noisy sums are divided by; at most one share of N. The
        sample's own size is never used, since dividing by it would release it (errata Z11).
    """

    records: Count
    expected_batch_size: Count

    @model_validator(mode="after")
    def _check_batch(self) -> Self:
        if self.expected_batch_size * self.shares > self.records:
            raise InvalidParameter("expected_batch_size", self._largest_batch, self.expected_batch_size)
        return self

    @property
    def shares(self) -> int:
        """The number of parts that units are in, nodes or groups, in one of which a sample is drawn."""
        return 1

    @property
    def _largest_batch(self) -> str:
        """How many units a sample may be expected to have, in the words of an error."""
        return f"<= the {self.records} {'units that are declared' if self.is_declared else 'training records'}"

    @property
    def probability(self) -> float:
        """The probability that a unit takes part in a step that it may take part in, in (0, 1]; the same in every share."""
        return self.expected_batch_size * self.shares / self.records

    @property
    def largest_expected_batch(self) -> float:
        """Units expected in one sample, if all of them were in one share; infinite where a declared N bounds nothing."""
        return math.inf if self.is_declared else float(self.expected_batch_size * self.shares)

    @abstractmethod
    def event(self, release: Release, steps: int) -> Event:
        """The event of the first ``steps`` >= 1 steps, each of which makes ``release``, for the worst placed unit."""


class AtOnePlace(SamplingRule, ABC):
    """All units are at one place."""

    @property
    def nodes(self) -> int:
        return 1


class Counted(AtOnePlace, ABC):
    """The number of units must be counted: how often a sample is cut, or whom a unit displaces, depends on how many there really are."""

    @property
    def is_declared(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] (see ``Declared``)
        return False


@final
class PoissonSampling(AtOnePlace):
    """Every unit of privacy joins a step's sample independently, with probability expected_batch_size / N."""

    kind: Literal["poisson"] = "poisson"
    is_declared: Annotated[bool, Strict()] = False

    def event(self, release: Release, steps: int) -> Event:
        return Repeated(count=steps, event=PoissonSampled(probability=self.probability, event=release))


class AtNodes(SamplingRule, ABC):
    r"""Every node takes samples of its own units, all nodes with one probability.

    Attributes:
      nodes: the number of nodes. Every unit is at exactly one node; nobody but the node needs to know how many it has.
      records: N, the units at all nodes together.
      expected_batch_size: units expected in the sample of a node that has an equal share of them: the public constant that each node
        divides its noisy sum by.
    """

    nodes: Annotated[int, Strict(), Field(ge=1, le=LARGEST_FEDERATION)]


@final
class FederatedSampling(AtNodes):
    r"""Every node takes a Poisson sample of its own units in every round; nodes * expected_batch_size <= records."""

    kind: Literal["federated_poisson"] = "federated_poisson"
    is_declared: Annotated[bool, Strict()] = False

    @property
    def shares(self) -> int:
        return self.nodes

    @property
    def _largest_batch(self) -> str:
        return f"<= {self.records // self.nodes}, one node's share of {self.records} units"

    def event(self, release: Release, steps: int) -> Event:
        r"""One node's: a unit lives at one node only.

        Given what was released so far, the other nodes' releases and the server's update don't depend on that unit (their data and noise
        are others'), so against everybody who sees all releases the unit's loss is that of its own node's releases; and every node has
        the same probability and the same noise.
        """
        return Repeated(count=steps, event=PoissonSampled(probability=self.probability, event=release))


@final
class TruncatedPoissonSampling(Counted):
    r"""A Poisson sample, of which a uniform part of ``largest_batch`` units is used where it is larger.

    Attributes:
      largest_batch: >= expected_batch_size.
      population_size: units of the largest data set that is protected: N, or N + 1 where neighbours may have one unit more.
    """

    kind: Literal["truncated_poisson"] = "truncated_poisson"
    largest_batch: Count
    population_size: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.largest_batch < self.expected_batch_size:
            expected = f">= the {self.expected_batch_size} units expected in a sample"
            raise InvalidParameter("sampling.largest_batch", expected, self.largest_batch)
        if self.expected_batch_size == self.records:
            raise InvalidParameter("expected_batch_size", f"below the {self.records} units that a cut sample is drawn from", self.records)
        if self.population_size not in {self.records, self.records + 1}:
            raise InvalidParameter("sampling.population_size", f"{self.records} or {self.records + 1}", self.population_size)
        return self

    def event(self, release: Release, steps: int) -> Event:
        if release.mechanism.neighbours[0] is Adjacency.ADD_REMOVE and self.population_size == self.records:
            raise InvalidParameter("sampling.population_size", f"{self.records + 1} under add_remove", self.population_size)
        sampled = TruncatedPoissonSampled(
            probability=self.probability, largest_batch=self.largest_batch, population_size=self.population_size, event=release
        )
        return Repeated(count=steps, event=sampled)


@final
class FixedSizeSampling(Counted):
    """A uniform sample of exactly ``expected_batch_size`` units, without replacement; all units where there are fewer."""

    kind: Literal["fixed_size"] = "fixed_size"

    def event(self, release: Release, steps: int) -> Event:
        # N is the smallest of two neighbours' larger data sets, one of which has N units.
        sampled = FixedSizeSampled(sample_size=self.expected_batch_size, population_size=self.records, event=release)
        return Repeated(count=steps, event=sampled)


class InEpochs(AtOnePlace, ABC):
    """In every epoch each unit takes part in exactly one of the steps that it may be in, its turns, chosen uniformly, each by itself."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.turns > LARGEST_ALLOCATION:
            raise InvalidParameter("expected_batch_size", f"at least N / {LARGEST_ALLOCATION * self.shares}", self.expected_batch_size)
        return self

    @property
    def turns(self) -> int:
        """Of each unit, in an epoch."""
        return self.records // (self.expected_batch_size * self.shares)

    @property
    def epoch(self) -> int:
        """The steps of an epoch: all turns of all shares."""
        return self.turns * self.shares

    def place(self, step: int) -> tuple[int, int]:
        """(the epoch of this step, from 1, and whose how many-th turns in it these are), both counted from 0."""
        epoch, place = divmod(step - 1, self.epoch)
        return epoch, place // self.shares

    @property
    def probability(self) -> float:
        """Of one turn."""
        return 1.0 / self.turns

    @property
    def largest_expected_batch(self) -> float:
        return math.inf if self.is_declared else float(-(-self.records // self.turns))

    def event(self, release: Release, steps: int) -> Event:
        """Whole epochs: of one that isn't finished only some of the outputs are seen. In turns: mechanisms/proofs/banded_sums.md, 8."""
        if release.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
            expected = "another one under replace_one: random allocation is proved for add_remove and zero_out alone"
            raise InvalidParameter("sampling", expected, type(self).model_fields["kind"].default)
        return Repeated(count=-(-steps // self.epoch), event=RandomlyAllocated(steps=self.turns, event=release))


@final
class RandomAllocation(InEpochs):
    """In every epoch of N // expected_batch_size steps each unit takes part in exactly one step, chosen uniformly, each by itself."""

    kind: Literal["random_allocation"] = "random_allocation"
    is_declared: Annotated[bool, Strict()] = False


class InTurns(SamplingRule, ABC):
    r"""Units are in ``groups`` groups, which take turns: a step's units are a sample of its group, a Poisson sample unless a rule differs.

    The group of a unit is fixed and follows from a public seed and the unit's own key. So one more unit moves nobody else, and groups
    needn't be secret or of one size. A replacement would have another group than the unit that it replaces: not under replace_one.

    Attributes:
      groups: b >= 1; step t is the turn of group t mod b.
      seed: public; with a unit's key it decides the unit's group.
    """

    groups: Annotated[int, Strict(), Field(ge=1, le=LARGEST_CYCLE)]
    seed: GroupSeed

    def event(self, release: Release, steps: int) -> Event:
        """That of a group with the most turns. Proof: mechanisms/proofs/banded_sums.md, 1; for nodes, 6."""
        if release.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
            expected = "another one under replace_one: a replacement would be in another group than the unit that it replaces"
            raise InvalidParameter("sampling", expected, "cyclic_poisson")
        return Repeated(count=-(-steps // self.groups), event=PoissonSampled(probability=self.probability, event=release))


class GroupsAtOnePlace(AtOnePlace, InTurns, ABC):
    r"""See ``InTurns``; ``expected_batch_size`` is at most a group's share N / b of the units."""

    @property
    def shares(self) -> int:
        return self.groups

    @property
    def _largest_batch(self) -> str:
        return f"<= {self.records // self.groups}, one group's share of {self.records} units"


@final
class CyclicPoissonSampling(GroupsAtOnePlace):
    r"""See ``InTurns``: with a Poisson sample of the group in each turn."""

    kind: Literal["cyclic_poisson"] = "cyclic_poisson"
    is_declared: Annotated[bool, Strict()] = False


@final
class CyclicAllocation(InEpochs, GroupsAtOnePlace):
    r"""See ``InTurns``: in every epoch of N // (b expected_batch_size) turns of each group a unit takes part in exactly one of its group's.

    Steps 1, ..., b times as many are the first epoch, in which every group has that many turns.
    """

    kind: Literal["cyclic_allocation"] = "cyclic_allocation"
    is_declared: Annotated[bool, Strict()] = False


@final
class FederatedCyclicSampling(AtNodes, InTurns):
    r"""See ``InTurns``; in a round every node takes a Poisson sample of its own units of the group whose turn it is.

    Which group a unit is in doesn't depend on its node; ``expected_batch_size`` is at most one group's share of one node's, N / (b nodes).
    """

    kind: Literal["federated_cyclic_poisson"] = "federated_cyclic_poisson"
    is_declared: Annotated[bool, Strict()] = False

    @property
    def shares(self) -> int:
        return self.nodes * self.groups

    @property
    def _largest_batch(self) -> str:
        return f"<= {self.records // self.shares}, one group's share at one of {self.nodes} nodes with {self.records} units"


Sampling = Annotated[
    PoissonSampling
    | FederatedSampling
    | TruncatedPoissonSampling
    | FixedSizeSampling
    | RandomAllocation
    | CyclicPoissonSampling
    | CyclicAllocation
    | FederatedCyclicSampling,
    Field(discriminator="kind"),
]
