r"""The grid route: any composition on a lattice, between a law that dominates it and one that it dominates, composed by tilted FFT.

It handles few releases, sparse samples, Laplace noise and pairs with a kink, alone or together, in the same way. Whole Gaussian releases
are first merged into one. The step is refined until the bracket is narrow enough or the grid is as large as is reasonable; a wider bracket
is then returned as it is. proofs/fft.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

from zetadp.accountants import deadline
from zetadp.accountants.accountant import Accountant
from zetadp.accountants.arithmetic import UNIT, within_floats
from zetadp.accountants.densities import GAUSSIAN
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.grids.convolution import Composition
from zetadp.accountants.grids.hockey_stick import reverse
from zetadp.accountants.grids.layers import COARSE, MANY_POINTS, WIDTH, Layer, Plan
from zetadp.accountants.grids.layout import Estimates
from zetadp.accountants.largest_loss import epsilon_from_largest, largest_loss
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, narrowed, widened
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.routes.fft.near_largest import epsilon_near_largest, log_delta_near_largest
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.accountants.routes.single.coupled import is_surely_zero, log_total_variation
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor
from zetadp.mechanisms.numerics.logspace import log_add

ROUTE = "fft"

SMALLEST_LOG_DELTA = -680.0
"""Below it delta is nearly as small as what is added for underflow."""

SMALLEST_DISTANCE, LARGEST_DISTANCE = 1e-12, 1e3
"""Distances of P from Q, in units of the noise, whose losses fit on a lattice."""

MOST_RELEASES = 10**12
"""Beyond it only rounding, multiplied by the number of releases, would be visible."""

_POOR, _NEAR = 0.1, 0.01
_HASTE = 1.6, 10.0
"""Where a grid takes long: by how much a step for epsilon may be larger, and how many times too wide a bracket is kept."""

_FINER = 0.8  # of a step: another one is hardly finer
_SURELY = 0.5
"""Share of the expected epsilon below which a direction's largest loss leaves it out."""

_NOTHING = -math.inf, 0.0  # a lower end of log delta, or of epsilon, that says nothing
_SMALL, _MOST_ROUNDS, _KEPT = 2**16, 5, 4


def epsilon_upper(composition: Composition, log_delta: float) -> float:
    """An epsilon at which this upper law's delta is at most e^log_delta; infinity if the window has none."""
    first, last = _range(composition)
    if first >= last:
        return math.inf if composition.is_upper else 0.0
    low, high = _crossing(composition, log_delta, first, last)
    if high > last:
        return math.inf
    if low < first:
        return max(0.0, _rounded_loss(composition, high, 1.0))
    left, right = composition.log_delta(low), composition.log_delta(high)
    # The true curve is convex in e^eps, so it is below the chord between two upper bounds.
    share = min(1.0, math.expm1(log_delta - left) / math.expm1(right - left) * (1.0 + 1e-9))
    return max(0.0, _rounded_loss(composition, low, 1.0) + math.log1p(share * math.expm1(composition.step)) * (1.0 + 1e-14))


