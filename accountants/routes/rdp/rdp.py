r"""Renyi accounting: every release has a curve of Renyi divergences, the curves add up, and the best order gives (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from zetadp.accountants import deadline
from zetadp.accountants.accountant import Accountant
from zetadp.accountants.allocation.replaced import is_replaced
from zetadp.accountants.dominating import pair_of, statement, unsupported_reason
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.pairs import SHIFT_ERROR, Pair
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon, check_order
from zetadp.accountants.routes.rdp import integer_moments
from zetadp.accountants.routes.rdp.moments import PairMoments
from zetadp.accountants.routes.rdp.selected_moments import SelectedMoments
from zetadp.accountants.selected.largest import largest_loss_of
from zetadp.accountants.shared_sample import derivation
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import ConcentratedLoss
from zetadp.mechanisms.numerics.searching import least_between

ROUTE = "rdp"

QUADRATURE_ERROR = 1e-9
"""Relative allowance for a sampled moment's quadrature and rounding. Measured, not proved: against exact binomial sums and against grids
four times as fine, over random pairs of every kind and orders from 1.001 to 300, the error is at most 1e-11."""

_SHARED_REACH = 500.0
"""Quadrature nodes with a smaller reach (at most 1 MB) are kept for other orders of the same pair."""

_LOG_ORDERS = [float(x) for x in np.linspace(math.log(1e-3), math.log(2e5), 48)]
"""log(order - 1) of the coarse search; every order gives a valid bound, so the grid only costs tightness."""

_PATIENCE = 6
"""The coarse search stops after this many points without a better one: high orders cost the most and rarely win."""


@final
class RdpProfile(PrivacyProfile):
    """The profile implied by a sum of Renyi curves."""

    def __init__(self, parts: Mapping[Leaf, int], steps: tuple[Step, ...]) -> None:
        self._parts = parts
        self._steps = steps
        self._known: dict[float, float] = {}

    @property
    def route(self) -> str:
        return ROUTE

    def rdp(self, order: float) -> float | None:
        check_order(order)
        if order not in self._known:
            self._known[order] = math.fsum(count * _checked_renyi(leaf, order) for leaf, count in self._parts.items())
        return self._known[order]

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon >= self.pure_epsilon:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=ROUTE)
        # Canonne, Kamath and Steinke 2020, Proposition 12.
        order, log_delta = self.best(lambda a: (a - 1.0) * (self._renyi(a) - epsilon + math.log1p(-1.0 / a)) - math.log(a))
        return DeltaBound(log_lower=-math.inf, log_upper=min(0.0, log_delta), route=f"{ROUTE}(order={order:.4g})")

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        order, epsilon = self.best_order(delta)
        if epsilon > self.pure_epsilon:
            order, epsilon = math.inf, self.pure_epsilon
        return Bound(lower=0.0, upper=max(0.0, epsilon), route=f"{ROUTE}(order={order:.4g})")

    def best_order(self, delta: float) -> tuple[float, float]:
        """(the finite order whose bound at ``delta`` is smallest, that bound, possibly negative)."""
        return self.best(lambda a: epsilon_at_order(a, self._renyi(a), delta))

    @cached_property
    def pure_epsilon(self) -> float:
        """The Renyi divergence of infinite order: the sum of the largest losses; infinite if one of them is unbounded."""
        losses = (count * largest_loss_of(leaf) for leaf, count in self._parts.items())
        return math.fsum(losses) * (1.0 + SHIFT_ERROR)

    def derivation(self) -> tuple[Step, ...]:
        return (
            *self._steps,
            Step(symbol="R(a)", value="sum of count_i R_i(a)", formula="Renyi divergences add up", source="Mironov 2017, Proposition 1"),
            Step(
                symbol="epsilon",
                value="min over a of R(a) + log(1 - 1/a) - (log delta + log a)/(a - 1)",
                formula="conversion at the best order",
                source="Canonne, Kamath and Steinke 2020, Proposition 12",
            ),
        )

    def _renyi(self, order: float) -> float:
        value = self.rdp(order)
        assert value is not None  # this profile has every order
        return value

    def best(self, cost: Callable[[float], float]) -> tuple[float, float]:
        """(order, cost) near the minimum over orders: a grid, then a search around its best point. Any order is sound."""

        def at(log_order: float) -> float:
            return cost(1.0 + math.exp(log_order))

        best, values = 0, list[float]()
        for log_order in _LOG_ORDERS:
            values.append(at(log_order))
            best = int(np.argmin(values))
            if len(values) - 1 - best >= _PATIENCE:
                break
        low, high = _LOG_ORDERS[max(best - 1, 0)], _LOG_ORDERS[min(best + 1, len(values) - 1)]
        log_order, value = least_between(at, low, high, 1e-4)
        if not value < values[best]:  # or it isn't a number
            log_order, value = _LOG_ORDERS[best], values[best]
        if math.isnan(value):
            raise UnsupportedEvent(ROUTE, "a divergence isn't a number")
        return 1.0 + math.exp(log_order), value


def epsilon_at_order(order: float, renyi: float, delta: float) -> float:
    """epsilon at ``delta`` that a Renyi divergence of one order > 1 implies; negative if even 0 is more than needed.

    This solves the inequality of ``RdpProfile.delta`` for epsilon; Balle, Barthe, Gaboardi, Hsu and Sato 2020, Theorem 21.

    >>> round(epsilon_at_order(2.0, 0.1, 1e-5), 9)
    10.226631104
    """
    return renyi + math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)


def _checked_renyi(leaf: Leaf, order: float) -> float:
    deadline.check()  # thousands of leaves take minutes at all orders
    return leaf_renyi(leaf, order)


def leaf_renyi(leaf: Leaf, order: float) -> float:
    """Upper bound on the Renyi divergence of one sampled release, in both directions of neighbours."""
    if isinstance(leaf.mechanism, Selection):
        return min(_selected(leaf.mechanism).renyi(order), largest_loss_of(leaf))
    concentrated = _concentrated(leaf)
    return pair_renyi(pair_of(leaf), order) if concentrated is None else leaf.group**2 * concentrated.renyi(order) * (1.0 + 1e-12)


def _concentrated(leaf: Leaf) -> ConcentratedLoss | None:
    """The loss of a release of which only Renyi divergences are known, or None: k units of rho are k^2 rho (pairs.md, row 9).

    An epoch of releases in which a unit is replaced is bounded by one whole release (allocation.md, R1).
    """
    loss = leaf.mechanism.privacy_loss()
    return loss if isinstance(loss, ConcentratedLoss) and (leaf.is_whole or is_replaced(leaf)) else None


@lru_cache(maxsize=64)
def _selected(selection: Selection) -> SelectedMoments:
    base = RdpProfile(dict(selection.parts), ())
    return SelectedMoments(selection.runs, base, base.pure_epsilon)


_shared_moments = lru_cache(maxsize=64)(PairMoments.of)


def pair_renyi(pair: Pair, order: float) -> float:
    """Upper bound on a dominating pair's Renyi divergence of this order, the larger of both directions."""
    if pair.crowded is not None:
        # Both moments are at least 1, and which pair is shown is known: the moment of either direction is at most this mixture.
        both = pair_renyi(pair.uncrowded, order), pair_renyi(pair.crowded.pair, order)
        return _mixed_renyi(*both, order, pair.crowded.probability) * (1.0 + 1e-12)
    distance = pair.distance
    loss = pair.family.loss(distance)
    if pair.shown < 1.0:
        # The moment is (1 - shown) + shown e^{(order - 1) R}.
        return _shown_renyi(loss.renyi(order), order, pair.shown) * (1.0 + 1e-12)
    # By quasi-convexity no mixture is worse than its outermost components.
    whole = loss.renyi(order) * (1.0 + 1e-12)
    if pair.is_whole or not math.isfinite(whole):
        return whole
    if integer_moments.covers(pair, order):
        return min(whole, integer_moments.renyi(pair, int(order)))
    # Nodes are made for the next power of 2, so that a search over orders shares them.
    reach = 2.0 ** math.ceil(math.log2(order))
    moments = _shared_moments(pair, reach) if reach * distance <= _SHARED_REACH else PairMoments.of(pair, order)
    if moments is None:
        return whole
    largest = moments.log_moment(order) if pair.symmetric else max(moments.log_moment(order), moments.log_moment(1.0 - order))
    # The moment has order + (order - 1) powers of densities; nodes may have been made for twice the order.
    largest += 2.0 * order * pair.family.ratio_error(pair.upper, pair.lower, order)
    return min(whole, largest / (order - 1.0) * (1.0 + QUADRATURE_ERROR))


