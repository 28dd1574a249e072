r"""The grid route: any composition on a lattice, between a law that dominates it and one that it dominates, composed by tilted FFT.

Few releases, sparse samples, Laplace noise and pairs with a kink, alone or together, are all the same to it. Whole Gaussian releases are
merged into one first. The step is refined until the bracket is narrow enough or the grid is as large as is reasonable; a wider bracket is
returned as it is. proofs/fft.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from accountants import deadline
from accountants.convolution import Composition, Window
from accountants.dominating import pair_of, unsupported_reason
from accountants.events import Event, Leaf, leaves, non_private_reason
from accountants.grid import Floats, GridLaw, Indices, Lattice
from accountants.hockey_stick import reverse
from accountants.layout import Estimates, Losses, Saddle
from accountants.pairs import Family, Mixture, Pair, narrowed, widened
from accountants.profile import Accountant, Bound, DeltaBound, NonPrivateProfile, PrivacyProfile, check_delta, check_epsilon
from accountants.rdp import leaf_steps
from mechanisms.base import Step
from mechanisms.errors import NumericalFloor, UnsupportedEvent

ROUTE = "fft"

WIDTH = 1e-6
"""Width of a bracket that is aimed at, relative to epsilon."""

MOST_POINTS = 2**21
"""Largest window of the composed law."""

MOST_NODES = 2**20
"""Most nodes of the leaves' laws together."""

SMALLEST_LOG_DELTA = -600.0
"""Below e^-600 masses underflow."""

MOST_RELEASES = 10**12
"""Beyond it rounding, multiplied by the number of releases, is all there is to see."""

_COARSE, _POOR = 3.0, 0.1
_MOST_TRIALS = 4000
_MOST_ROUNDS = 5
_KEPT = 4


@final
@dataclass
class _Layer:
    """One direction at one step: its upper law, and its lower law where it was asked for."""

    upper: Composition
    lower: Composition | None
    step: float
    finest: bool


@final
class _Plan:
    """One direction of neighbours, laid out around one delta or epsilon."""

    def __init__(self, pairs: tuple[tuple[Pair, int], ...], estimates: Estimates, saddle: Saddle) -> None:
        self._pairs, self._estimates, self.saddle = pairs, estimates, saddle
        self._edges = estimates.edges(saddle)

    def step(self) -> float:
        """Step whose bracket should be about half as wide as is aimed at."""
        saddle = self.saddle
        spread = sum(count * leaf.spread_share(saddle.tilt) for leaf, count in self._estimates.leaves)
        epsilon = max(saddle.epsilon, 1e-3 * saddle.spread)
        step = math.sqrt(2.5 * WIDTH * epsilon / (max(spread, 1e-6) * (1.0 + saddle.slope)))
        return max(min(step, 0.1 * max(saddle.spread, 1.0 / saddle.tilt)), 1e-11 * self._estimates.scale)

    def layer(self, step: float, both: bool) -> _Layer:
        """The composed laws at about this step, or at the finest that is allowed if that is larger."""
        finest = False
        while True:
            step = self._aligned(step)
            starts = [self._start(leaf, count, step) for leaf, count in self._estimates.leaves]
            window = self._window(starts, step)
            lattices: list[tuple[float, Indices]] = []
            excess = window.size / MOST_POINTS
            if excess <= 1.0:
                weight = math.exp(min(self.saddle.excess, 100.0))
                leaves = (leaf for leaf, _ in self._estimates.leaves)
                lattices = [
                    (start, leaf.indices(start, step, self.saddle.tilt, weight)) for start, leaf in zip(starts, leaves, strict=True)
                ]
                excess = sum(len(index) for _, index in lattices) / MOST_NODES
            if excess <= 1.0:
                break
            finest = True
            step *= 1.1 * min(excess, 1.9)
        upper = Composition(self._laws(lattices, step, widened, Lattice.upper), window, upper=True)
        lower = None
        if both:
            # Atoms of the narrowed pair must not lie below their nodes, nor so close above them that rounding hides it.
            lattices = [(start - 1e-9 * step, index) for start, index in lattices]
            laws = self._laws(lattices, step, narrowed, Lattice.lower)
            if all(len(law.masses) for law, _ in laws):
                lower = Composition(laws, window, upper=False)
        return _Layer(upper, lower, step, finest)

    def _laws(
        self, lattices: list[tuple[float, Indices]], step: float, version: Callable[[Pair], Pair], kind: Callable[[Lattice], GridLaw]
    ) -> tuple[tuple[GridLaw, int], ...]:
        return tuple(
            (kind(Lattice(version(pair), start, step, index)), count)
            for (pair, count), (start, index) in zip(self._pairs, lattices, strict=True)
        )

    def _aligned(self, step: float) -> float:
        """The largest step not above this one that puts both ends of the first Laplace loss on the lattice, and others nearly."""
        distances = [leaf.atoms[1] - leaf.atoms[0] for leaf, _ in self._estimates.leaves if len(leaf.atoms) > 1]
        if not distances:
            return step
        least = math.ceil(distances[0] / step * (1.0 - 1e-12))
        parts: Floats = np.asarray(np.arange(least, least + min(least, _MOST_TRIALS) + 1), dtype=np.float64)
        ratios: Floats = np.asarray(distances[1:])[:, None] * (parts / distances[0])
        miss: Floats = np.max(np.abs(ratios - np.round(ratios)), axis=0, initial=0.0)
        return float(distances[0] / parts[int(np.argmin(np.round(miss, 4)))])

    def _start(self, leaf: Losses, count: int, step: float) -> float:
        """Loss at index 0."""
        first, last = leaf.first(self.saddle.tilt, count), max(float(leaf.losses[-1]), 0.0)
        anchor = first
        if leaf.atoms:
            anchor = leaf.atoms[0]
        elif leaf.high - last < 4.0 * step:
            anchor = leaf.high
        elif first - leaf.low < 4.0 * step:
            anchor = leaf.low
        start = anchor - step * math.ceil((anchor - first) / step - 1e-9)
        return start if start < -1e-6 * step else start - step * math.ceil(start / step + 1.0)

    def _window(self, starts: list[float], step: float) -> Window:
        saddle, (before, after) = self.saddle, self._edges
        start, top = 0.0, 0
        for begin, (leaf, count) in zip(starts, self._estimates.leaves, strict=True):
            start += count * begin
            top += count * leaf.last_index(begin, step)
        reach = 2.0 / saddle.tilt
        first, last = saddle.epsilon - reach, saddle.epsilon + reach
        # Nothing may wrap around: from the right edge to the first point, from the left one to the end of the last point's kernel.
        left, right = max(before.loss, start), min(after.loss, start + step * top)
        period = max(right - first, last + saddle.kernel - left) / step + 8.0
        low = math.floor((first - start) / step)
        size = max(2 ** math.ceil(math.log2(period)), 1024)
        return Window(
            saddle.tilt, low, low + math.ceil((last - first) / step) + 2, size, math.ceil(saddle.kernel / step), before.tilt, after.tilt
        )


