r"""The one loop: sample, clip and sum, release through the plan's mechanism, divide by the public expected batch, optimizer step.

A federation is the same loop with more than one site: each one samples, clips and adds its own noise; the server averages what they send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol, final

import torch
from torch import Tensor

from zetadp.mechanisms import Laplace, NoiseSource
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import kernel
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.finite import all_finite
from zetadp.trainer.engine.gradients.canaries import Canaries
from zetadp.trainer.engine.gradients.marks import Marks
from zetadp.trainer.engine.gradients.sample_watch import SampleWatch
from zetadp.trainer.engine.gradients.sampling import SiteSampler
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.engine.noise.buffers import BufferedSums
from zetadp.trainer.engine.noise.inverse_bands import InverseBandedSums
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.randomness import Randomness
from zetadp.trainer.engine.noise.releasing import Clipped
from zetadp.trainer.engine.noise.shared import SharedNoise
from zetadp.trainer.engine.noise.weighted import CorrelatedSums
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.engine.torch_seed import torch_seeded
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.specs.execution_plan import ExecutionPlan, ScheduledClipping
from zetadp.trainer.specs.strategy import BandedInverseStrategy, BandedStrategy, BufferedStrategy, Strategy

OptimizerStep = Callable[[dict[str, Tensor], Tensor, Tensor, int], tuple[Tensor, dict[str, Tensor]]]
"""State, parameters, released gradient, step -> new parameters and state."""

NO_BOUND = 1.0
"""A state's clipping bound where no gradient is clipped."""

Deliver = Callable[[int, int, Tensor], Tensor | None]
"""Step, site and its released vector -> what arrives of it; None if nothing does."""


class ClippedSums(Protocol):
    """``ClippedGradients``: the clipped sum over a sample."""

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> Clipped:
        """Over units given by number, each clipped to ``bound``."""
        ...


@final
@dataclass(frozen=True)
class TrainingState:
    r"""Everything that is determined by the released values so far.

    Attributes:
      step: rounds of releases; the only place where releases are counted.
      parameters: (coordinates,), float32, or float64 where the network is.
      optimizer: the optimizer's tensors, by name.
      bound: the bound that the next step clips to.
      canaries: what is known about the canaries or marks, where the run is audited; see ``Canaries`` and ``Marks``.
    """

    step: int
    parameters: Tensor
    optimizer: dict[str, Tensor]
    bound: float
    canaries: Mapping[str, Tensor] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Site:
    r"""A place with units: it samples among them and adds noise, with its own randomness.

    Attributes:
      units: their numbers, (units,), int64.
      groups: with cyclic sampling the group of every number of a unit, canaries included, (units,), int64; on one device.
    """

    units: Tensor
    randomness: Randomness
    groups: Tensor | None = None


def arrives(_step: int, _site: int, vector: Tensor) -> Tensor | None:
    """Delivery without failures."""
    return vector


