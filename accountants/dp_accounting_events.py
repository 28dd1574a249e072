r"""Reads and writes events of Google's dp-accounting library: only those that exist both there and here.

The library's ``GaussianDpEvent(s)`` is a sum of values of norm at most C with noise of deviation s C, for the neighbours that its
accountant is set to; here the neighbours are part of the event. So, with C = 1 on import,

    add_remove, zero_out (REPLACE_SPECIAL there):  std s, l2 = 1;         replace_one:  std s, l2 = 2, l2_contribution = 1,

and the same with l1 for ``LaplaceDpEvent``. That is how the library's PLD accountant reads them; its Renyi accountant doesn't double the
sensitivity under REPLACE_ONE, and so accounts for half of the loss. Trees of one epoch (``SingleEpochTreeAggregationDpEvent``) become as
many Gaussian releases as one record has nodes above it: the noisy sums of all other nodes don't depend on it.

``MixtureOfGaussiansDpEvent`` is a pair for one unit more or less, which has a random share of its contribution (proofs/pairs.md, row 11).
Under replace_one it is read as an event in which both units have such shares: its pair dominates the event's own in both orders (Lemma 3,
one of the two units at nothing).

An event keeps its dominating pairs on the way there and back; everything else (a unit's name, complex values) is lost on the way there. The
library is loaded only when these functions are called.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any

from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    NonPrivate,
    PoissonSampled,
    RandomlyAllocated,
    RandomlyWeighted,
    Release,
    Repeated,
    RepeatedAndSelected,
    Sampled,
    Shuffled,
    TruncatedPoissonSampled,
    leaves,
)
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.shared_sample import GaussianWithLaplace
from zetadp.mechanisms import ComplexGaussian, ComplexLaplace, Gaussian, GdpGuarantee, Laplace, Spectral, ZcdpGuarantee
from zetadp.mechanisms.base import Adjacency, PrivacyUnit, Sensitivity
from zetadp.mechanisms.declared import CorrelatedNoise, DiscreteLaplace
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.declared.runs import AnyRuns, GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.numerics.rounding import rounded_up

if TYPE_CHECKING:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

_ONLY_THERE = {
    "UnsupportedDpEvent": "it says that what was done isn't known",
    "RandomizedResponseDpEvent": "no mechanism here releases one of k buckets",
    "SampledWithReplacementDpEvent": "no sample here holds a record several times",
}
"""Why an event of dp-accounting 0.6.0 can't be read, whatever its numbers are."""


def from_dp_accounting(event: library.DpEvent, *, adjacency: Adjacency, unit: PrivacyUnit) -> Event:
    """The same event here, for these neighbours.

    Parts that do nothing there (``NoOpDpEvent``, no repetitions, nobody sampled) are left out; if nothing else is left there is no event.
    A noise multiplier of 0 becomes ``NonPrivate``.

    Args:
      event: gaussian, laplace, discrete laplace, zCDP, poisson sampled, sampled without replacement, truncated and sampled gaussian,
        composed, self-composed, repeated and selected, no-op, non-private, the trees of one epoch (zero_out only, as there), or a mixture
        of Gaussians none of whose sensitivities is below 0. The source data set's size is used as the population's. JAX Privacy describes
        its plans with these events.
      adjacency: which data sets are neighbours.
      unit: what one unit is.
    Raises:
      InvalidParameter: the event or a part of it exists only there (the text names the part), or a number is out of its range.

    >>> from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    >>> found = from_dp_accounting(SelfComposedDpEvent(GaussianDpEvent(2.0), 10), adjacency=Adjacency.ADD_REMOVE, unit="record")
    >>> [(leaf.mechanism.noise_scale, count) for leaf, count in leaves(found).items()]
    [(2.0, 10)]
    """
    # Text is accepted as an adjacency everywhere else, and must not pass as a different one here.
    found = _Reader(Adjacency(adjacency), unit).read(event)
    if found is None:
        raise _no_twin(f"{type(event).__name__}: it does nothing, and there is no event here that does nothing")
    leaves(found)  # refuses samplings over releases that have no pair together
    return found


