r"""How a spec asks for its steps' samples; the plan's sampling follows from it and from the number of units. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal, TypeAlias, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Adjacency, Count, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.sampling import (
    LARGEST_CYCLE,
    CyclicAllocation,
    CyclicPoissonSampling,
    FixedSizeSampling,
    GroupSeed,
    PoissonSampling,
    RandomAllocation,
    TruncatedPoissonSampling,
)
from zetadp.trainer.specs.strategy import AnyNoise

OnePlaceSampling: TypeAlias = (
    PoissonSampling | TruncatedPoissonSampling | FixedSizeSampling | RandomAllocation | CyclicPoissonSampling | CyclicAllocation
)


class Sampler(Value, ABC):
    """What a spec asks for; the plan's sampling follows from it and from the number of units."""

    def check(self, expected_batch_size: int) -> None:
        """Raises InvalidParameter if it fits no number of units."""
        del expected_batch_size

    @abstractmethod
    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> OnePlaceSampling:
        """Raises InvalidParameter if it doesn't fit."""


@final
class PoissonSampler(Sampler):
    """Every unit joins every step's sample independently."""

    kind: Literal["poisson"] = "poisson"

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> PoissonSampling:
        del adjacency
        return PoissonSampling(records=units, expected_batch_size=expected_batch_size, is_declared=is_declared)


@final
class TruncatedPoissonSampler(Sampler):
    """As ``poisson``, but at most ``largest_batch`` units are used. Costs more, the more often samples are cut."""

    kind: Literal["truncated_poisson"] = "truncated_poisson"
    largest_batch: Count

    def check(self, expected_batch_size: int) -> None:
        if self.largest_batch < expected_batch_size:
            expected = f">= the {expected_batch_size} units expected in a sample"
            raise InvalidParameter("sampling.largest_batch", expected, self.largest_batch)

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> TruncatedPoissonSampling:
        _refuse_declared(self.kind, units, is_declared=is_declared)
        return TruncatedPoissonSampling(
            records=units,
            expected_batch_size=expected_batch_size,
            largest_batch=self.largest_batch,
            population_size=units + (1 if adjacency is Adjacency.ADD_REMOVE else 0),
        )


@final
class FixedSizeSampler(Sampler):
    """Samples of exactly expected_batch_size units. Under add_remove each costs as twice the sensitivity: a unit displaces another."""

    kind: Literal["fixed_size"] = "fixed_size"

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> FixedSizeSampling:
        del adjacency
        _refuse_declared(self.kind, units, is_declared=is_declared)
        return FixedSizeSampling(records=units, expected_batch_size=expected_batch_size)


@final
class RandomAllocationSampler(Sampler):
    """Each unit in exactly one step of every epoch (balls in bins). Not under replace_one."""

    kind: Literal["random_allocation"] = "random_allocation"

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> RandomAllocation:
        del adjacency
        return RandomAllocation(records=units, expected_batch_size=expected_batch_size, is_declared=is_declared)


class CyclicSampler(Sampler, ABC):
    r"""Groups of units take turns, each with samples of its own: a unit's turns are at least b steps apart, a minimum separation of b.

    Attributes:
      groups: b; each group has a turn in every b-th step.
      seed: public; with a unit's key it decides the unit's group.
    """

    groups: Annotated[int, Strict(), Field(ge=1, le=LARGEST_CYCLE)]
    seed: GroupSeed


@final
class CyclicPoissonSampler(CyclicSampler):
    r"""Groups of units take turns, each with a Poisson sample of its own: a unit's turns are at least b steps apart.

    With expected_batch_size = N / b every unit takes part in all of them, which is public, and nothing is amplified.

    Attributes:
      groups: b; each group has a turn in every b-th step.
      seed: public; with a unit's key it decides the unit's group.
    """

    kind: Literal["cyclic_poisson"] = "cyclic_poisson"

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> CyclicPoissonSampling:
        del adjacency
        return CyclicPoissonSampling(
            records=units, expected_batch_size=expected_batch_size, groups=self.groups, seed=self.seed, is_declared=is_declared
        )


@final
class CyclicAllocationSampler(CyclicSampler):
    r"""Groups of units take turns, and each unit is in exactly one of its group's turns in every epoch. Not under replace_one.

    An epoch is N // (b expected_batch_size) turns of every group.

    Attributes:
      groups: b; each group has a turn in every b-th step.
      seed: public; with a unit's key it decides the unit's group.
    """

    kind: Literal["cyclic_allocation"] = "cyclic_allocation"

    def planned(self, units: int, expected_batch_size: int, adjacency: Adjacency, *, is_declared: bool) -> CyclicAllocation:
        del adjacency
        return CyclicAllocation(
            records=units, expected_batch_size=expected_batch_size, groups=self.groups, seed=self.seed, is_declared=is_declared
        )


AnySampler = Annotated[
    PoissonSampler | TruncatedPoissonSampler | FixedSizeSampler | RandomAllocationSampler | CyclicPoissonSampler | CyclicAllocationSampler,
    Field(discriminator="kind"),
]


def is_poisson(sampler: object) -> bool:
    """Whether it is the sampler of most runs, which JSON leaves out."""
    return isinstance(sampler, PoissonSampler)


def check_turns(noise: AnyNoise, sampler: AnySampler, steps: int) -> None:
    """Raises InvalidParameter if the sampler leaves a unit's turns too close together for the noise, before anything is known of data."""
    groups = sampler.groups if isinstance(sampler, CyclicSampler) else 1
    strategy = noise.planned(steps, groups)
    if strategy is None:
        return
    if not isinstance(sampler, CyclicSampler):
        kinds = "cyclic_poisson or cyclic_allocation samples"
        least = f"{kinds} of at least {strategy.least_groups} groups, the minimum separation of a unit's turns"
        raise InvalidParameter("noise", f"independent with {sampler.kind} samples (correlated noise needs {least})", noise.kind)
    if groups < strategy.least_groups:
        raise InvalidParameter("sampling.groups", f">= {strategy.least_groups}, the noise's bands", groups)


def _refuse_declared(kind: str, units: int, *, is_declared: bool) -> None:
    if is_declared:
        # How often a sample is cut, and whom a unit displaces, depends on how many there really are.
        raise InvalidParameter("declared_units", f"absent with {kind} samples, whose accounting needs the counted number", units)