def _mixed_renyi(often: float, rarely: float, order: float, share: float) -> float:
    """Renyi divergence of a pair that is one or, with probability ``share``, the other, from theirs."""
    if rarely <= often:
        return often
    # log((1 - s) e^a + s e^b) = a + log(1 + s (e^{b - a} - 1)).
    return often + _shown_renyi(rarely - often, order, share)


def _shown_renyi(whole: float, order: float, shown: float) -> float:
    """Renyi divergence of a pair shown with this probability, from the Renyi divergence of the pair itself."""
    exponent = (order - 1.0) * whole
    if exponent < 700.0:
        return math.log1p(shown * math.expm1(exponent)) / (order - 1.0)
    # log(shown e^x + 1 - shown) = x + log(shown + (1 - shown) e^-x).
    return (exponent + math.log(shown + (1.0 - shown) * math.exp(-exponent))) / (order - 1.0)


def renyi_reason(parts: Iterable[Leaf]) -> str | None:
    """Why no Renyi divergence is known here for one of these leaves, or None."""
    for leaf in parts:
        if isinstance(leaf.mechanism, Selection):
            reason = renyi_reason(base for base, _ in leaf.mechanism.parts)
        else:
            reason = None if _concentrated(leaf) is not None else unsupported_reason(leaf)
        if reason is not None:
            return reason
    return None