def epsilon_lower(composition: Composition, log_delta: float) -> float:
    """An epsilon up to which this lower law's delta, and so the true one, is above e^log_delta; 0 if none is known."""
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
    """log of a bound on delta(epsilon), upper or lower like the law: linear between nodes, and flat outside the window."""
    first, last = _range(composition)
    if first > last:
        return 0.0 if composition.is_upper else -math.inf
    # delta falls with epsilon: it is evaluated where rounding of the lattice's losses can only be on the safe side.
    error = 2.0 * max(composition.loss_error(first), composition.loss_error(last))
    moved = epsilon - error if composition.is_upper else epsilon + error
    place = math.floor((moved - composition.start) / composition.step)
    if place < first:
        if not composition.is_upper:
            return composition.log_delta(first)
        # delta falls by at most the difference of e^epsilon, as Q(L > epsilon) is at most 1: epsilon = 0 is within an error of a node.
        last_loss = composition.loss(first) + error
        fall = math.exp(last_loss) - math.exp(moved) if last_loss < 1.0 else 1.0
        return min(log_add(composition.log_delta(first), math.log(max(fall, 1e-300))) + 1e-14, 0.0)
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
    """Lattice indices inside the window whose losses are >= 0, approximately."""
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
    """Pairs with counts; all whole Gaussian releases become one, with the root of the sum of squares."""
    counts: dict[Pair, int] = {}
    squares: list[float] = []
    for leaf, count in parts.items():
        pair = pair_of(leaf)
        mu = pair.family.gdp_mu(pair.distance) if pair.is_whole else None
        if mu is not None:
            squares.append(count * mu**2)
        else:
            counts[pair] = counts.get(pair, 0) + count
    if squares:
        total = math.sqrt(math.fsum(squares))
        counts[Pair(GAUSSIAN, Mixture((1.0,), (total,)), Mixture((1.0,), (0.0,)))] = 1
    return tuple(counts.items())


@final
class _Aim(NamedTuple):
    """How wide a bracket may be: a share of its upper end, or so much; the epsilon below which that no longer falls; and ``_HASTE``."""

    share: float
    fixed: float
    least: float
    wider: float
    enough: float


