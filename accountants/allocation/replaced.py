r"""Random allocations under replace_one: as removing one unit and adding another, whose two profiles add up. proofs/allocation.md, (R2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import final

from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.shared_sample import GaussianWithLaplace, contribution
from zetadp.mechanisms import Gaussian, Laplace
from zetadp.mechanisms.base import Adjacency, Mechanism, Sensitivity, Step
from zetadp.mechanisms.declared.integers import IntegerNoise
from zetadp.mechanisms.errors import NumericalFloor, UnsupportedEvent
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import GaussianLoss, JointLoss, LaplaceLoss
from zetadp.mechanisms.numerics import logspace

_SLACK = 1e-14
"""More than the roundings of a sum of two numbers, and of their logarithms, relative to 1 plus their size."""

_MOST_SPLITS, _EQUAL = 4, 0.02
"""Splits of epsilon that are tried, and the difference of the logarithms of both terms at which they count as equal."""


def is_replaced(leaf: Leaf) -> bool:
    """Whether the leaf is a random allocation in which a unit is replaced."""
    return leaf.scheme == "random_allocation" and leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE


def distances(leaf: Leaf) -> tuple[float, float] | None:
    """(how far two units' values are apart, how far one is from nothing, infinite if not stated), in scales of their noise, if known."""
    mechanism = leaf.mechanism
    loss = mechanism.privacy_loss()
    if isinstance(mechanism, IntegerNoise | GaussianWithLaplace):
        alone = contribution(mechanism, "l2")
        return loss.distance, math.inf if alone is None else alone
    if not (isinstance(mechanism, Mechanism) and isinstance(loss, GaussianLoss | LaplaceLoss)) or isinstance(mechanism, LocalRelease):
        return None
    alone = contribution(mechanism, "l2" if isinstance(loss, GaussianLoss) else "l1")
    return loss.distance, math.inf if alone is None else alone


def at_nothing(leaf: Leaf, distance: float) -> Leaf:
    """The leaf for neighbours of which one has nothing in the unit's place, and the other one's value is this far from it."""
    loss, unit = leaf.mechanism.privacy_loss(), leaf.mechanism.neighbours[1]
    if isinstance(leaf.mechanism, IntegerNoise):
        return replace(leaf, mechanism=leaf.mechanism.at_nothing(round(distance * leaf.mechanism.law.scale)))
    gaussian = Gaussian(std=1.0, sensitivity=Sensitivity(l2=distance, adjacency=Adjacency.ZERO_OUT, unit=unit))
    far = distance * (loss.epsilon / loss.mu) * (1.0 + 1e-15) if isinstance(loss, JointLoss) else distance
    laplace = Laplace(scale=1.0, sensitivity=Sensitivity(l1=far, adjacency=Adjacency.ZERO_OUT, unit=unit))
    if isinstance(loss, JointLoss):
        return replace(leaf, mechanism=GaussianWithLaplace(gaussian, laplace))
    return replace(leaf, mechanism=gaussian if isinstance(loss, GaussianLoss) else laplace)


def whole_parts(parts: Mapping[Leaf, int]) -> Mapping[Leaf, int]:
    """The leaves with one whole release in the place of every epoch of replaced allocations. (R1)"""
    if not any(is_replaced(leaf) for leaf in parts):
        return parts
    found: dict[Leaf, int] = {}
    for leaf, count in parts.items():
        whole = replace(leaf, probability=1.0, scheme="poisson", steps=1, attained=None) if is_replaced(leaf) else leaf
        found[whole] = found.get(whole, 0) + count
    return found


def removed_parts(parts: Mapping[Leaf, int]) -> Mapping[Leaf, int] | None:
    """The same composition with nothing in one unit's place; None without replaced allocations, or where a part states no contribution."""
    if not any(is_replaced(leaf) for leaf in parts):
        return None
    found: dict[Leaf, int] = {}
    for leaf, count in parts.items():
        known = distances(leaf)
        if known is None or known[1] == math.inf:
            return None
        part = at_nothing(leaf, known[1])
        found[part] = found.get(part, 0) + count
    return found


@final
class ReplacedProfile(PrivacyProfile):
    """The smaller one of two upper ends; the lower end says nothing.

    Args:
      whole: the profile with one whole release in the place of every epoch.
      removed: the profile of ``removed_parts``.
    """

    def __init__(self, whole: PrivacyProfile, removed: PrivacyProfile) -> None:
        self._whole, self._removed = whole, removed

    @property
    def route(self) -> str:
        return self._removed.route

    def delta(self, epsilon: float) -> DeltaBound:
        return DeltaBound(log_lower=-math.inf, log_upper=self.log_delta_upper(epsilon), route=self.route)

    def log_delta_upper(self, epsilon: float) -> float:
        check_epsilon(epsilon)
        return _least(lambda: self._whole.log_delta_upper(epsilon), lambda: self._log_sum(epsilon))

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self.epsilon_at_log_delta(math.log(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        upper = _least(lambda: self._whole.epsilon_at_log_delta(log_delta).upper, lambda: self._two_steps(log_delta))
        return Bound(lower=0.0, upper=upper, route=self.route)

    def rdp(self, order: float) -> float | None:
        return self._whole.rdp(order)

    def derivation(self) -> tuple[Step, ...]:
        formula = "delta(a) + e^a delta(b) with a + b = epsilon: removing one unit, and adding another one"
        return (
            *self._removed.derivation(),
            Step(symbol="delta", value="of replacing", formula=formula, source="proofs/allocation.md, (R2)"),
        )

    def _two_steps(self, log_delta: float) -> float:
        """a + b with half of delta for each step."""
        half = log_delta - math.log(2.0) - _SLACK * (1.0 - log_delta)
        first = self._removed.epsilon_at_log_delta(half).upper
        if first == math.inf:
            return math.inf
        rest = half - first - _SLACK * (1.0 + first - half)
        return (first + self._removed.epsilon_at_log_delta(rest).upper) * (1.0 + _SLACK)

    def _log_sum(self, epsilon: float) -> float:
        """The least of the sums that a short search for equal terms meets: every one of them is a bound."""
        if epsilon == math.inf:
            return -math.inf
        splits, differences, least = [0.5 * epsilon, 0.55 * epsilon], list[float](), 0.0
        for index in range(_MOST_SPLITS):
            first = splits[index]
            one = self._removed.log_delta_upper(first)
            other = first + self._removed.log_delta_upper(max(math.nextafter(epsilon - first, -math.inf), 0.0))
            total = logspace.log_add(one, other)
            least = min(least, total + _SLACK * (1.0 + abs(total)) if total > -math.inf else total)
            differences.append(one - other)
            if epsilon == 0.0 or not abs(differences[-1]) > _EQUAL or not math.isfinite(differences[-1]):
                break
            if index > 0 and differences[-1] != differences[-2]:
                step = differences[-1] * (first - splits[index - 1]) / (differences[-1] - differences[-2])
                splits.append(min(max(first - step, 0.0), epsilon))
            elif index > 0:
                break
        return least


def _least(*asks: Callable[[], float]) -> float:
    """The least of the answers of those that have one; the first one's refusal if none has."""
    found = list(_answers(asks))
    return min(found) if found else asks[0]()


def _answers(asks: tuple[Callable[[], float], ...]) -> Iterator[float]:
    for ask in asks:
        with suppress(NumericalFloor, UnsupportedEvent):
            yield ask()
