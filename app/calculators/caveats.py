r"""What can void a calculator's epsilon, shown directly with it. A certificate has its own caveats, which say more about its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zetadp.accountants import Event, neighbourhood, non_private_reason, releases
from zetadp.accountants.leaf import Leaf, Selection, unfolded
from zetadp.accountants.shared_sample import Combined
from zetadp.mechanisms import Assumption, DuchiLinf, LocalRelease
from zetadp.mechanisms.declared import CorrelatedNoise, DiscreteGaussianSum, NoisyMax, Skellam, SparseVector, TreeAggregation
from zetadp.mechanisms.declared.base import Guarantee

_EXACT = "exact: floating-point error can reveal records"
_INDEPENDENT = "noise is independent across coordinates and releases"
_NOISE: dict[type[Combined | Selection], str] = {
    DuchiLinf: "signs are drawn with the stated probability, independently of everything else",
    CorrelatedNoise: "the underlying noise is independent across coordinates and steps",
    TreeAggregation: "noise is independent across coordinates and blocks",
    NoisyMax: "noise is independent across scores and releases",
    SparseVector: "noise is independent across the threshold and queries",
    DiscreteGaussianSum: "noise is independent across parties, coordinates and releases",
    Skellam: "noise is independent across parties, coordinates and releases",
}
"""What has to be independent where it isn't what is released: correlated noise, noise that several answers share, signs."""
_DECLARED = "what is declared, unchecked, holds for all neighbours and earlier releases"
_SELECTED = "nothing is released of the runs but the best one's output, not even how many there were"
_SAMPLED = "samples are drawn as stated, afresh and in secret"


def caveats_of(event: Event) -> tuple[str, ...]:
    r"""The conditions without which the guarantee is void; empty if nothing is guaranteed anyway.

    >>> from zetadp.accountants import Release
    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="patient"))
    >>> caveats_of(Release(mechanism=noise))[0]
    'no patient moves a query by more than the stated sensitivity'
    """
    neighbours = neighbourhood(event)
    if neighbours is None or non_private_reason(event) is not None:
        return ()
    whole_event = releases(event)
    found = unfolded(whole_event)
    whole = _spelled(neighbours[1])
    return (
        *dict.fromkeys(line for leaf in found for line in _bounds(leaf.mechanism)),
        *((f"no {whole} holds more than the stated number of units",) if any(leaf.group > 1 for leaf in found) else ()),
        *_assumptions((*whole_event, *found)),
        *((_SELECTED,) if any(isinstance(leaf.mechanism, Selection) for leaf in whole_event) else ()),
        *dict.fromkeys(line for leaf in found for line in _sampling(leaf)),
    )


def _bounds(mechanism: Combined | Selection) -> Iterator[str]:
    """What bounds a unit's effect. For a group, it is about each of its units, which have a different name from the group."""
    unit = _spelled(mechanism.neighbours[1])
    match mechanism:
        case Guarantee():
            return
        case LocalRelease():
            yield f"every {unit}'s values lie in the box, released no more often than stated"
        case CorrelatedNoise() | TreeAggregation():
            yield f"every {unit} keeps the stated effect, number and separation of steps"
        case _:
            yield f"no {unit} moves a query by more than the stated sensitivity"


def _assumptions(parts: Iterable[Leaf]) -> Iterator[str]:
    """Each in a line; the two that are made of most noise are one line, since it stands beside every figure."""
    mechanisms = dict.fromkeys(leaf.mechanism for leaf in parts)
    assumed = {one: type(one).FACTS.assumptions for one in mechanisms}
    noise = dict.fromkeys(_NOISE.get(type(one), _INDEPENDENT) for one, found in assumed.items() if Assumption.INDEPENDENT_NOISE in found)
    if any(Assumption.SENSITIVITY_AS_COMPUTED in found for found in assumed.values()):
        noise.pop(_INDEPENDENT, None)
        yield f"{_INDEPENDENT}, and {_EXACT}"
    yield from noise
    if any(Assumption.AS_DECLARED in found for found in assumed.values()):
        yield _DECLARED


def _sampling(leaf: Leaf) -> Iterator[str]:
    """How a unit comes into a sample or a batch."""
    unit = _spelled(leaf.mechanism.neighbours[1])
    if leaf.scheme == "shuffled":
        yield f"every {unit} is in exactly one batch of an epoch, and the number and sizes of batches are public"
    elif leaf.attained is not None and leaf.attained.drawn == "once":
        yield f"every {unit}'s bin is drawn uniformly, independently of all others, once for the whole run and in secret"
    elif leaf.scheme == "random_allocation" and isinstance(leaf.mechanism, CorrelatedNoise):
        # Who draws among fewer turns than these is in each of them more often than is accounted for.
        drawn = f"every {unit} draws one of {leaf.steps} turns in every epoch"
        yield f"{drawn}, uniformly, by itself and in secret, even if it lacks some of them"
    elif leaf.scheme == "random_allocation":
        yield f"every {unit}'s step is drawn uniformly, independently of all others, afresh in every epoch and in secret"
    elif leaf.scheme == "randomly_weighted":
        yield f"every {unit}'s share is drawn afresh for every release, independently of all others and of the data, and in secret"
    elif not leaf.is_whole:
        yield _SAMPLED


def _spelled(unit: str) -> str:
    return unit.replace("_", " ")