@final
class FftProfile(PrivacyProfile):
    """The profile of a composition on a lattice."""

    def __init__(self, parts: Mapping[Leaf, int], name: str = ROUTE) -> None:
        self._parts, self._name = parts, name
        pairs = merged(parts)
        self._sides = [pairs]
        if not all(pair.symmetric for pair, _ in pairs):
            self._sides.append(tuple((reverse(pair), count) for pair, count in pairs))
        self._largest = [math.fsum(n * largest_loss(widened(pair)) for pair, n in side) * (1.0 + 8.0 * UNIT) for side in self._sides]
        self._width = max([WIDTH, *(pair.family.width for pair, _ in pairs)])
        self._kept: list[list[Layer]] = [[] for _ in self._sides]

    @property
    def route(self) -> str:
        return self._name

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        if is_surely_zero(self._parts, math.log(delta)):
            return Bound(lower=0.0, upper=0.0, route=self.route)
        if max(self._largest) < math.inf:
            low, high = self._from_largest(math.log(delta))
            if high - low <= self._width * high:
                return Bound(lower=low, upper=high, route=self.route)
        if math.log(delta) < SMALLEST_LOG_DELTA:
            raise NumericalFloor("delta", delta, math.exp(SMALLEST_LOG_DELTA), "masses this small underflow on a lattice")
        with within_floats(self.route):
            low, high = self._epsilon(math.log(delta))
        if high == math.inf:
            raise NumericalFloor("delta", delta, math.exp(SMALLEST_LOG_DELTA), "no lattice of reasonable size holds this event's losses")
        return Bound(lower=low, upper=high, route=self.route)

    def _from_largest(self, log_delta: float) -> tuple[float, float]:
        """What the finite largest losses alone say: 0 and their sum, or more."""
        lows = [epsilon_from_largest([(narrowed(pair), count) for pair, count in side], log_delta) for side in self._sides]
        sides = zip(self._sides, self._largest, lows, strict=True)
        # A direction whose largest losses are below the other one's epsilon doesn't matter.
        highs = [
            largest if largest <= max(lows) else epsilon_near_largest([(widened(pair), n) for pair, n in side], largest, low, log_delta)
            for side, largest, low in sides
        ]
        return max(lows), max(highs)

    def _epsilon(self, log_delta: float) -> tuple[float, float]:
        def ends(layer: Layer) -> tuple[float, float]:
            low = epsilon_lower(layer.lower, log_delta) if layer.lower is not None else 0.0
            return low, epsilon_upper(layer.upper, log_delta)

        def bracket(plans: list[Plan]) -> tuple[float, float]:
            # No grid is laid where a direction's largest loss is surely below the other one's epsilon.
            expected = max(min(plan.saddle.epsilon, most) for plan, most in zip(plans, self._largest, strict=True))
            live = [plan if most > _SURELY * expected else None for plan, most in zip(plans, self._largest, strict=True)]
            low, high = self._bracket(live, ends, _Aim(self._width, 0.0, 0.0, *_HASTE))
            return low, max([high, *(most for most, plan in zip(self._largest, live, strict=True) if plan is None)])

        plans = [Plan(side, *Estimates.for_delta(side, log_delta)) for side in self._sides]
        low, high = bracket(plans)
        is_elsewhere = all(abs(plan.saddle.epsilon - high) > _NEAR * high for plan in plans)
        if 0.0 < high < math.inf and high - low > _POOR * high and is_elsewhere:
            # The estimate of epsilon was far off: try again around the upper end.
            self._kept = [[] for _ in self._sides]
            again = bracket([Plan(side, *Estimates.for_epsilon(side, high)) for side in self._sides])
            low, high = max(low, again[0]), min(high, again[1])
        return low, high

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=self.route)
        with within_floats(self.route):
            low, high = log_delta_near_largest(self._sides, self._largest, epsilon, self._width) or self._log_delta(epsilon)
        return DeltaBound(log_lower=low, log_upper=min(high, log_total_variation(self._parts), 0.0), route=self.route)

    def log_delta_upper(self, epsilon: float) -> float:
        """The upper end alone, by laws above at the step that should do: those below cost more, and a trade-off asks dozens of times."""
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return -math.inf
        with within_floats(self.route):
            plans = [
                Plan(side, *Estimates.for_epsilon(side, epsilon))
                for side, largest in zip(self._sides, self._largest, strict=True)
                if epsilon < largest
            ]
            high = _largest_upper(plans, epsilon)
        return min(high, log_total_variation(self._parts), 0.0)

    def _log_delta(self, epsilon: float) -> tuple[float, float]:
        plans = [
            Plan(side, *Estimates.for_epsilon(side, epsilon)) if epsilon < largest else None
            for side, largest in zip(self._sides, self._largest, strict=True)
        ]
        tilt = max((plan.saddle.tilt for plan in plans if plan is not None), default=0.0)
        if tilt == 0.0:
            return -math.inf, -math.inf

        def ends(layer: Layer) -> tuple[float, float]:
            low = log_delta_bound(layer.lower, epsilon) if layer.lower is not None else -math.inf
            return low, log_delta_bound(layer.upper, epsilon)

        # Delta to a share of WIDTH, or as well as epsilon is known to one.
        return self._bracket(plans, ends, _Aim(0.0, self._width * max(epsilon * tilt, 1.0), 1.0 / tilt, 1.0, 1.0))

    def _bracket(self, plans: Sequence[Plan | None], ends: Callable[[Layer], tuple[float, float]], aim: _Aim) -> tuple[float, float]:
        """(largest lower end, largest upper end) over the directions; the direction with the larger one is refined until it suffices.

        Args:
          plans: of each direction, at least one of them; None where delta is 0 for certain.
        """
        live = {index: plan for index, plan in enumerate(plans) if plan is not None}
        found = {index: self._known(index, ends, aim) for index in live}
        steps = {index: plan.step(aim.least, aim.wider) for index, plan in live.items()}
        rough = dict.fromkeys(live, len(live) > 1)
        expected = max(plan.saddle.epsilon for plan in live.values())
        answers: dict[int, tuple[float, float, Layer]] = {}
        for _ in range(_MOST_ROUNDS * len(live)):
            for index, plan in live.items():
                first = plan.coarse_step(steps[index], expected - plan.saddle.epsilon) if rough[index] else steps[index]
                answers[index] = found[index] or answers.get(index) or self._refined(index, plan, first, ends, not rough[index])
            top = max(live, key=lambda index: answers[index][1])
            low, high, layer = max(low for low, _, _ in answers.values()), answers[top][1], answers[top][2]
            allowed = aim.share * high + aim.fixed
            if high - low <= allowed or high == low or (not rough[top] and (layer.finest or _is_hopeless(layer, low))):
                break
            if not rough[top]:
                steps[top] = live[top].finer_step(layer.step, allowed / (high - low), aim.wider)
                step, size = live[top].reachable(steps[top])
                if step > _FINER * layer.step or (size > MANY_POINTS and high - low <= aim.enough * allowed):
                    break
            rough[top] = False
            deadline.check()
            better = self._refined(top, live[top], steps[top], ends, True)
            found[top] = answers[top] = (max(better[0], answers[top][0]), min(better[1], answers[top][1]), better[2])
        return max(low for low, _, _ in answers.values()), max(high for _, high, _ in answers.values())

    def _refined(
        self, index: int, plan: Plan, step: float, ends: Callable[[Layer], tuple[float, float]], both: bool
    ) -> tuple[float, float, Layer]:
        layer = plan.layer(step, both)
        self._kept[index] = [*self._kept[index][-_KEPT + 1 :], layer]
        return (*ends(layer), layer)

    def _known(self, index: int, ends: Callable[[Layer], tuple[float, float]], aim: _Aim) -> tuple[float, float, Layer] | None:
        """The best answer of the laws composed before, if one is good enough: what was asked before mustn't widen an answer."""
        answers = [(*ends(layer), layer) for layer in self._kept[index] if layer.lower is not None]
        # A law that was placed elsewhere may give no information here.
        answers = [answer for answer in answers if math.isfinite(answer[0]) and math.isfinite(answer[1])]
        best = min(answers, key=lambda answer: answer[1] - answer[0], default=None)
        return best if best is not None and best[1] - best[0] <= aim.share * best[1] + aim.fixed else None

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
        pair = pair_of(leaf)
        distance = pair.upper.shifts[-1] - pair.lower.shifts[0]
        if not SMALLEST_DISTANCE <= distance <= LARGEST_DISTANCE:
            return f"a release moves its noise by {distance:.3g} scales; this route supports {SMALLEST_DISTANCE:g} to {LARGEST_DISTANCE:g}"
    if sum(parts.values()) > MOST_RELEASES:
        return f"more than {MOST_RELEASES:.0e} releases: their rounding errors would swamp the result"
    return None