class _Reader:
    def __init__(self, adjacency: Adjacency, unit: PrivacyUnit) -> None:
        self._adjacency, self._unit = adjacency, unit

    def read(self, event: Any) -> Event | None:
        """The event, or None if it does nothing. The library is untyped, hence Any."""
        from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

        match event:
            case library.NonPrivateDpEvent():
                return NonPrivate(reason="dp_accounting.NonPrivateDpEvent")
            case library.NoOpDpEvent() | library.ZCDpEvent() | library.DiscreteLaplaceDpEvent():
                return None if isinstance(event, library.NoOpDpEvent) else self._declared(event)
            case library.GaussianDpEvent() | library.LaplaceDpEvent():
                return self._noise(
                    type(event).__name__, float(event.noise_multiplier), is_laplace=isinstance(event, library.LaplaceDpEvent)
                )
            case library.SelfComposedDpEvent() | library.ComposedDpEvent() | library.RepeatAndSelectDpEvent():
                return self._selected(event) if hasattr(event, "shape") else self._composed(event)
            case (
                library.PoissonSampledDpEvent() | library.SampledWithoutReplacementDpEvent() | library.TruncatedSubsampledGaussianDpEvent()
            ):
                return self._truncated(event) if hasattr(event, "truncated_batch_size") else self._sampled(event)
            case library.MixtureOfGaussiansDpEvent() | library.SingleEpochTreeAggregationDpEvent():
                return self._trees(event) if isinstance(event, library.SingleEpochTreeAggregationDpEvent) else self._mixture(event)
            case _:
                name = type(event).__name__
                raise _no_twin(f"{name}: {_ONLY_THERE.get(name, 'it is unknown here')}")

    def _selected(self, event: Any) -> Event | None:
        part, runs = self.read(event.event), _runs(float(event.mean), float(event.shape))
        return None if part is None else RepeatedAndSelected(runs=runs, event=part)

    def _declared(self, event: Any) -> Event | None:
        if not hasattr(event, "rho"):
            return self._discrete(event)
        rho, xi = float(event.rho), float(event.xi)
        if xi != 0.0:
            raise _no_twin(f"ZCDpEvent with xi = {xi!r}: here zCDP has no part that doesn't grow with the order")
        if not rho >= 0.0:
            raise InvalidParameter("ZCDpEvent.rho", ">= 0", rho)
        return None if rho == 0.0 else Release(mechanism=ZcdpGuarantee(rho=rho, adjacency=self._adjacency, unit=self._unit))

    def _discrete(self, event: Any) -> Event | None:
        name = type(event).__name__
        if self._adjacency is Adjacency.REPLACE_ONE:
            raise _no_twin(f"{name} under replace_one: there it has no meaning either")
        if not event.noise_parameter > 0.0:
            return NonPrivate(reason=f"dp_accounting.{name} without noise")
        # Never more noise than e^{-a |x|} has.
        scale = 1.0 / float(event.noise_parameter)
        scale = math.nextafter(scale, 0.0) if Fraction(scale) * Fraction(float(event.noise_parameter)) > 1 else scale
        moves = _whole(f"{name}.sensitivity", event.sensitivity)
        if moves == 0:
            return None
        return Release(mechanism=DiscreteLaplace(scale=scale, moves=moves, adjacency=self._adjacency, unit=self._unit))

    def _composed(self, event: Any) -> Event | None:
        if hasattr(event, "count"):
            part = self.read(event.event)
            count = _whole("SelfComposedDpEvent.count", event.count)
            return None if part is None or count == 0 else Repeated(count=count, event=part)
        parts = tuple(self.read(each) for each in event.events)
        kept = tuple(part for part in parts if part is not None)
        return Composed(events=kept) if kept else None

    def _noise(self, name: str, multiplier: float, *, is_laplace: bool) -> Event:
        if not multiplier >= 0.0:
            raise InvalidParameter(f"{name}.noise_multiplier", ">= 0", multiplier)
        if multiplier == 0.0:
            return NonPrivate(reason=f"dp_accounting.{name} without noise")
        norm = "l1" if is_laplace else "l2"
        replaced = self._adjacency is Adjacency.REPLACE_ONE
        bounds = {norm: 2.0, f"{norm}_contribution": 1.0} if replaced else {norm: 1.0}
        sensitivity = Sensitivity.model_validate(bounds | {"adjacency": self._adjacency, "unit": self._unit})
        noise = Laplace(scale=multiplier, sensitivity=sensitivity) if is_laplace else Gaussian(std=multiplier, sensitivity=sensitivity)
        return Release(mechanism=noise)

    def _sampled(self, event: Any) -> Event | None:
        """A sampling of one kind. If nobody is sampled, nothing is done, whatever was to be done with the sample."""
        name, part = type(event).__name__, self.read(event.event)
        if _has_tree(event.event):
            raise _no_twin(f"{name} of SingleEpochTreeAggregationDpEvent: whoever isn't in the sample may move others to other leaves")
        if name == "PoissonSampledDpEvent":
            probability = float(event.sampling_probability)
            if not 0.0 <= probability <= 1.0:
                raise InvalidParameter(f"{name}.sampling_probability", "in [0, 1]", probability)
            if part is None or probability == 0.0:
                return None
            found: Event = part if isinstance(part, NonPrivate) else PoissonSampled(probability=probability, event=part)
        else:
            sizes = _whole(f"{name}.sample_size", event.sample_size), _whole(f"{name}.source_dataset_size", event.source_dataset_size)
            if part is None or sizes[0] == 0:
                return None
            found = part if isinstance(part, NonPrivate) else FixedSizeSampled(sample_size=sizes[0], population_size=sizes[1], event=part)
        try:
            leaves(found)
        except InvalidParameter as error:
            raise _no_twin(f"{name} of {type(event.event).__name__}: {error}") from error
        return found

    def _truncated(self, event: Any) -> Event | None:
        name, probability = type(event).__name__, float(event.sampling_probability)
        if not 0.0 <= probability <= 1.0:
            raise InvalidParameter(f"{name}.sampling_probability", "in [0, 1]", probability)
        release = self._noise(name, float(event.noise_multiplier), is_laplace=False)
        most = _whole(f"{name}.truncated_batch_size", event.truncated_batch_size)
        population = _whole(f"{name}.dataset_size", event.dataset_size)
        if probability == 0.0 or most == 0 or population == 0:
            return None
        if isinstance(release, NonPrivate):
            return release
        if probability == 1.0:
            return release if most >= population else FixedSizeSampled(sample_size=most, population_size=population, event=release)
        return TruncatedPoissonSampled(probability=probability, largest_batch=most, population_size=population, event=release)

    def _trees(self, event: Any) -> Event | None:
        """A tree of n steps: every record is in one step, so in the noisy sums of at most n.bit_length() nodes, from its leaf upwards."""
        name = type(event).__name__
        if self._adjacency is not Adjacency.ZERO_OUT:
            raise _no_twin(f"{name} under {self._adjacency}: a record more or less, or another one, may move others to other leaves")
        given: Any = event.step_counts
        counts: list[Any] = [given] if isinstance(given, Real) else list(given)
        most = max((_whole(f"{name}.step_counts", count) for count in counts), default=0)
        node = self._noise(name, float(event.noise_multiplier), is_laplace=False)
        if most == 0:
            return None
        return node if most == 1 or isinstance(node, NonPrivate) else Repeated(count=most.bit_length(), event=node)

    def _mixture(self, event: Any) -> Event | None:
        name = type(event).__name__
        given = [(float(s), float(p)) for s, p in zip(event.sensitivities, event.sampling_probs, strict=True) if p != 0.0]
        if any(not shift >= 0.0 for shift, _ in given):
            raise _no_twin(f"{name} with a sensitivity below 0: here one unit's moves have sizes, not signs")
        largest = max((shift for shift, _ in given), default=0.0)
        if largest == 0.0:
            return None
        release = self._noise(name, float(event.standard_deviation) / largest, is_laplace=False)
        if isinstance(release, NonPrivate):
            return release
        found: dict[float, float] = {}
        for shift, weight in sorted(given):
            share = rounded_up(Fraction(shift) / Fraction(largest))
            if share > 0.0:
                found[share] = math.fsum((found.get(share, 0.0), weight))
        if len(found) > 1:
            return RandomlyWeighted(shares=tuple(found), probabilities=tuple(found.values()), event=release)
        return release if found[1.0] == 1.0 else PoissonSampled(probability=found[1.0], event=release)


