r"""How much processor time an answer takes at least, predicted before it is begun, so that what is far too much can be refused at once.

A prediction counts what an accountant can't do without: a transform and a contour for each distinct release, a curve for each random
allocation, a search for each kind of point that needs one. It multiplies the counts with factors below what was measured
(``python -m benchmarks costs``), in units of a small profile that is timed on this machine. It is no bound: nothing is proven of time, and
whoever refuses by it keeps a margin. What it knows nothing about it predicts to take none.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, final

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.allocation.summand import LARGEST_SQUARE
from zetadp.accountants.events import Event, leaves, non_private_reason
from zetadp.accountants.failing import split
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.accountants.routes.fft.fft import FftAccountant, merged
from zetadp.accountants.routes.single.coupled import log_total_variation
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity

PREDICTED = (AutoAccountant.name, ContourAccountant.name, FftAccountant.name)
"""Accountants whose costs are predicted."""

LEAST_UNITS = 1000.0
"""A cost of fewer units isn't predicted: it is a fraction of a second, and ordinary questions have no need of it."""

EACH = 0.5
"""Units for each release of the contour: its transform, and its share of the first point."""
EACH_CONTOUR = 0.05
"""Units for each release of the contour and each further point that is so far from the others that it hardly shares their contours."""
FAR_NATS = 7.0
"""How far deltas are apart that have contours of their own; of epsilons each power of two has one. Nearer ones may cost next to nothing."""
EACH_SEARCH = 2.0
"""Units for each release of the contour, if a point of the trade-off is asked for: delta is then searched at many epsilons."""
EACH_CURVE = 1500.0
"""Units for the curve of a random allocation."""
KEPT_CURVES = 8
"""So many curves may be known from an earlier question."""

_REPETITIONS = 5


@final
class Points(NamedTuple):
    r"""What is asked of an event's profile.

    Attributes:
      log_deltas: at which epsilon is asked; < 0.
      epsilons: at which delta is asked.
      searches: whether a point of the trade-off is asked.
    """

    log_deltas: frozenset[float]
    epsilons: frozenset[float]
    searches: bool


def predicted_seconds(event: Event, accountant: Accountant, points: Points) -> float:
    """Processor time on this machine; 0 if it is short, or unknown."""
    if accountant.name not in PREDICTED or non_private_reason(event) is not None:
        return 0.0
    parts, failure = split(leaves(event))
    curves = _curves(parts)
    if failure != 0 or _units(len(parts), curves, points) < LEAST_UNITS:
        return 0.0
    releases = _releases(parts, accountant)
    units = _units(releases, _laid_out(parts, curves), _without_zeros(parts, points) if releases else points)
    return units * unit_seconds() if units >= LEAST_UNITS else 0.0


def _units(releases: int, curves: int, points: Points) -> float:
    deltas = {math.floor(log_delta / FAR_NATS) for log_delta in points.log_deltas}
    epsilons = {math.frexp(epsilon)[1] for epsilon in points.epsilons if 0.0 < epsilon < math.inf}
    contours = len(deltas) + len(epsilons)
    if not contours and not points.searches:
        return 0.0
    each = EACH + EACH_CONTOUR * max(0, contours - 1) + (EACH_SEARCH if points.searches else 0.0)
    return releases * each + curves * EACH_CURVE


def _curves(parts: Mapping[Leaf, int]) -> int:
    """Distinct random allocations beyond those whose curve may be known."""
    distinct = {(leaf.mechanism.privacy_loss(), leaf.steps) for leaf in parts if leaf.scheme == "random_allocation"}
    return max(0, len(distinct) - KEPT_CURVES)


def _laid_out(parts: Mapping[Leaf, int], curves: int) -> int:
    """So many of these curves as are laid out: none if one of them can't be, since Renyi accounting answers then."""
    if not curves or FftAccountant().unsupported_parts(parts) is not None:
        return 0
    squares = (leaf.mechanism.privacy_loss().renyi(2.0) for leaf in parts if leaf.scheme == "random_allocation")
    return curves if all(square <= 0.99 * LARGEST_SQUARE for square in squares) else 0


def _releases(parts: Mapping[Leaf, int], accountant: Accountant) -> int:
    """Distinct releases whose moments a contour runs through: no whole Gaussian ones, which are one."""
    if accountant.name == FftAccountant.name or any(leaf.scheme == "random_allocation" for leaf in parts):
        return 0
    if ContourAccountant().unsupported_parts(parts) is not None:
        return 0
    return len(merged(parts))


def _without_zeros(parts: Mapping[Leaf, int], points: Points) -> Points:
    """Without the deltas above the probability that anything differs: epsilon is 0 there, and no contour is needed."""
    if not points.log_deltas:
        return points
    most = log_total_variation(parts)
    return points._replace(log_deltas=frozenset(log_delta for log_delta in points.log_deltas if log_delta < most))


@lru_cache(maxsize=1)
def unit_seconds() -> float:
    """Processor time of epsilon for DP-SGD with a noise multiplier that nobody asked for before: the least of some."""
    draw = random.Random(0)  # noqa: S311 - nothing is kept secret with it
    moves = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
    times: list[float] = []
    for _ in range(_REPETITIONS):
        leaf = Leaf(0.01, Gaussian(std=draw.uniform(0.9, 1.1), sensitivity=moves))
        begun = time.thread_time()
        ContourAccountant().of_parts({leaf: 1000}).epsilon(1e-5)
        times.append(time.thread_time() - begun)
    return min(times)
