r"""The releases that an event consists of and whom they concern, read from the event for words and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

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
    releases,
)
from zetadp.accountants.leaf import Leaf, Weighting
from zetadp.app.certificates.facts.decimals import exact
from zetadp.mechanisms import (
    AnyMechanism,
    ComplexGaussian,
    ComplexLaplace,
    DuchiLinf,
    Gaussian,
    InvalidParameter,
    Laplace,
    LocalGaussian,
    LocalLaplace,
    LocalRelease,
    Mechanism,
    Spectral,
    SpofCoefficients,
)
from zetadp.mechanisms.base import Adjacency

ADJACENCY_MEANING = {
    Adjacency.ADD_REMOVE: "two data sets are neighbours if one is the other with one unit added or removed",
    Adjacency.REPLACE_ONE: "two data sets are neighbours if one is the other with one unit replaced by another",
    Adjacency.ZERO_OUT: "two data sets are neighbours if one is the other with one unit replaced by a null unit, which contributes nothing",
}

NOISE: dict[str, str] = {
    "gaussian": "Gaussian noise",
    "complex_gaussian": "complex Gaussian noise",
    "laplace": "Laplace noise",
    "complex_laplace": "complex Laplace noise",
    "spectral": "Gaussian noise on the kept frequencies",
    "local_gaussian": "Gaussian noise",
    "local_laplace": "Laplace noise",
    "duchi_linf": "random signs (Duchi, Jordan and Wainwright 2018)",
    "spof_coefficients": "Laplace noise on coefficients (SPOF)",
}
"""What a mechanism adds, by its kind."""

SingleRelease = Release | Sampled


@final
@dataclass(frozen=True)
class Drawn:
    r"""One kind of release of an event.

    Attributes:
      release: with its sampling.
      leaf: as accountants see it.
      count: how often it ran, each time on a fresh sample.
    """

    release: SingleRelease
    leaf: Leaf
    count: int

    @property
    def mechanism(self) -> AnyMechanism:
        """The mechanism that adds its noise."""
        found = self.leaf.mechanism
        assert isinstance(found, Mechanism)  # checked by ``releases_of``
        return found


def releases_of(event: Event) -> tuple[Drawn, ...]:
    """Every different release of the event and how often it ran.

    Raises:
      InvalidParameter: as the accountants' ``releases``, or something is only declared or several releases share a sample: the service
        never releases that.
    """
    for leaf in releases(event):  # refuses what can't be told apart or counted
        if not isinstance(leaf.mechanism, Mechanism):
            raise InvalidParameter("event", "of mechanisms that the service itself releases", leaf.mechanism.kind)
    found: dict[tuple[SingleRelease, int], Drawn] = {}
    for part, group, count in _parts(event, 1, 1):
        leaf, *others = releases(part)
        if others or leaf.releases > 1:
            raise InvalidParameter("event", "of single releases, each with a sample of its own", part.kind)
        before = found.get((part, group))
        grouped = replace(leaf, group=group)
        found[part, group] = Drawn(part, grouped, count + (0 if before is None else before.count))
    return tuple(found.values())


def largest_group(event: Event) -> int:
    """The most units of a release that one unit of the guarantee holds; local releases count, though accountants see each by itself."""
    return max((group for _, group, _ in _parts(event, 1, 1)), default=1)


def standard_deviations(mechanism: AnyMechanism) -> tuple[str, ...]:
    """Of the real and, if there is one, the imaginary component; none for noise that isn't Gaussian."""
    match mechanism:
        case ComplexGaussian():
            return tuple(exact(std) for std in mechanism.stds)
        case Gaussian() | Spectral() | LocalGaussian():
            return (exact(mechanism.std),)
        case _:
            return ()


def noise_figures(mechanism: AnyMechanism) -> dict[str, str]:
    """The noise of one release: every parameter by its name, exact."""
    stds = standard_deviations(mechanism)
    match mechanism:
        case ComplexGaussian():
            assert mechanism.sensitivity.l2 is not None  # checked at its construction
            return {
                "std": f"{stds[0]} real, {stds[1]} imaginary",
                "correlation": exact(mechanism.correlation),
                "noise multiplier": exact(min(mechanism.stds) / mechanism.sensitivity.l2),
            }
        case Gaussian() | Spectral() | LocalGaussian():
            return {"std": stds[0], "noise multiplier": exact(mechanism.noise_multiplier)}
        case Laplace() | ComplexLaplace() | LocalLaplace() | SpofCoefficients():
            return {"Laplace scale": exact(mechanism.scale)}
        case DuchiLinf():
            return {"epsilon": exact(mechanism.epsilon)}


def sensitivity_figures(release: Drawn) -> str:
    """How far one unit moves what is released, and how many units of the release one protected unit holds."""
    bounds = release.mechanism.sensitivity
    stated = {"l2": bounds.l2, "l1": bounds.l1, "l2 real": bounds.l2_real, "l2 imaginary": bounds.l2_imag}
    group = "" if release.leaf.group == 1 else f"; groups of up to {release.leaf.group} of the unit {bounds.unit!r}"
    return ", ".join(f"{name} {exact(value)}" for name, value in stated.items() if value is not None) + group


