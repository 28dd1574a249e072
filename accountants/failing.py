r"""Guarantees that may fail: (epsilon, delta)-DP releases, of which each shows everything with its delta. proofs/pairs.md, row 9.

They are taken out of a composition before any accountant sees it, since a loss that may be infinite has no grid and no moments. What is
left composes as always; with f the probability that any of them fails, delta(eps) = f + (1 - f) delta_rest(eps), exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import final

from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, at_most, check_delta, check_epsilon
from zetadp.mechanisms import ApproximateGuarantee, PureGuarantee
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import InvalidParameter, NumericalFloor
from zetadp.mechanisms.numerics import logspace

ROUTE = "failing"

_DIGITS = 60
_ERROR, _SMALL = Decimal("1e-19"), Decimal("1e-20")
"""Relative allowance for the probability of a failure, and the sum of all deltas below which that sum is taken for it: it exceeds the
probability by less than half of its square. Above, sixty digits leave more than twenty, even of 10^15 releases."""

_LOG_ERROR = 1e-14
"""Allowance for a logarithm of a sum of two terms, relative to 1 plus its size."""

_DEEP = -600.0
"""log of a delta at which any epsilon is one at delta 0, too, as a lower end."""


def split(parts: Mapping[Leaf, int]) -> tuple[dict[Leaf, int], Decimal]:
    """(what is left where none of them fails, the probability that one does, rounded up).

    >>> fact = ApproximateGuarantee(epsilon=0.0, delta=0.25, adjacency="add_remove", unit="record")
    >>> rest, failure = split({Leaf(1.0, fact): 2})
    >>> rest, float(failure)
    ({}, 0.4375)
    """
    # A sample of one may fail more often than it does, where one record displaces another: it stays, and is refused.
    rest = {leaf: count for leaf, count in parts.items() if _failing(leaf) is None}
    if len(rest) == len(parts):
        return rest, Decimal(0)
    with localcontext() as context:
        context.prec = _DIGITS
        survival, sum_of_all, failing, one = Decimal(1), Decimal(0), 0, Decimal(0)
        for leaf, count in parts.items():
            if (fact := _failing(leaf)) is None:
                continue
            one = min(_of_group(fact, leaf.group), Decimal(1))
            survival, sum_of_all, failing = survival * (1 - one) ** count, sum_of_all + count * one, failing + count
            if fact.epsilon > 0.0:
                left = replace(leaf, mechanism=PureGuarantee(epsilon=fact.epsilon, adjacency=fact.adjacency, unit=fact.unit))
                rest[left] = rest.get(left, 0) + count
        if failing == 1:
            # One guarantee's delta is often asked for, so it is kept without any rounding.
            return rest, one
        # 1 minus a product that is nearly 1 would have lost its digits: there the sum is larger by less than the rounding allowed for.
        failure = sum_of_all if sum_of_all < _SMALL else 1 - survival
        return rest, min(failure * (1 + _ERROR), Decimal(1))


def _of_group(fact: ApproximateGuarantee, size: int) -> Decimal:
    """delta of a group: delta (e^{k eps} - 1) / (e^eps - 1), rounded up."""
    if size == 1:
        return Decimal(fact.delta)
    if fact.epsilon == 0.0:
        return size * Decimal(fact.delta)
    if size * fact.epsilon > 1e5:
        return Decimal(1)
    # 1 + x - 1 of a small x loses digits, of which the sixty keep enough above 1e-15; below it the ratio is k e^{k eps} at most.
    epsilon = Decimal(fact.epsilon)
    ratio = ((size * epsilon).exp() - 1) / (epsilon.exp() - 1) if epsilon > Decimal("1e-15") else size * (size * epsilon).exp()
    return Decimal(fact.delta) * ratio * (1 + Decimal("1e-40"))


def _failing(leaf: Leaf) -> ApproximateGuarantee | None:
    return leaf.mechanism if isinstance(leaf.mechanism, ApproximateGuarantee) and leaf.is_whole else None


def _delta_step(leaf: Leaf, fact: ApproximateGuarantee, count: int) -> Step:
    times = f", {count} times" if count > 1 else ""
    group = f"; of a group of {leaf.group}: delta (e^(k epsilon) - 1) / (e^epsilon - 1), k = {leaf.group}" if leaf.group > 1 else ""
    return Step(symbol="delta_i", value=fact.delta, formula=f"declared{times}{group}", source=fact.kind)


@final
class FailingProfile(PrivacyProfile):
    """The profile of a composition of which some parts may fail.

    Args:
      failure: the probability that one does, rounded up; in (0, 1].
      inner: the profile of what is left; None if nothing is.
      rest: the leaves that ``inner`` is for.
      parts: the whole composition, for its derivation.
    """

    def __init__(self, failure: Decimal, inner: PrivacyProfile | None, rest: Mapping[Leaf, int], parts: Mapping[Leaf, int]) -> None:
        self._failure, self._inner, self._rest, self._parts = failure, inner, rest, parts
        self._log_failure = float(failure.ln()) if failure < 1 else 0.0

    @property
    def route(self) -> str:
        return ROUTE if self._inner is None else self._inner.route

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        low, high, route = -math.inf, -math.inf, self.route
        if self._inner is not None:
            found = self._inner.delta(epsilon)
            low, high, route = found.log_lower, found.log_upper, found.route
        return DeltaBound(log_lower=min(self._with_failure(low, -1.0), 0.0), log_upper=min(self._with_failure(high, 1.0), 0.0), route=route)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        return self._epsilon(Decimal(delta))

    def epsilon_at_log_delta(self, log_delta: float) -> Bound:
        if not -math.inf < log_delta < 0.0:
            raise InvalidParameter("log_delta", "finite and < 0", log_delta)
        with localcontext() as context:
            context.prec = _DIGITS
            return self._epsilon(Decimal(log_delta).exp())

    def derivation(self) -> tuple[Step, ...]:
        inner = () if self._inner is None else self._inner.derivation()
        deltas = tuple(_delta_step(leaf, fact, count) for leaf, count in self._parts.items() if (fact := _failing(leaf)) is not None)
        source = "Kairouz, Oh and Viswanath 2015, Theorem 3.4; proofs/pairs.md, row 9"
        return (
            *(self._named(step) for step in inner),
            *deltas,
            Step(
                symbol="f", value=float(self._failure), formula="1 - prod (1 - delta_i): that any of these guarantees fails", source=source
            ),
            Step(symbol="delta(eps)", value="f + (1 - f) delta_rest(eps)", formula="delta_rest: where none of them fails", source=source),
        )

    def _named(self, step: Step) -> Step:
        """What is left of an approximate guarantee composes as ``pure_dp``, and is shown under its own name."""
        left = {fact.epsilon for leaf in self._parts if (fact := _failing(leaf)) is not None}
        if step.source != PureGuarantee.kind_name() or step.value not in left:
            return step
        pure = any(isinstance(leaf.mechanism, PureGuarantee) and leaf.mechanism.epsilon == step.value for leaf in self._parts)
        source = ApproximateGuarantee.kind_name()
        return Step(
            symbol=step.symbol,
            value=step.value,
            formula=f"{step.formula}; {source} is epsilon-DP where it doesn't fail",
            source=f"{step.source}, {source}" if pure else source,
        )

    def _with_failure(self, log_delta: float, direction: float) -> float:
        """log(f + (1 - f) delta), rounded up or down."""
        if self._failure >= 1:
            return 0.0
        value = logspace.log_add(self._log_failure, float((1 - self._failure).ln()) + log_delta)
        return value + direction * _LOG_ERROR * (1.0 + abs(value))

    def _epsilon(self, delta: Decimal) -> Bound:
        with localcontext() as context:
            context.prec = _DIGITS
            left = (delta - self._failure) / (1 - self._failure) if self._failure < 1 else Decimal(-1)
            log_left = float(left.ln()) if left > 0 else None
        if left < 0:
            # The probability of a failure is rounded up, and the lower end mustn't be.
            return Bound(lower=math.inf if delta < self._failure * (1 - 2 * _ERROR) else 0.0, upper=math.inf, route=self.route)
        if self._inner is None:
            return Bound(lower=0.0, upper=0.0, route=self.route)
        if log_left is None:
            return self._at_no_delta(self._inner)
        error = _LOG_ERROR * (1.0 + abs(log_left))
        # Just below 1 nothing is left to ask for: delta at epsilon 0 is smaller.
        at = [min(log_left + moved, -1e-300) for moved in (-error, error)]
        upper = self._inner.epsilon_at_log_delta(at[0])
        lower = self._inner.epsilon_at_log_delta(at[1])
        return Bound(lower=at_most("epsilon", lower.lower, upper.upper), upper=upper.upper, route=upper.route)

    def _at_no_delta(self, inner: PrivacyProfile) -> Bound:
        """epsilon where all of delta is used for the failures: the largest loss of the rest."""
        losses = (math.inf if unsupported_reason(leaf) else count * pure_epsilon(pair_of(leaf)) for leaf, count in self._rest.items())
        upper = math.fsum(losses) * (1.0 + 1e-14)
        try:
            lower = inner.epsilon_at_log_delta(_DEEP).lower
        except NumericalFloor:
            lower = 0.0
        return Bound(lower=at_most("epsilon", lower, upper), upper=upper, route=inner.route)
