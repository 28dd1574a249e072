r"""Loss distributions of a composition's leaves on one lattice, and their composition, for one direction of neighbours.

Estimates choose the positions of the nodes here; every choice gives bounds from above and below. proofs/fft.md, section 6
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.grids.convolution import Composition, Window
from zetadp.accountants.grids.grid import Floats, GridLaw, Indices, Lattice, Stretches
from zetadp.accountants.grids.hockey_stick import calls, puts
from zetadp.accountants.grids.layout import Estimates, Saddle
from zetadp.accountants.grids.losses import Losses
from zetadp.accountants.largest_loss import least_loss
from zetadp.accountants.pairs import SHIFT_ERROR, Pair, stretched
from zetadp.mechanisms.errors import UnsupportedEvent

Laws: TypeAlias = tuple[tuple[GridLaw, int], ...]

WIDTH = 1e-6
"""Target width of a bracket, relative to epsilon."""

MOST_POINTS = 2**21
"""Largest window of the composed distribution."""

MANY_POINTS = 2**17
"""A window with more takes so long that a bracket several times as wide is kept."""

MOST_NODES = 2**20
"""The most nodes of all leaves' distributions together."""

COARSE, _COARSEST, _APART = 3.0, 30.0, 0.1
"""Factors of a step at which an upper end is cheap, and the share of the distance to the other direction's epsilon that it may miss."""

_MOST_TRIALS = 4000

_AT_END = 4.0
"""Steps from an end of the losses within which a law begins or ends there."""

_CLUSTER = 0.1
"""Share of a step within which losses are nearly the same."""

_ATOM_ERROR = 1e-12
"""About how well the place of an atom is known, relative to its loss."""

_REACHES = 0, 1, 3
"""How many nodes beside those next to each loss are tried, where the curve is straight between losses."""

_FEW = 128
"""So many losses at most are looked at one by one."""

_LEAST_STEP, _STEPS = 0.96, 300
"""Steps that are tried so that few losses are near nodes: from this share of one on, and how many."""

_LEAST_GROWTH = 1.05
"""A step that is too fine grows by at least this factor."""


@final
class _Layout(NamedTuple):
    """Where a layer's nodes are; ``finest``: the step is the least that is allowed."""

    step: float
    finest: bool
    starts: list[float]
    stretches: list[Stretches]
    window: Window


@final
@dataclass
class Layer:
    """One direction at one step: its upper law, and its lower law if requested."""

    upper: Composition
    lower: Composition | None
    step: float
    finest: bool