def epsilon_upper(composition: Composition, log_delta: float) -> float:
    """An epsilon at which this upper law's delta is at most e^log_delta; infinity where the window has none."""
    first, last = _range(composition)
    if first >= last:
        return math.inf if composition.is_upper else 0.0
    low, high = _crossing(composition, log_delta, first, last)
    if high > last:
        return math.inf
    if low < first:
        return max(0.0, _rounded_loss(composition, high, 1.0))
    left, right = composition.log_delta(low), composition.log_delta(high)
    # The true curve is convex in e^eps, so it lies below the chord between two upper bounds.
    share = min(1.0, math.expm1(log_delta - left) / math.expm1(right - left) * (1.0 + 1e-9))
    return max(0.0, _rounded_loss(composition, low, 1.0) + math.log1p(share * math.expm1(composition.step)) * (1.0 + 1e-14))


def epsilon_lower(composition: Composition, log_delta: float) -> float:
    """An epsilon up to which this lower law's delta, and so the true one, is above e^log_delta; 0 where none is known."""
    first, last = _range(composition)
    if first >= last:
        return math.inf if composition.is_upper else 0.0
    low, high = _crossing(composition, log_delta, first, last)
    if low < first:
        return 0.0
    if high > last:
        return max(0.0, _rounded_loss(composition, last, -1.0))
    left, right = composition.log_delta(low), composition.log_delta(high)
    # The lower law's own curve is linear between nodes.
    share = math.expm1(log_delta - left) / math.expm1(right - left) * (1.0 - 1e-9)
    return max(0.0, _rounded_loss(composition, low, -1.0) + math.log1p(share * math.expm1(composition.step)) * (1.0 - 1e-14))


