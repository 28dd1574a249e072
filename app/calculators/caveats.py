r"""What can void a calculator's epsilon, shown directly with it. A certificate has its own caveats, which say more about its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zetadp.accountants import Event, neighbourhood, non_private_reason, releases
from zetadp.accountants.leaf import Selection, unfolded, unshuffled
from zetadp.mechanisms import Assumption
from zetadp.mechanisms.declared.base import Guarantee

_ASSUMPTIONS = {
    Assumption.SENSITIVITY_AS_COMPUTED: "noise is drawn and added without floating-point error",
    Assumption.AS_DECLARED: "what is declared holds for all neighbours, whatever was released before",
    Assumption.INDEPENDENT_NOISE: "noise is independent across coordinates and releases",
}
_BOTH = "noise is independent across coordinates and releases, and free of floating-point error"

_SELECTED = "of the runs that the best was chosen from nothing else is released, nor how many there were"
_SHUFFLED = "every record is in exactly one batch of an epoch, and the batches' number and sizes are public"
_SAMPLED = "samples are fresh, secret and drawn as stated"


def caveats_of(event: Event) -> tuple[str, ...]:
    r"""The conditions without which the guarantee is void; empty if nothing is guaranteed anyway.

    >>> from zetadp.accountants import Release
    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="patient"))
    >>> caveats_of(Release(mechanism=noise))[0]
    "no patient's effect exceeds the stated sensitivity"
    """
    neighbours = neighbourhood(event)
    if neighbours is None or non_private_reason(event) is not None:
        return ()
    whole_event = releases(event)
    found = unfolded(whole_event)
    # For a group, the sensitivity bounds each of its units, which have a different name from the group.
    units = dict.fromkeys(leaf.mechanism.neighbours[1] for leaf in found if not isinstance(leaf.mechanism, Guarantee))
    assumed = dict.fromkeys(one for leaf in (*whole_event, *found) for one in type(leaf.mechanism).FACTS.assumptions)
    whole = neighbours[1].replace("_", " ")
    return (
        *(f"no {unit.replace('_', ' ')}'s effect exceeds the stated sensitivity" for unit in units),
        *((f"one {whole} holds no more than the stated number of units",) if any(leaf.group > 1 for leaf in found) else ()),
        *_assumptions(assumed),
        *((_SELECTED,) if any(isinstance(leaf.mechanism, Selection) for leaf in whole_event) else ()),
        *((_SHUFFLED,) if any(leaf.scheme == "shuffled" for leaf in found) else ()),
        *((_SAMPLED,) if any(not leaf.is_whole for leaf in unshuffled(found)) else ()),
    )


def _assumptions(assumed: Iterable[Assumption]) -> Iterator[str]:
    """Each in a line; what is assumed of the noise in one, since it stands beside every figure."""
    found = list(assumed)
    of_noise = {Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE}
    if of_noise <= set(found):
        yield _BOTH
        found = [one for one in found if one not in of_noise]
    yield from (_ASSUMPTIONS[one] for one in found)
