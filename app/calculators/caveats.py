r"""What can void a calculator's epsilon, shown directly with it. A certificate has its own caveats, which say more about its run."""

from __future__ import annotations

from zetadp.accountants import Event, neighbourhood, non_private_reason, releases
from zetadp.accountants.leaf import Selection, unfolded, unshuffled
from zetadp.mechanisms import Assumption
from zetadp.mechanisms.declared.base import Guarantee

_ASSUMPTIONS = {
    Assumption.SENSITIVITY_AS_COMPUTED: "noise is drawn and added exactly: the lowest bits of a sum with float noise reveal who is in it",
    Assumption.AS_DECLARED: "what is only declared holds for every two neighbours, whatever was released before",
    Assumption.INDEPENDENT_NOISE: "the noise of every coordinate and release is drawn independently",
}

_SELECTED = "of the runs that the best was chosen from nothing else is released, nor how many there were"
_SHUFFLED = "every record is in exactly one batch of an epoch, and the batches' number and sizes are public"
_SAMPLED = "samples are drawn as stated, afresh each time, and nobody learns who is in one"


def caveats_of(event: Event) -> tuple[str, ...]:
    r"""The conditions without which the guarantee is void; empty if nothing is guaranteed anyway.

    >>> from zetadp.accountants import Release
    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="patient"))
    >>> caveats_of(Release(mechanism=noise))[0]
    'one patient moves each query by no more than the stated sensitivity'
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
        *(f"one {unit.replace('_', ' ')} moves each query by no more than the stated sensitivity" for unit in units),
        *((f"one {whole} holds no more than the stated number of units",) if any(leaf.group > 1 for leaf in found) else ()),
        *(_ASSUMPTIONS[one] for one in assumed),
        *((_SELECTED,) if any(isinstance(leaf.mechanism, Selection) for leaf in whole_event) else ()),
        *((_SHUFFLED,) if any(leaf.scheme == "shuffled" for leaf in found) else ()),
        *((_SAMPLED,) if any(not leaf.is_whole for leaf in unshuffled(found)) else ()),
    )