def _runs(mean: float, shape: float) -> AnyRuns:
    """The law of the number of runs that a shape names there."""
    if shape == math.inf:
        return PoissonRuns(mean=mean)
    if shape == 0.0:
        return LogarithmicRuns(mean=mean)
    return GeometricRuns(mean=mean) if shape == 1.0 else TruncatedNegativeBinomialRuns(mean=mean, shape=shape)


def to_dp_accounting(event: Event) -> library.DpEvent:
    """The same event there; the neighbours that it is meant for must then be given to the library's accountant.

    Gaussian noise of any kind becomes ``GaussianDpEvent`` of the same loss. Groups of whole releases shrink the noise multiplier; a group
    with Poisson-sampled Gaussian records, and random shares, become ``MixtureOfGaussiansDpEvent``. Numbers are rounded to the nearest.

    Raises:
      InvalidParameter: a part has no equal event there; the text names the part.
      UnsupportedEvent: no dominating pair of a part is known here.

    >>> noise = Gaussian(std=3.0, sensitivity=Sensitivity(l2=1.5, adjacency="add_remove", unit="record"))
    >>> to_dp_accounting(PoissonSampled(probability=0.25, event=Release(mechanism=noise)))
    PoissonSampledDpEvent(sampling_probability=0.25, event=GaussianDpEvent(noise_multiplier=2.0))
    """
    return _written(event, 1)