def log_delta_bound(composition: Composition, epsilon: float) -> float:
    """log of a bound on delta(epsilon), upper or lower as the law is: linear between nodes. Flat outside of the window."""
    first, last = _range(composition)
    if first > last:
        return 0.0 if composition.is_upper else -math.inf
    # delta falls with epsilon: it is taken where rounding of the lattice's losses can only be on the safe side.
    error = 2.0 * max(composition.loss_error(first), composition.loss_error(last))
    moved = epsilon - error if composition.is_upper else epsilon + error
    place = math.floor((moved - composition.start) / composition.step)
    if place < first:
        return 0.0 if composition.is_upper else composition.log_delta(first)
    if place >= last:
        return composition.log_delta(last) if composition.is_upper else -math.inf
    share = math.expm1(moved - composition.loss(place)) / math.expm1(composition.step)
    share = min(max(share * (1.0 - 1e-9 if composition.is_upper else 1.0 + 1e-9), 0.0), 1.0)
    left, right = composition.log_delta(place), composition.log_delta(place + 1)
    if left == -math.inf:
        return -math.inf
    value = left + math.log1p(share * math.expm1(min(right - left, 0.0))) if share < 1.0 or right > -math.inf else -math.inf
    return min(value + (1e-14 if composition.is_upper else -1e-14) * (1.0 + abs(value)), 0.0)


def _range(composition: Composition) -> tuple[int, int]:
    """Lattice indices of losses about >= 0 inside the window."""
    zero = math.floor(-composition.start / composition.step)
    window = composition.window
    return max(window.first, zero), window.last


def _crossing(composition: Composition, log_delta: float, first: int, last: int) -> tuple[int, int]:
    """Neighbours (low, high) with the bound above e^log_delta at low and not above it at high; first - 1 or last + 1 at the ends."""
    low, high = first - 1, last + 1
    while high - low > 1:
        middle = (low + high) // 2
        if composition.log_delta(middle) > log_delta:
            low = middle
        else:
            high = middle
    return low, high


def _rounded_loss(composition: Composition, index: int, direction: float) -> float:
    return composition.loss(index) + direction * composition.loss_error(index)


def merged(parts: Mapping[Leaf, int]) -> tuple[tuple[Pair, int], ...]:
    """Pairs with counts: whole Gaussian releases together are one, with the root of the sum of squares."""
    counts: dict[Pair, int] = {}
    squares: list[float] = []
    for leaf, count in parts.items():
        pair = pair_of(leaf)
        if pair.is_whole and pair.family is Family.GAUSSIAN:
            squares.append(count * (pair.upper.shifts[0] - pair.lower.shifts[0]) ** 2)
        else:
            counts[pair] = counts.get(pair, 0) + count
    if squares:
        mu = math.sqrt(math.fsum(squares))
        counts[Pair(Family.GAUSSIAN, Mixture((1.0,), (mu,)), Mixture((1.0,), (0.0,)))] = 1
    return tuple(counts.items())