@final
class Plan:
    """One direction of neighbours, laid out around one delta or epsilon.

    Args:
      pairs: with their counts.
      estimates: of their losses.
      saddle: what to lay it out around.
      error: relative distance by which the laws above and below stretch and shrink the pairs.
    """

    def __init__(self, pairs: tuple[tuple[Pair, int], ...], estimates: Estimates, saddle: Saddle, error: float = SHIFT_ERROR) -> None:
        self._pairs, self._estimates, self.saddle, self._error = pairs, estimates, saddle, error
        self._edges = estimates.edges(saddle)
        # Where the tilted law is almost nowhere near epsilon, its rounding would hide what is there.
        split = estimates.split(saddle.excess, saddle.epsilon, saddle.log_delta) if saddle.size < saddle.log_moment else None
        self._jump, self._bulk = (-math.inf, 0.0) if split is None or split.tilt <= saddle.tilt else (split.jump, split.tilt - saddle.tilt)

    def step(self, least: float = 0.0, wider: float = 1.0) -> float:
        """The step whose bracket should be about half as wide as the target: a share of epsilon, or of ``least`` if that is more.

        Up to ``wider`` times as large where it takes many points.
        """
        saddle = self.saddle
        spread = sum(count * leaf.spread_share(saddle.tilt) for leaf, count in self._estimates.leaves)
        epsilon = max(saddle.epsilon, 1e-3 * saddle.spread, least)
        step = math.sqrt(2.5 * WIDTH * epsilon / (max(spread, 1e-6) * (1.0 + saddle.slope)))
        step = max(min(step, self._largest_step), 1e-11 * self._estimates.scale)
        return max(step, min(step * self._excess(step, wider), self._largest_step))

    def finer_step(self, step: float, share: float, wider: float) -> float:
        """After one whose bracket was as wide as told: the step whose bracket should suffice, and not be much narrower.

        Args:
          share: of that width that is allowed.
          wider: as for ``step``.
        """
        finer = step * min(max(math.sqrt(0.6 * share), 0.2), 0.7)
        return min(finer * self._excess(finer, wider), 0.7 * step)

    def _excess(self, step: float, most: float) -> float:
        """By how much a step may be larger, as it takes many points."""
        return max(min(self._laid_out(step).window.size / MANY_POINTS, most), 1.0) if most > 1.0 else 1.0

    def coarse_step(self, step: float, below: float) -> float:
        """One at which an upper end is cheap: three times as large, or more where this direction is about so far below the other one."""
        wider = max(COARSE, min(math.sqrt(_APART * max(below, 0.0) / (WIDTH * max(self.saddle.epsilon, 1e-300))), _COARSEST))
        return max(COARSE * step, min(wider * step, self._largest_step))

    @property
    def _largest_step(self) -> float:
        """Beyond it neither the tilted law nor delta's slope is told apart."""
        return 0.3 * max(self.saddle.spread, 1.0 / self.saddle.tilt)

    def reachable(self, step: float) -> tuple[float, int]:
        """(the step that ``layer`` takes for this one, its points)"""
        found = self._laid_out(step)
        return found.step, found.window.size

    def _laid_out(self, step: float) -> _Layout:
        finest, step = False, self._aligned(step)
        while True:
            deadline.check()
            starts = [self._start(leaf, count, step) for leaf, count in self._estimates.leaves]
            window, period = self._window(starts, step)
            weight = math.exp(min(self.saddle.excess, 600.0))
            leaves = zip(starts, self._estimates.leaves, strict=True)
            stretches = [leaf.stretches(start, step, self.saddle.tilt, weight) for start, (leaf, _) in leaves]
            excess = max(period / MOST_POINTS, sum(one.size for one in stretches) / MOST_NODES)
            if excess <= 1.0:
                return _Layout(step, finest, starts, stretches, window)
            finest = True
            step = self._wider(step, step * max(min(1.02 * excess, 1.9), 1.1))

    def layer(self, step: float, both: bool) -> Layer:
        """The composed laws at about this step, or at the finest allowed step if that is larger."""
        step, finest, starts, stretches, window = self._laid_out(step)
        lattices = [(start, one.indices()) for start, one in zip(starts, stretches, strict=True)]
        if not all(start < 0.0 < start + step * float(index[-2]) for start, index in lattices):
            # Tilts for a delta close to 1 can leave a law whose losses, to the grid's precision, are all on one side.
            raise UnsupportedEvent("fft", "a release's losses lie on one side of 0 at the precision of its grid")
        above = tuple(
            (Lattice(stretched(pair, self._error), start, step, index).upper(), count)
            for (pair, count), (start, index) in zip(self._pairs, lattices, strict=True)
        )
        upper = Composition(above, window, upper=True)
        lower = None
        if both:
            tilt = self.saddle.tilt
            lost = WIDTH * tilt * max(self.saddle.epsilon, 0.0) / len(lattices)
            laws = tuple(
                (_lower_law(stretched(pair, -self._error), leaf, start, step, index, (tilt, _size(law, tilt) - lost / count)), count)
                for (pair, count), (leaf, _), (start, index), (law, _) in zip(
                    self._pairs, self._estimates.leaves, lattices, above, strict=True
                )
            )
            if all(len(law.masses) for law, _ in laws):
                window, _ = self._window([law.start for law, _ in laws], step)
                ends = [law.start + step * float(index[-1]) for (law, _), (_, index) in zip(laws, lattices, strict=True)]
                lower = Composition(self._with_ends(laws, min(ends), window), window, upper=False)
        return Layer(upper, lower, step, finest)

    def _with_ends(self, laws: Laws, end: float, window: Window) -> Laws:
        """The laws, with what they have at infinity only if it can't matter that their pairs have it nearer: beyond ``end``. (4.9)

        Whatever the other releases' losses are, at least their least ones, one beyond it exceeds the window's last epsilon by itself.
        """
        start, step = math.fsum(count * law.start for law, count in laws), laws[0][0].step
        below = [least_loss(stretched(pair, self._error)) for pair, _ in self._pairs]
        lowest = zip(laws, below, strict=True)
        least = math.fsum(n * min(law.start + step * float(law.index[0]), bound) for (law, n), bound in lowest)
        if start + step * (window.last + 1) - least * (1.0 + 1e-12) + step <= end:
            return laws
        return tuple((replace(law, infinity=0.0), count) for law, count in laws)

    def _aligned(self, step: float) -> float:
        """The largest step not above this one that puts both ends of the first Laplace loss on the lattice, and others nearly.

        Of several such the one that has outcomes with nearly the same loss nearest to nodes: what is inside cells costs a share of a step.
        """
        distances = [leaf.atoms[1] - leaf.atoms[0] for leaf, _ in self._estimates.leaves if len(leaf.atoms) > 1]
        if not distances:
            return self._near_nodes(step)
        least = math.ceil(distances[0] / step * (1.0 - 1e-12))
        parts: Floats = np.asarray(np.arange(least, least + min(least, _MOST_TRIALS) + 1), dtype=np.float64)
        ratios: Floats = np.asarray(distances[1:])[:, None] * (parts / distances[0])
        miss: Floats = np.max(np.abs(ratios - np.round(ratios)), axis=0, initial=0.0)
        for leaf, _ in self._estimates.leaves:
            if len(leaf.atoms) > 1:
                places, shares = leaf.clusters(self.saddle.tilt, _CLUSTER * step)
                ratios = (places - leaf.atoms[0])[:, None] * (parts / distances[0])
                miss = miss + shares @ np.abs(ratios - np.round(ratios))
        return float(distances[0] / parts[int(np.argmin(np.round(miss, 4)))])

    def _near_nodes(self, step: float) -> float:
        """A step not far below this one whose nodes are just below most of what has few losses and none of them as atoms."""
        both = zip(self._pairs, self._estimates.leaves, strict=True)
        leaves = [(count, leaf) for (pair, _), (leaf, count) in both if _is_sparse(pair, leaf)]
        steps: Floats = step * np.linspace(_LEAST_STEP, 1.0, _STEPS) if leaves else np.array([step])
        lost = sum(count * steps * leaf.offsets(steps, self.saddle.tilt).min(axis=1) for count, leaf in leaves)
        return float(steps[int(np.argmin(lost))])

    def _wider(self, step: float, wanted: float) -> float:
        """A step clearly above this one, about ``wanted``, with the first atoms on the lattice. Raises UnsupportedEvent if none exists."""
        wider = self._aligned(wanted)
        if wider > _LEAST_GROWTH * step:
            return wider
        # The best alignment would be where the search comes from, so the search would never end.
        distance = next(leaf.atoms[1] - leaf.atoms[0] for leaf, _ in self._estimates.leaves if len(leaf.atoms) > 1)
        wider = distance / max(1, math.floor(distance / wanted))
        if not wider > step:
            raise UnsupportedEvent("fft", "its window would need more points than a grid has, at the largest step that its atoms allow")
        return wider

    def _start(self, leaf: Losses, count: int, step: float) -> float:
        """Loss at index 0."""
        first, last = leaf.first(self.saddle.tilt, count), max(float(leaf.losses[-1]), 0.0)
        anchor = first
        if leaf.atoms:
            anchor = leaf.atoms[0]
        elif leaf.high - last < _AT_END * step:
            anchor = leaf.high
        elif first - leaf.low < _AT_END * step:
            anchor = leaf.low
        start = anchor - step * math.ceil((anchor - first) / step - 1e-9)
        return start if start < -1e-6 * step else start - step * math.ceil(start / step + 1.0)

    def _window(self, starts: list[float], step: float) -> tuple[Window, float]:
        """(the window, how many points it has to have)"""
        saddle, (before, after) = self.saddle, self._edges
        start, top = 0.0, 0
        for begin, (leaf, count) in zip(starts, self._estimates.leaves, strict=True):
            start += count * begin
            top += count * leaf.last_index(begin, step)
        reach = self._estimates.window_reach / saddle.tilt
        first, last = saddle.epsilon - reach, saddle.epsilon + reach
        # Nothing may wrap around: from the right edge to the first point, or from the left edge to the end of the last point's kernel.
        left, right = max(before.loss, start), min(after.loss, start + step * top)
        period = max(right - first, last + saddle.kernel - left) / step + 8.0
        low = math.floor((first - start) / step)
        size = max(2 ** math.ceil(math.log2(period)), 1024)
        last_point, kernel = low + math.ceil((last - first) / step) + 2, math.ceil(saddle.kernel / step)
        return Window(saddle.tilt, low, last_point, size, kernel, before.tilt, after.tilt, self._jump, self._bulk), period