def _largest_upper(plans: Sequence[Plan], epsilon: float) -> float:
    """The largest of the directions' upper ends: coarse ones, of which those are refined that may be the largest."""

    def upper(plan: Plan, wider: float) -> float:
        deadline.check()
        return log_delta_bound(plan.layer(plan.step(1.0 / plan.saddle.tilt) * wider, False).upper, epsilon)

    coarse = sorted(((upper(plan, COARSE if len(plans) > 1 else 1.0), number) for number, plan in enumerate(plans)), reverse=True)
    found = -math.inf
    for high, number in coarse:
        if high <= found:
            break
        found = max(found, min(high, upper(plans[number], 1.0)) if len(plans) > 1 else high)
    return found


def _is_hopeless(layer: Layer, low: float) -> bool:
    """Whether a finer grid is hardly worth its time: it isn't a small one, and there was no law below, or rounding hid all of it."""
    return (layer.lower is None or low in _NOTHING) and layer.upper.window.size > _SMALL


@final
class FftAccountant(Accountant):
    """Gaussian, complex Gaussian and Laplace releases, sampled in any way, in any composition."""

    name = ROUTE
    summary = (
        "Lattice laws above and below the event, composed by tilted FFT with every rounding bounded; for few or sparse releases and atoms."
    )
    sources = ("proofs/fft.md", "Doroshenko et al. 2022, arXiv:2207.04380", "Gopi, Lee and Wutschitz 2021, arXiv:2106.02848")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        return unsupported_parts(parts)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        return FftProfile(parts)