@final
class FftProfile(PrivacyProfile):
    """The profile of a composition on a lattice."""

    def __init__(self, parts: Mapping[Leaf, int], name: str = ROUTE) -> None:
        self._parts, self._name = parts, name
        pairs = merged(parts)
        self._sides = [pairs]
        if not all(pair.symmetric for pair, _ in pairs):
            self._sides.append(tuple((reverse(pair), count) for pair, count in pairs))
        self._kept: list[list[_Layer]] = [[] for _ in self._sides]

    @property
    def route(self) -> str:
        return self._name

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        log_delta = math.log(delta)
        _check_floor(log_delta)

        def ends(layer: _Layer) -> tuple[float, float]:
            low = epsilon_lower(layer.lower, log_delta) if layer.lower is not None else 0.0
            return low, epsilon_upper(layer.upper, log_delta)

        low, high = self._bracket([_Plan(side, *Estimates.for_delta(side, log_delta)) for side in self._sides], ends, _width_of)
        if 0.0 < high < math.inf and high - low > _POOR * high:
            # The estimate of epsilon was far off, and the lattices lie elsewhere: once more, around the upper end.
            self._kept = [[] for _ in self._sides]
            plans = [_Plan(side, *Estimates.for_epsilon(side, high)) for side in self._sides]
            again = self._bracket(plans, ends, _width_of)
            low, high = max(low, again[0]), min(high, again[1])
        if high == math.inf:
            raise NumericalFloor("delta", delta, math.exp(SMALLEST_LOG_DELTA), "no lattice of reasonable size holds this event's losses")
        return Bound(lower=low, upper=high, route=self.route)

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=self.route)
        plans = [_Plan(side, *Estimates.for_epsilon(side, epsilon)) for side in self._sides]
        tilt = max(plan.saddle.tilt for plan in plans)

        def ends(layer: _Layer) -> tuple[float, float]:
            low = log_delta_bound(layer.lower, epsilon) if layer.lower is not None else -math.inf
            return low, log_delta_bound(layer.upper, epsilon)

        low, high = self._bracket(plans, ends, lambda _low, _high: max(WIDTH * epsilon * tilt, 1e-9))
        return DeltaBound(log_lower=low, log_upper=high, route=self.route)

    def _bracket(
        self, plans: list[_Plan], ends: Callable[[_Layer], tuple[float, float]], allowed: Callable[[float, float], float]
    ) -> tuple[float, float]:
        """(largest lower end, largest upper end) over the directions, the direction with the larger upper end refined until it will do."""
        found = [self._known(index, ends) for index in range(len(self._sides))]
        steps = [plan.step() for plan in plans]
        rough = [len(self._sides) > 1] * len(self._sides)
        for _ in range(_MOST_ROUNDS * len(self._sides)):
            for index, known in enumerate(found):
                if known is None:
                    found[index] = self._refined(
                        index, plans[index], steps[index] * (_COARSE if rough[index] else 1.0), ends, not rough[index]
                    )
            answers = [one for one in found if one is not None]
            top = int(np.argmax([high for _, high, _ in answers]))
            low, high, layer = max(low for low, _, _ in answers), answers[top][1], answers[top][2]
            if high - low <= allowed(low, high) or high == low or (not rough[top] and (layer.finest or layer.lower is None)):
                break
            if not rough[top]:
                steps[top] = layer.step * min(max(math.sqrt(0.6 * allowed(low, high) / (high - low)), 0.2), 0.7)
            rough[top] = False
            deadline.check()
            better = self._refined(top, plans[top], steps[top], ends, True)
            found[top] = (max(better[0], answers[top][0]), min(better[1], answers[top][1]), better[2])
        answers = [one for one in found if one is not None]
        return max(low for low, _, _ in answers), max(high for _, high, _ in answers)

    def _refined(
        self, index: int, plan: _Plan, step: float, ends: Callable[[_Layer], tuple[float, float]], both: bool
    ) -> tuple[float, float, _Layer]:
        layer = plan.layer(step, both)
        self._kept[index] = [*self._kept[index][-_KEPT + 1 :], layer]
        return (*ends(layer), layer)

    def _known(self, index: int, ends: Callable[[_Layer], tuple[float, float]]) -> tuple[float, float, _Layer] | None:
        """The best answer of the laws composed before, if any of them has one."""
        answers = [(*ends(layer), layer) for layer in self._kept[index] if layer.lower is not None]
        answers = [answer for answer in answers if math.isfinite(answer[1])]
        return min(answers, key=lambda answer: answer[1] - answer[0], default=None)

    def derivation(self) -> tuple[Step, ...]:
        return (
            *leaf_steps(self._parts),
            Step(
                symbol="delta(eps)",
                value="E[(1 - e^(eps - L))_+] of the composed privacy loss L, the larger of both directions",
                formula="between a lattice law that dominates the event and one that it dominates, both composed by tilted FFT",
                source="proofs/fft.md",
            ),
        )


def fft_profile(parts: Mapping[Leaf, int]) -> FftProfile:
    """The profile of leaves with their counts, all of which ``unsupported_parts`` accepts."""
    return FftProfile(parts)


def unsupported_parts(parts: Mapping[Leaf, int]) -> str | None:
    """Why these leaves can't be put on a lattice, or None."""
    for leaf in parts:
        if (reason := unsupported_reason(leaf)) is not None:
            return reason
    if sum(parts.values()) > MOST_RELEASES:
        return f"more than {MOST_RELEASES:.0e} releases: their rounding would be all there is to see"
    return None


def _width_of(_low: float, high: float) -> float:
    return WIDTH * high


def _check_floor(log_delta: float) -> None:
    if log_delta < SMALLEST_LOG_DELTA:
        raise NumericalFloor("delta", math.exp(log_delta), math.exp(SMALLEST_LOG_DELTA), "masses this small underflow on a lattice")


@final
class FftAccountant(Accountant):
    """Gaussian, complex Gaussian and Laplace releases, sampled in any way, in any composition."""

    name = ROUTE
    summary = (
        "Lattice laws above and below the event, composed by tilted FFT with every rounding bounded; for few or sparse releases and atoms."
    )
    sources = ("proofs/fft.md", "Doroshenko et al. 2022, arXiv:2207.04380", "Gopi, Lee and Wutschitz 2021, arXiv:2106.02848")

    def unsupported(self, event: Event) -> str | None:
        if non_private_reason(event) is not None:
            return None
        return unsupported_parts(leaves(event))

    def profile(self, event: Event) -> PrivacyProfile:
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        parts = leaves(event)
        if (reason := unsupported_parts(parts)) is not None:
            raise UnsupportedEvent(self.name, reason)
        return FftProfile(parts)
