r"""What was done to the data, as a tree: mechanisms released, samplings, repetitions and compositions. Pure data.

An event says everything that an accountant needs, and its meaning never changes. Accountants see it only through ``leaves``: a flat list of
(sampled release, count), so none of them walks the tree or counts by itself. ``dominating`` gives a leaf's dominating pair.
To show people what was released, use ``releases``, where a local release of many coordinates is still one.
"""

from __future__ import annotations

from zetadp.accountants.events.flattening import LARGEST_COUNT, SMALLEST_PROBABILITY, leaves, releases
from zetadp.accountants.events.kinds import (
    LARGEST_GROUP,
    MAXIMUM_DEPTH,
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
    children,
    depth,
    neighbourhood,
    non_private_reason,
)

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_GROUP",
    "MAXIMUM_DEPTH",
    "SMALLEST_PROBABILITY",
    "Composed",
    "Event",
    "FixedSizeSampled",
    "Grouped",
    "NonPrivate",
    "PoissonSampled",
    "RandomlyAllocated",
    "RandomlyWeighted",
    "Release",
    "Repeated",
    "RepeatedAndSelected",
    "Sampled",
    "Shuffled",
    "TruncatedPoissonSampled",
    "children",
    "depth",
    "leaves",
    "neighbourhood",
    "non_private_reason",
    "releases",
]