@final
@dataclass(frozen=True)
class PrivateLoop:
    r"""Everything that a step needs besides the state.

    Attributes:
      sites: one; in a federation as many as the plan has nodes.
      team: processes that share each site's work: each one samples among its part of the site's units, and the first adds the noise.
      deliver: how a site's released vector reaches the server.
      draws_masks: whether the network draws from torch's own generator.
      spectra: the released coordinates that ``clipped`` sums, if they aren't the parameters themselves.
      watch: sees the noise of every release.
      canaries, marks: that audit the run, at most one of the two; None for no audit.
      shares: with secure aggregation: what a site releases are integers with a share of the noise.
    """

    clipped: ClippedSums
    layout: ParameterLayout
    plan: ExecutionPlan
    sites: Sequence[Site]
    optimizer: OptimizerStep
    team: Team
    deliver: Deliver = arrives
    draws_masks: bool = False
    spectra: Spectra | None = None
    watch: NoiseWatch | None = None
    canaries: Canaries | None = None
    marks: Marks | None = None
    shares: SharedNoise | None = None

    def check_sites(self) -> None:
        """Raises InvalidParameter if the plan is for other numbers of units."""
        sampling = self.plan.sampling
        if sampling.nodes != len(self.sites):
            raise InvalidParameter("plan.sampling.nodes", f"{len(self.sites)}, the number of sites", sampling.nodes)
        found = sum(len(site.units) for site in self.sites)
        if not sampling.is_declared and sampling.records != found:
            raise InvalidParameter("plan.sampling.records", f"{found}, the number of units in the data set", sampling.records)

    def check_noise(self) -> None:
        """Raises InvalidParameter if correlated noise is too large for its sensitivity and the network's size."""
        _ = self._strategies

    @cached_property
    def _samplers(self) -> tuple[SiteSampler, ...]:
        return tuple(SiteSampler(self.plan.sampling, site.randomness, self.team, site.groups) for site in self.sites)

    @cached_property
    def samples(self) -> SampleWatch:
        """What this attempt's samples look like."""
        canaries = 0 if self.canaries is None else self.canaries.count
        # Of a federation's sites only one may be here, whose units needn't have the first numbers.
        numbers = 1 + max((int(site.units.max()) for site in self.sites if len(site.units)), default=-1)
        return SampleWatch(self.plan.sampling, numbers + canaries)

    @cached_property
    def _strategies(self) -> list[CorrelatedSums]:
        """Of each site, which has its own; none for independent noise."""
        return [] if self.plan.strategy is None else [self._begun(self.plan.strategy) for _ in self.sites]

    def _begun(self, strategy: Strategy) -> CorrelatedSums:
        """What nothing has been released of."""
        mechanism = self.plan.mechanism
        assert not isinstance(mechanism, Laplace)  # checked by the plan
        assert self.marks is None  # by the spec: no score reads numbers whose noise is correlated
        numbers = releasing.numbers(self.plan.clipping, self._coordinates)
        match strategy:
            case BandedStrategy():
                return BandedSums(strategy, mechanism, numbers)
            case BufferedStrategy():
                return BufferedSums(strategy, mechanism, numbers, self.plan.steps)
            case BandedInverseStrategy():
                return InverseBandedSums(strategy, mechanism, numbers, self.plan.steps)

    @cached_property
    def _may_be_held(self) -> bool:
        """Whether a number of a release may be larger than noise is added to."""
        units = sum(len(site.units) for site in self.sites) + (0 if self.canaries is None else self.canaries.count)
        bound = 1.0 if self.plan.clipping.IN_BOUNDS else self.plan.clipping.bound
        return self.plan.strategy is None and releasing.may_be_held(self.plan.mechanism, units * bound)

    @property
    def _coordinates(self) -> int:
        """Of the gradient that is released."""
        return (self.layout if self.spectra is None else self.spectra.layout).coordinates

    def step(self, state: TrainingState) -> TrainingState:
        """The state after one more release of each site; its parameters might not be finite (``Publisher.after_step`` checks that)."""
        step = state.step + 1
        if any(sampler.is_lost(step) for sampler in self._samplers):
            # The step is charged and releases nothing.
            return replace(state, step=step, bound=self._next_bound(step, state.bound))
        if self.canaries is not None:
            self.canaries.prepare(step)
        arrived, seen = self._arrived(state)
        return self.advanced(state if seen is state.canaries else replace(state, canaries=seen), arrived)

    def advanced(self, state: TrainingState, arrived: Tensor) -> TrainingState:
        """The state after the step in which the sum of the sites' released vectors was ``arrived``, which is overwritten."""
        step = state.step + 1
        # All divisors are public constants, and one pass divides by all of them.
        divisor = self.plan.sampling.expected_batch_size * len(self.sites)
        gradient = releasing.gradient(self.plan.clipping, arrived, divisor, state.bound, state.parameters.dtype)
        values = gradient.values if self.spectra is None else self.spectra.gradient(gradient.values)
        seen = self._seen(state, values)
        moved, optimizer_state = self.optimizer(state.optimizer, state.parameters, values, step)
        return TrainingState(step, moved, optimizer_state, self._next_bound(step, gradient.next_bound), seen)

    def _next_bound(self, step: int, following: float) -> float:
        """Of the step after this one: a schedule's, or what followed from the releases."""
        clipping = self.plan.clipping
        return clipping.bound_in(step + 1) if isinstance(clipping, ScheduledClipping) else following

    def _seen(self, state: TrainingState, values: Tensor) -> Mapping[str, Tensor]:
        """What is known about the canaries after this release."""
        if self.canaries is None:
            return state.canaries
        at, along = self.layout.unflatten(state.parameters), self.layout.unflatten(values)
        return self.canaries.observe(state.canaries, at, along, state.bound)

    def _arrived(self, state: TrainingState) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The sum of the released vectors that arrived at the server, in newly allocated memory, and what is known of audited units."""
        parameters, seen = self.layout.unflatten(state.parameters), state.canaries
        arrived: Tensor | None = None
        sites = 0
        for number in range(len(self.sites)):
            released = self.released(state, parameters, number)
            if self.marks is not None:
                # Marks are at the first site; all sites' releases are as long, so that their noise can be compared.
                released, marked = released[: -self.marks.count], released[-self.marks.count :]
                seen = self.marks.observe(seen, marked, state.step + 1) if number == 0 else seen
            if self.deliver is arrives:
                update = released
            else:
                # A site that sends nothing, or something not finite, counts as zero; the divisor stays the same.
                update = self.deliver(state.step + 1, number, released)
                update = update.clone() if update is not None and all_finite(update) else None
            update = self._followed(update, number, state.parameters.dtype)
            if update is not None:
                arrived, sites = (update if arrived is None else arrived.add_(update)), sites + 1
        if arrived is not None and self.shares is not None:
            arrived = self.shares.value(arrived, sites)
        return self.silence(state) if arrived is None else arrived, seen

    def _followed(self, update: Tensor | None, place: int, dtype: torch.dtype) -> Tensor | None:
        r"""The noisy sum that follows from what arrived of a site in a step: post-processing, in every process alike.

        Where nothing did, what the site releases later would hold sums that nobody can subtract: it and the server begin anew, as after an
        interruption. The lost release is charged as if it had arrived. Proof: mechanisms/proofs/banded_sums.md, 4 and 6.
        """
        if self.plan.strategy is None:
            return update
        if update is None:
            self._strategies[place] = self._begun(self.plan.strategy)
            return None
        return self._strategies[place].decoded(update, dtype)

    def silence(self, state: TrainingState) -> Tensor:
        """What arrives in a round in which no site sends anything."""
        return releasing.silence(self.plan.clipping, self._coordinates, state.parameters)

    def released(self, state: TrainingState, parameters: Mapping[str, Tensor], place: int) -> Tensor:
        """What the site at this place releases in the step after ``state``: its clipped sum over a sample, with its whole noise.

        With correlated noise it is a weighted sum of its own last sums, with noise. With secure aggregation these are integers with its
        share of the noise, which leave the site under masks alone.
        """
        step, clipping, site = state.step + 1, self.plan.clipping, self.sites[place]
        # An empty sample is treated the same way: a skipped release would reveal that nobody was sampled.
        stream = site.randomness.sampling(step)
        units, sampler = self._units(state, site), self._samplers[place]
        drawn, marked = sampler.sample(step, units, stream), None
        if self.marks is not None:
            drawn, marked = self.marks.split(drawn)
            # They are sampled as everybody is; the test of samples would see less of the others among so many.
            units = site.units
        self.samples.see(place, step, sampler.whole(drawn), partial(sampler.among, step, units))
        with _fresh_masks(stream, drawn.device) if self.draws_masks else nullcontext():
            clipped = self.clipped.sum(parameters, drawn, state.bound)
        query = releasing.query(clipping, clipped, len(drawn), state.bound)
        dtype = self.released_dtype(state.parameters.dtype)
        # The processes' sum first, then noise once: rounded shares of noise only add up to what is accounted for where sums are multiples
        # of their number, as those of nodes are in a secure sum (shared_noise.md).
        vector = query.to(dtype) if self.team.size == 1 else self.team.sum(query.double())
        if self.team.rank:
            return self.team.sum(torch.zeros_like(vector))
        if self.marks is not None and marked is not None:
            vector = self.marks.followed(vector, marked)
        if self.shares is not None:
            return self._share(self.shares, vector, site.randomness.noise_source(step, vector), place)
        return self.team.sum(self._released(vector, step, place))

    def _released(self, vector: Tensor, step: int, place: int) -> Tensor:
        """The vector, or with correlated noise what its strategy makes of it, with the site's noise; nobody needs the vector afterwards."""
        if self._may_be_held:
            vector = releasing.held(self.plan.mechanism, vector)
        randomness = self.sites[place].randomness
        source = randomness.noise_source(step, vector)
        # What is written down, is so as one.
        release = releasing.released_whole if randomness.binds_noise else releasing.released_over
        with self._strategies[place].encoding(step, vector) if self._strategies else nullcontext() as encoding:
            return release(self.plan.mechanism, vector, source, self.watch, place, encoding)

    def _share(self, shares: SharedNoise, vector: Tensor, source: NoiseSource[Tensor], place: int) -> Tensor:
        """The integers that a site adds to the secure sum."""
        integers = shares.integers(vector, source)
        if self.watch is not None:
            self.watch.see(vector, (integers + 0.5).mul_(shares.grid.step), place)
        return integers

    def _units(self, state: TrainingState, site: Site) -> Tensor:
        """The units to sample among: the site's own, and at the first site also the canaries or marks that take part."""
        if site is not self.sites[0]:
            return site.units
        audited = self.canaries if self.marks is None else self.marks
        return site.units if audited is None else torch.cat((site.units, audited.members(state.canaries, site.units.device)))

    def released_dtype(self, parameters: torch.dtype) -> torch.dtype:
        """The type of a released vector, for that of the parameters."""
        return torch.float64 if parameters == torch.float64 else self._dtype

    def adds_what_it_draws(self) -> bool:
        """Whether a processor adds noise in the pass that draws it: what was drawn ahead would go to memory and back."""
        if kernel.ciphers() == 0 or self.shares is not None:
            return False
        numbers = releasing.numbers(self.plan.clipping, self._coordinates)
        return releasing.takes_parts(self.plan.mechanism, numbers, self.sites[0].units.device)

    @cached_property
    def _dtype(self) -> torch.dtype:
        """The type of sum and noise, from public numbers alone: the type that a sample's own sum happens to have would reveal its size."""
        canaries = 0.0 if self.canaries is None else self.canaries.count * self.plan.sampling.probability
        narrow = self.plan.sampling.largest_expected_batch + canaries <= releasing.NARROW_LOT and not self.plan.clipping.IN_BOUNDS
        return torch.float32 if narrow else torch.float64


@contextmanager
def _fresh_masks(stream: RandomStream, device: torch.device) -> Iterator[None]:
    r"""Seeds torch's own generator, which dropout draws from, with 53 secret bits, and restores it afterwards.

    Which numbers of that generator a record's mask gets depends on who else is in the sample, and in the samples before. With masks that
    nobody can distinguish from independent ones this reveals nothing; with a known seed one unit's presence would change the others'
    masks, and so their gradients, by more than that unit's clipped gradient.
    """
    with torch_seeded(device, int(stream.uniform(1)[0] * 2.0**53)):
        yield