def _lower_law(pair: Pair, leaf: Losses, start: float, step: float, index: Indices, aim: tuple[float, float]) -> GridLaw:
    """The lower law of one leaf, of several placements of its nodes the one that loses least.

    Atoms must not be below their nodes, nor so close above them that rounding hides it: hence 1e-9 of a step, or more of it where losses
    are large beside a step. What is inside one cell moves down to its node, unless a node is where those outcomes are when merged: nearly
    all of a sparse release may be at an end of its losses. (3.6)

    Args:
      aim: the tilt, and the size there from which on a law loses so little that another placement isn't worth its time.
    """
    tilt, enough = aim
    below = max(1e-9 * step, _ATOM_ERROR * max((abs(atom) for atom in leaf.atoms), default=0.0))
    if pair.family.is_discrete and pair.family.is_infinitesimal:
        nodes = [_near_losses(leaf, start - below, step, index, reach) for reach in _REACHES]
        return max((Lattice(pair, start - below, step, near).lower() for near in nodes), key=lambda law: _size(law, tilt))
    placed = Lattice(pair, start - below, step, index)
    if _is_sparse(pair, leaf):
        # A node just below one of the losses, the one that leaves least of the others above theirs; and one more before the first.
        anchor = float(leaf.likeliest(tilt)[int(np.argmin(leaf.offsets(np.array([step]), tilt)))])
        placed = Lattice(pair, anchor - below - step * math.ceil((anchor - start) / step), step, np.append(0, index + 1))
    laws = [placed.lower()]
    if _size(laws[0], tilt) < enough and (moved := _merging(pair, leaf, start, step, index)) is not None:
        laws.append(moved.lower())
    return max(laws, key=lambda law: _size(law, tilt))