@final
class RdpAccountant(Accountant):
    """Every release with a dominating pair, sampled or not, repeated and composed."""

    name = ROUTE
    summary = "Renyi divergences with the best order's conversion; an upper bound at any delta, looser than PLD."
    sources = (
        "Mironov 2017, arXiv:1702.07476",
        "Mironov, Talwar and Zhang 2019, arXiv:1908.10530",
        "Canonne, Kamath and Steinke 2020, arXiv:2004.00010",
        "Papernot and Steinke 2022, arXiv:2110.03620",
    )

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        return renyi_reason(parts)

    def unsupported_selection(self, parts: Mapping[Leaf, int], chosen: Selection) -> str | None:
        del chosen
        return self.unsupported_parts(parts)

    def of_selection(self, parts: Mapping[Leaf, int], chosen: Selection) -> PrivacyProfile:
        del chosen
        return self._profile(parts)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        return RdpProfile(parts, leaf_steps(parts))


def _counted_as(leaf: Leaf) -> str:
    mechanism = leaf.mechanism
    if isinstance(mechanism, LocalRelease) and leaf.probability == 1.0 and mechanism.coordinate() == mechanism:
        return "times released: every coordinate of every record separately"
    return "times released"


def leaf_steps(parts: Mapping[Leaf, int]) -> tuple[Step, ...]:
    """The derivation lines of every leaf: its mechanism, its sampling and its count."""
    steps: list[Step] = []
    for leaf, count in parts.items():
        one = leaf.mechanism
        steps.extend(one.derivation() if leaf.releases == 1 or isinstance(one, Selection) else derivation(one, leaf.releases))
        if leaf.group > 1:
            formula = "most units of the event that one unit of the guarantee holds"
            steps.append(Step(symbol="k", value=float(leaf.group), formula=formula, source="grouped.size"))
        if not leaf.is_whole:
            formula, source = statement(leaf)
            steps.append(Step(symbol="q", value=leaf.probability, formula=formula, source=source))
        steps.append(Step(symbol="T", value=float(count), formula=_counted_as(leaf), source="event"))
    return tuple(steps)