def _written(event: Event, group: int) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    match event:
        case Release():
            return _noise(Leaf(1.0, event.mechanism, group=group))
        case Grouped() | PoissonSampled(probability=1.0):
            return _written(event.event, group * (event.size if isinstance(event, Grouped) else 1))
        case PoissonSampled() | TruncatedPoissonSampled() | FixedSizeSampled() | RandomlyAllocated() | Shuffled() | RandomlyWeighted():
            return _sampled(event, group)
        case Repeated() | RepeatedAndSelected():
            part = _written(event.event, group)
            return _selected(event.runs, part) if isinstance(event, RepeatedAndSelected) else library.SelfComposedDpEvent(part, event.count)
        case Composed():
            return library.ComposedDpEvent([_written(part, group) for part in event.events])
        case NonPrivate():
            return library.NonPrivateDpEvent()


def _selected(runs: AnyRuns, part: library.DpEvent) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    shape = math.inf if isinstance(runs, PoissonRuns) else runs.eta
    if shape < 0.0 or runs.mean < 1.0:
        raise _no_twin("repeated_and_selected with a shape below 0 or a mean below 1, which its accountant refuses")
    return library.RepeatAndSelectDpEvent(part, runs.mean, shape)


def _sampled(event: Sampled, group: int) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    # Of correlated noise each turn is a sample of its own.
    parts = [(_sampled_once(event, leaf, group), count) for leaf, count in leaves(event).items()]
    several = [part if count == 1 else library.SelfComposedDpEvent(part, count) for part, count in parts]
    return several[0] if len(several) == 1 else library.ComposedDpEvent(several)


def _sampled_once(event: Sampled, found: Leaf, group: int) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    if isinstance(found.mechanism, Declared) and (reason := unsupported_reason(found)) is not None:
        raise _no_twin(f"a sample of {found.mechanism.kind} ({reason})")
    if isinstance(event, RandomlyAllocated | Shuffled):
        raise _no_twin("a random allocation" if isinstance(event, RandomlyAllocated) else "shuffled batches")
    if group > 1 and isinstance(event, FixedSizeSampled | TruncatedPoissonSampled):
        raise _no_twin(f"a group with {'a sample of a fixed' if isinstance(event, FixedSizeSampled) else 'samples of a largest'} size")
    if isinstance(event, FixedSizeSampled):
        return library.SampledWithoutReplacementDpEvent(event.population_size, event.sample_size, _noise(Leaf(1.0, found.mechanism)))
    if isinstance(event, TruncatedPoissonSampled):
        noise = _noise(Leaf(found.probability, found.mechanism))
        if not isinstance(noise, library.GaussianDpEvent):
            raise _no_twin(f"samples of a largest size with {found.mechanism.kind} noise")
        sizes = event.population_size, found.probability, event.largest_batch
        return library.TruncatedSubsampledGaussianDpEvent(*sizes, noise.noise_multiplier)
    leaf = replace(found, group=group)
    if leaf.is_whole:
        return _noise(leaf)
    if group == 1 and leaf.weighting is None:
        return library.PoissonSampledDpEvent(leaf.probability, _noise(leaf))
    pair = pair_of(leaf)
    if len(pair.lower.weights) > 1:
        raise _no_twin("a group with Poisson samples, or random shares, under replace_one")
    if pair.family.gdp_mu(pair.distance) is None:
        raise _no_twin(f"a group with Poisson-sampled {pair.family.name} noise, or random shares with it,")
    return library.MixtureOfGaussiansDpEvent(1.0, [shift - pair.lower.shifts[0] for shift in pair.upper.shifts], list(pair.upper.weights))


