r"""One release: its delta is a closed form of tail functions (``densities``), exact to rounding in both directions of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.arithmetic import within_floats
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.grids.hockey_stick import calls, reverse
from zetadp.accountants.largest_loss import largest_loss, pure_epsilon
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, narrowed, widened
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor

ROUTE = "single"

SMALLEST_DELTA = 1e-298
"""Below it the little that each underflow may lose (``TINY``) is more than a hundredth of delta, and this route has no answer."""

Floats = NDArray[np.float64]

_POWERS: Floats = np.asarray([0.0, *(2.0**power for power in range(-120, 110))], dtype=np.float64)
_HALVINGS: Floats = 2.0 ** -np.arange(1.0, 54.0)
_EVEN: Floats = np.arange(1.0, 33.0) / 33.0
"""Parts of a bracket at which it is looked besides those near the guess, so that each look makes it at least 33 times as short."""
_NARROW = 4e-16
_AT_ONCE: Floats = np.asarray([], dtype=np.float64)
_IN_PARTS: Floats = np.asarray([0.0625, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 512.0])


@final
class SingleProfile(PrivacyProfile):
    """The profile of one release, whole or sampled."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        pair = pair_of(leaf)
        self._upper, self._lower = _orders(widened(pair)), _orders(narrowed(pair))
        self._looks = _IN_PARTS if pair.family.is_laid_out else _AT_ONCE

    @property
    def route(self) -> str:
        return ROUTE

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=ROUTE)
        with within_floats(ROUTE):
            high, low = self._delta_upper(epsilon), self._delta_lower(epsilon)
        if 0.0 < high < SMALLEST_DELTA:
            raise NumericalFloor("delta", high, SMALLEST_DELTA, "use accountant rdp, which has no floor")
        log_upper = math.log(high) if high > 0.0 else -math.inf
        log_lower = math.log(low) if low > 0.0 else -math.inf
        return DeltaBound(log_lower=log_lower, log_upper=min(log_upper, 0.0), route=ROUTE)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise NumericalFloor("delta", delta, SMALLEST_DELTA, "use accountant rdp, which has no floor")
        with within_floats(ROUTE):
            upper = _crossing(self._uppers, delta, self._starts(), self._looks)[1]
            if upper == math.inf:
                upper = max(_largest_loss(pair) for pair in self._upper)
            # The lower curve crosses just before the upper one does.
            near = upper * (1.0 - _HALVINGS) if upper < math.inf else _POWERS
            lower = _crossing(self._lowers, delta, np.union1d(_POWERS, near), self._looks)[0]
        return Bound(lower=lower, upper=upper, route=ROUTE)

    def derivation(self) -> tuple[Step, ...]:
        formula = "H(e^eps) = P(L > eps) - e^eps Q(L > eps), the larger of both orders of the pair"
        return (
            *leaf_steps({self._leaf: 1}),
            Step(symbol="delta(eps)", value=formula, formula="one release in closed form", source="accountants/proofs/fft.md, section 1"),
        )

    def _starts(self) -> Floats:
        """Where to look first: all along, and near each largest loss, where the curve has a kink that no line sees."""
        kinks = [loss for pair in self._upper if 0.0 < (loss := largest_loss(pair)) < _POWERS[-1]]
        return np.unique(np.concatenate([_POWERS, kinks, *(kink * (1.0 - _HALVINGS) for kink in kinks)]))

    def _delta_upper(self, epsilon: float) -> float:
        return float(self._uppers(np.array([epsilon], dtype=np.float64))[0])

    def _delta_lower(self, epsilon: float) -> float:
        return float(self._lowers(np.array([epsilon], dtype=np.float64))[0])

    def _uppers(self, epsilons: Floats) -> Floats:
        return np.max([calls(pair, epsilons).upper for pair in self._upper], axis=0)

    def _lowers(self, epsilons: Floats) -> Floats:
        return np.max([calls(pair, epsilons).lower for pair in self._lower], axis=0)


def _crossing(values: Callable[[Floats], Floats], delta: float, starts: Floats, looks: Floats = _AT_ONCE) -> tuple[float, float]:
    r"""Where a curve that bounds delta(epsilon) comes down to delta: (left, right), close, with value(left) > delta >= value(right).

    Both values were computed, so this is true whatever the curve does elsewhere. A look at many points costs little more than at one.

    Args:
      starts: increasing, from 0. Where the curve is at most delta at 0, both ends are 0; where it is above delta at all, right is infinite.
      looks: where to look at the ``starts`` in parts, as far as it is needed.
    """
    blocks = np.split(starts, np.unique(np.searchsorted(starts, looks)))
    found = values(blocks[0])
    for block in blocks[1:]:
        if found[-1] <= delta or not len(block):
            break
        found = np.append(found, values(block))
    if found[0] <= delta:
        return 0.0, 0.0
    if found[-1] > delta:
        return float(starts[-1]), math.inf
    first = int(np.argmin(found > delta))
    points, found = starts[first - 1 : first + 1], found[first - 1 : first + 1]
    while points[1] - points[0] > _NARROW * points[1]:
        inner = _inside(points, found, delta)
        if not len(inner):
            break
        points, found = np.insert(points, 1, inner), np.insert(found, 1, values(inner))
        first = int(np.argmin(found > delta))
        points, found = points[first - 1 : first + 1], found[first - 1 : first + 1]
    return float(points[0]), float(points[1])


def _inside(points: Floats, found: Floats, delta: float) -> Floats:
    """Where to look between two points: all along, and near where lines through the values and through their logarithms meet delta."""
    left, right = points
    logs = np.log(np.maximum(found, delta * 1e-9) / delta)
    steps = (right - left) * _HALVINGS
    places = [left + (right - left) * _EVEN]
    for above, below in (logs, found - delta):
        guess = left + (right - left) * above / (above - below) if above > below else 0.5 * (left + right)
        places.extend((guess - steps, [guess], guess + steps))
    near = np.unique(np.concatenate(places))
    return near[(near > left) & (near < right)]


def _largest_loss(pair: Pair) -> float:
    """A bound on the loss; infinite if there is none as simple as the distance itself."""
    return pure_epsilon(pair) if pair.is_plain else math.inf


def _orders(pair: Pair) -> tuple[Pair, ...]:
    return (pair,) if pair.symmetric else (pair, reverse(pair))


@final
class SingleAccountant(Accountant):
    """Exactly one release of any mechanism with a dominating pair: whole, sampled or for a group."""

    name = ROUTE
    summary = "One release, whole or sampled, in closed form: exact to rounding."
    sources = ("Zhu, Dong and Wang 2022, arXiv:2106.08567", "accountants/proofs/pairs.md", "accountants/proofs/fft.md")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        if sum(parts.values()) != 1:
            return "it has more than one release"
        return next((reason for leaf in parts if (reason := unsupported_reason(leaf)) is not None), None)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        return SingleProfile(next(iter(parts)))