def _near_losses(leaf: Losses, start: float, step: float, index: Indices, reach: int) -> Indices:
    """Those of the nodes that are next to a loss, to 0 or to an end: between losses the curve is straight, and its rounding is not.

    Args:
      reach: how many nodes more before and behind each.
    """
    places = np.floor((np.append(leaf.losses, 0.0) - start) / step)
    near = np.concatenate([places + k for k in range(-reach, reach + 2)])
    kept = np.isin(index, near)
    kept[:2] = kept[-2:] = True
    return index[kept]


def _is_sparse(pair: Pair, leaf: Losses) -> bool:
    """Whether losses are so few that they can be near nodes, as of noise on whole numbers, and none of them has to be at one."""
    return pair.family.is_discrete and not leaf.atoms and len(leaf.losses) <= _FEW


def _merging(pair: Pair, leaf: Losses, start: float, step: float, index: Indices) -> Lattice | None:
    """A lattice with a node where the outcomes next to an end of the losses are when merged; None if no node is near an end.

    No lattice either if it would lie on one side of 0.
    """
    if start - leaf.low < 0.5 * step:
        merged = start
        for _ in range(4):
            merged = merged_below(pair, merged + 0.5 * step)
        # Outcomes before the node are moved up to it, which takes another one before them.
        moved, index = merged + 1e-9 * step - step, np.append(0, index + 1)
    elif not leaf.atoms and leaf.high - float(leaf.losses[-1]) < _AT_END * step:
        merged = leaf.high
        for _ in range(4):
            merged = merged_above(pair, merged - 0.5 * step)
        moved = merged - 1e-9 * step - step * math.ceil((merged - start) / step)
    else:
        return None
    return Lattice(pair, moved, step, index) if moved < -1e-12 * step and moved + step * float(index[-2]) > 0.0 else None


def _size(law: GridLaw, tilt: float) -> float:
    """log of the law's moment: of two laws below the same pair the one with the larger loses less. No number where there is no law."""
    if len(law.masses) == 0:
        return -math.inf
    exponent = np.log(law.masses) + tilt * (law.start + law.step * law.index)
    peak = float(exponent.max())
    return peak + math.log(float(np.exp(exponent - peak).sum()))


def merged_below(pair: Pair, edge: float) -> float:
    """Approximate log P(L < edge) / Q(L < edge)."""
    if edge < 0.0:
        under = puts(pair, np.array([edge]))
        mass = float(under.tail[0])
        return edge + math.log1p(-float(under.lower[0]) / mass) if mass > float(under.lower[0]) else edge
    over = calls(pair, np.array([edge]))
    value, slope = float(over.lower[0]), float(over.tail[0])
    rest = 1.0 - slope * math.exp(-edge)
    gain = value - slope * math.expm1(-edge)
    return math.log1p(-gain / rest) if gain < rest else edge


def merged_above(pair: Pair, edge: float) -> float:
    """Approximate log P(L > edge) / Q(L > edge)."""
    if edge < 0.0:
        under = puts(pair, np.array([edge]))
        value, slope = float(under.lower[0]), float(under.tail[0])
        rest = 1.0 - slope * math.exp(-edge)
        return math.log1p((value - slope * -math.expm1(-edge)) / rest) if rest > 0.0 else edge
    over = calls(pair, np.array([edge]))
    slope = float(over.tail[0])
    return edge + math.log1p(float(over.lower[0]) / slope) if slope > 0.0 else edge