def _noise(leaf: Leaf) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    if isinstance(leaf.mechanism, LocalRelease):
        # There a sample of records amplifies every event, and PLD counts a repeated randomized response once.
        raise _no_twin(f"{leaf.mechanism.kind}, which releases every record separately")
    if isinstance(leaf.mechanism, Declared):
        return _declared(leaf)
    assert not isinstance(leaf.mechanism, Selection)  # an event of its own
    if isinstance(leaf.mechanism, GaussianWithLaplace):
        raise _no_twin("Gaussian and Laplace noise of one sample")
    pair, given = pair_of(leaf), leaf.mechanism.sensitivity
    replaced = given.adjacency is Adjacency.REPLACE_ONE
    match leaf.mechanism:
        case Gaussian(std=scale) | Spectral(std=scale):
            move, contribution = given.l2, given.l2_contribution
        case Laplace(scale=scale) | ComplexLaplace(scale=scale):
            move, contribution = given.l1, given.l1_contribution
        case ComplexGaussian():
            # Its noise may differ between directions, so only the distance of the pair determines C.
            distance = pair.upper.shifts[-1]
            scale, move, contribution = 1.0, distance / leaf.group, distance
        case _:
            raise _no_twin(f"{leaf.mechanism.kind} noise")
    assert move is not None  # checked by each mechanism
    # There C bounds one unit's values, which is half of their difference; a Poisson sample's pair uses C itself.
    c = move if not replaced else 0.5 * move if leaf.is_whole or contribution is None else contribution
    event = library.LaplaceDpEvent if isinstance(leaf.mechanism, Laplace | ComplexLaplace) else library.GaussianDpEvent
    return event(scale / (leaf.group * c))


def _declared(leaf: Leaf) -> library.DpEvent:
    from dp_accounting import dp_event as library  # pyright: ignore[reportMissingTypeStubs]

    match leaf.mechanism:
        case GdpGuarantee() | CorrelatedNoise():
            mu, adjacency = leaf.mechanism.privacy_loss().mu, leaf.mechanism.adjacency
            return library.GaussianDpEvent((2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / (leaf.group * mu))
        case DiscreteLaplace(scale=scale, moves=moves) if leaf.mechanism.adjacency is not Adjacency.REPLACE_ONE:
            return library.DiscreteLaplaceDpEvent(rounded_up(1 / Fraction(scale)), leaf.group * moves)
        case ZcdpGuarantee(rho=rho):
            return library.ZCDpEvent(leaf.group**2 * rho)
        case _:
            raise _no_twin(f"{leaf.mechanism.kind}, which is only declared")


def _has_tree(event: Any) -> bool:
    parts: list[Any] = list(getattr(event, "events", ())) or [event.event] if hasattr(event, "events") or hasattr(event, "event") else []
    return hasattr(event, "step_counts") or any(_has_tree(part) for part in parts)


def _whole(name: str, value: Any) -> int:
    # A fraction is never cut off: 2.7 repetitions must not become 2.
    if not (value >= 0 and float(value).is_integer()):
        raise InvalidParameter(name, "a whole number >= 0", value)
    return int(value)


def _no_twin(what: str) -> InvalidParameter:
    return InvalidParameter("event", "one that exists here and in dp-accounting", what)