def sampling_in_words(release: Drawn) -> str:
    """The records that it used, in words."""
    if isinstance(release.release, FixedSizeSampled):
        return f"{release.release.sample_size} of {release.release.population_size}, without replacement"
    if isinstance(release.release, RandomlyAllocated):
        return f"each unit in one of {release.release.steps} releases, chosen uniformly"
    if isinstance(release.release, Shuffled):
        return f"each unit in one of the {release.release.steps} batches of a shuffled epoch"
    if release.leaf.weighting is not None:
        return f"each unit independently with a random share of its contribution: {_shares(release.leaf.weighting)}"
    if isinstance(release.release, TruncatedPoissonSampled):
        sampling = release.release
        return (
            f"each unit independently with probability {exact(sampling.probability)}, cut to at most {sampling.largest_batch}, "
            f"of at most {sampling.population_size}"
        )
    drawn = f"each unit independently with probability {exact(release.leaf.probability)}"
    return "all of the data" if release.leaf.is_whole else drawn


def release_phrase(release: Drawn, who: str, canaries: int = 0) -> str:
    """How often, with which noise and on which data; ``who``: the protected unit; ``canaries``: made-up units that took part."""
    of = release.mechanism.sensitivity.unit
    held = "" if release.leaf.group == 1 else f", where one {who} holds at most {release.leaf.group} units ({of})"
    return (
        f"{release.count} release{'' if release.count == 1 else 's'} with {noise_phrase(release.mechanism)}, "
        f"{_drawn(release, who, canaries)}{held}"
    )


def noise_phrase(mechanism: AnyMechanism) -> str:
    """Kind and amount of the noise; for a local release, also of what."""
    parts = " and ".join(dict.fromkeys(standard_deviations(mechanism)))
    figures = noise_figures(mechanism)
    scale = f"standard deviation {parts} on each real component" if parts else f"scale {figures.get('Laplace scale')}"
    if not isinstance(mechanism, LocalRelease):
        return f"{NOISE[mechanism.kind]} of {scale}"
    # Every record by itself, in a public box.
    amount = f"at epsilon {figures['epsilon']} for each record" if "epsilon" in figures else f"of {scale}"
    box = f"[{exact(mechanism.lower)}, {exact(mechanism.upper)}]"
    return f"{NOISE[mechanism.kind]} {amount}, separately for every record of {mechanism.dimension} coordinates in {box}"


def _drawn(release: Drawn, who: str, canaries: int) -> str:
    if isinstance(release.release, FixedSizeSampled):
        size, units = release.release.sample_size, release.release.population_size
        # Whoever is drawn from a larger number is drawn more rarely (proofs/audit.md, 6).
        made_up = f"; {canaries} are made up, and the guarantee is that of {size} of {units}, which is no stronger" if canaries else ""
        return f"on samples of exactly {size} of {units + canaries} (counted in units of one {who}{made_up})"
    if isinstance(release.release, RandomlyAllocated):
        return f"each over {release.release.steps} steps, of which each {who} takes part in one, chosen uniformly"
    if isinstance(release.release, Shuffled):
        return f"each over the {release.release.steps} batches of a shuffled epoch, of which each {who} is in one"
    if isinstance(release.release, TruncatedPoissonSampled):
        cut = f"samples cut to at most {release.release.largest_batch} of at most {release.release.population_size}"
        return f"each {who} drawn with probability {exact(release.release.probability)}, {cut} (counted in units of one {who})"
    if release.leaf.weighting is not None:
        return f"each {who} with a random share of its contribution: {_shares(release.leaf.weighting)}"
    return "on all of the data" if release.leaf.is_whole else f"each {who} drawn with probability {exact(release.leaf.probability)}"


def _shares(weighting: Weighting) -> str:
    found = [f"at most {exact(share)} with probability {exact(chance)}" for share, chance in zip(*weighting, strict=True)]
    return ", ".join((*found, "otherwise none"))


def _parts(event: Event, group: int, count: int) -> Iterator[tuple[SingleRelease, int, int]]:
    """(single release with its sampling, group size, how often): leaves before they lose the sizes of their samples."""
    match event:
        case Repeated():
            yield from _parts(event.event, group, count * event.count)
        case Composed():
            for part in event.events:
                yield from _parts(part, group, count)
        case Grouped():
            yield from _parts(event.event, group * event.size, count)
        case NonPrivate() | RepeatedAndSelected():
            return  # the second is refused, like all that is only declared
        case (
            Release()
            | PoissonSampled()
            | TruncatedPoissonSampled()
            | FixedSizeSampled()
            | RandomlyAllocated()
            | Shuffled()
            | RandomlyWeighted()
        ):
            yield event, group, count
