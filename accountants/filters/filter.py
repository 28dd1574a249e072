r"""A privacy filter: admits or refuses each step of an analysis whose steps are chosen in view of all earlier outputs.

Sums are kept as whole numbers on a binary grid 2^128 times finer than each limit, every cost rounded up to it: exact addition, so a
million tiny spends are never counted short, in constant time a spend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Self, TypeAlias, final

from pydantic import BeforeValidator, Field, PlainSerializer, Strict, WithJsonSchema, model_validator

from zetadp.accountants.events import neighbourhood
from zetadp.accountants.filters.budgets import GdpBudget, PureBudget, ZcdpBudget
from zetadp.accountants.filters.exact_sums import RUNGS
from zetadp.accountants.filters.renyi_budgets import RdpBudget, RdpTargetBudget
from zetadp.accountants.filters.spends import AnySpend, GdpSpend, PureSpend, RdpSpend, Spend, ZcdpSpend
from zetadp.mechanisms.base import Adjacency, PrivacyUnit, Value
from zetadp.mechanisms.errors import BudgetExceeded, IncompatibleEvent, InvalidParameter

AnyBudget: TypeAlias = Annotated[PureBudget | ZcdpBudget | GdpBudget | RdpBudget | RdpTargetBudget, Field(discriminator="kind")]


def _from_text(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Steps = Annotated[
    int,
    BeforeValidator(_from_text),
    Strict(),
    Field(ge=0),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]+$"}, mode="serialization"),
]
"""A whole number of grid steps; decimal text in JSON, since many readers round integers beyond 2^53."""


@final
class Price(Value):
    """A spend's cost in steps of a budget's grids, rounded up. For an event, computing it may take seconds; admitting is one addition."""

    steps: tuple[Steps, ...]


@final
class Filter(Value):
    r"""What was spent of a budget. Frozen: ``spend`` and ``refund`` give the next state, and its JSON restores it exactly.

    Attributes:
      budget: what may be spent in all.
      adjacency: of every spend; events are checked, numbers are assumed to refer to it.
      unit: of every spend, likewise.
      spent: the sums so far, in steps of each limit's grid.
      count: how many spends are in the sums.
    Sources: Rogers, Roth, Ullman and Vadhan 2016; Feldman and Zrnic 2021; Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2022.
    Proof: proofs/filters.md.

    >>> opened = Filter.opened(GdpBudget(mu=1.0), Adjacency.ADD_REMOVE, "record")
    >>> spent = opened.spend(GdpSpend(mu=0.6))
    >>> spent.remaining
    GdpSpend(kind='gdp', mu=0.7999999999999999)
    >>> spent.admits(GdpSpend(mu=0.81))
    False
    """

    budget: AnyBudget
    adjacency: Adjacency
    unit: PrivacyUnit
    spent: tuple[Steps, ...]
    count: Annotated[int, Strict(), Field(ge=0)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        number = len(self.budget.grids)
        if len(self.spent) != number:
            raise InvalidParameter("spent", f"one sum for each limit of the budget, {number}", len(self.spent))
        if not self._keeps(self.spent):
            raise InvalidParameter("spent", "within the budget", self.spent)
        return self

    @classmethod
    def opened(cls, budget: AnyBudget, adjacency: Adjacency, unit: PrivacyUnit) -> Self:
        """The filter before anything is spent."""
        return cls(budget=budget, adjacency=adjacency, unit=unit, spent=(0,) * len(budget.limits), count=0)

    def price(self, spend: Spend) -> Price:
        """What ``spend`` would charge for this spend, whatever was spent before. Raises as it does, except for BudgetExceeded."""
        self._check_neighbourhood(spend)
        return Price(steps=tuple(grid.steps(cost) for grid, cost in zip(self.budget.grids, self.budget.cost(spend), strict=True)))

    def repetitions(self, price: Price) -> int | None:
        """Exactly how many spends of this price are admitted one after the other from here on; None if it costs nothing."""
        return repetitions(self.budget, [grid.limit - spent for grid, spent in zip(self.budget.grids, self.spent, strict=True)], price)

    def admits(self, spend: Spend | Price) -> bool:
        """Whether ``spend`` would succeed. Raises as it does, except for BudgetExceeded."""
        return self._keeps(self._added(self._steps(spend)))

    def spend(self, spend: Spend | Price) -> Self:
        """The state after the step; store it before taking the step.

        Raises:
          BudgetExceeded: it doesn't fit. Nothing is spent, and a smaller one may still fit.
          UnsupportedEvent: it has no cost in the budget's currency.
          IncompatibleEvent: the event has another adjacency or unit.
        """
        steps = self._steps(spend)
        total = self._added(steps)
        if not self._keeps(total):
            raise self._exceeded(steps)
        return self._with(total, self.count + 1)

    def refund(self, spend: Spend | Price) -> Self:
        """The state without an admitted step that was never taken, so that nothing of it was released. Restores the sums exactly.

        Raises:
          InvalidParameter: less than that was spent.
        """
        rest = tuple(a - b for a, b in zip(self.spent, self._steps(spend), strict=True))
        if self.count == 0 or min(rest) < 0:
            raise InvalidParameter("refund", "of something that was spent", spend)
        return self._with(rest, self.count - 1)

    @property
    def remaining(self) -> AnySpend:
        """The largest spend in the budget's currency that is admitted now, rounded down."""
        grids = self.budget.grids
        return self.budget.as_spend(tuple(grid.amount(grid.limit - spent) for grid, spent in zip(grids, self.spent, strict=True)))

    def epsilon_at(self, delta: float) -> float:
        """What the filter finally guarantees, whatever is spent: every analysis within the budget is (epsilon, delta)-DP."""
        return self.budget.epsilon_at(delta)

    def epsilon_spent(self, failure_probability: float) -> float:
        r"""An odometer: with probability 1 - failure_probability the privacy loss is below its reading, at all times at once.

        The sums so far are rounded up to a ladder of fixed budgets, each of which answers for its share of the failure probability. That is
        the price for reading it at any time, even because of what was seen; the plain conversion of the sums so far has no proof.

        Args:
          failure_probability: in (0, 1).
        Source: Rogers, Roth, Ullman and Vadhan 2016, Section 6; Feldman and Zrnic 2021, Section 5. Proof: proofs/filters.md, section 6.
        """
        if not 0.0 < failure_probability < 1.0:
            raise InvalidParameter("failure_probability", "in (0, 1)", failure_probability)
        if not any(self.spent):
            return 0.0
        parts = tuple(grid.rung(spent) for grid, spent in zip(self.budget.grids, self.spent, strict=True))
        return self.budget.loss_at(parts, math.log(failure_probability) - math.log(RUNGS))

    def _steps(self, spend: Spend | Price) -> tuple[int, ...]:
        """The spend's costs in steps, rounded up."""
        found = spend if isinstance(spend, Price) else self.price(spend)
        if len(found.steps) != len(self.spent):
            raise InvalidParameter("price", f"of a budget with the same number of limits, {len(self.spent)}", len(found.steps))
        return found.steps

    def _added(self, steps: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(a + b for a, b in zip(self.spent, steps, strict=True))

    def _keeps(self, sums: tuple[int, ...]) -> bool:
        return self.budget.is_kept([steps <= grid.limit for grid, steps in zip(self.budget.grids, sums, strict=True)])

    def _with(self, spent: tuple[int, ...], count: int) -> Self:
        return type(self)(budget=self.budget, adjacency=self.adjacency, unit=self.unit, spent=spent, count=count)

    def _check_neighbourhood(self, spend: Spend) -> None:
        if isinstance(spend, PureSpend | ZcdpSpend | GdpSpend | RdpSpend):
            return
        theirs = neighbourhood(spend)
        for what, ours, other in zip(("adjacency", "unit"), (self.adjacency, self.unit), theirs or (), strict=False):
            if ours != other:
                raise IncompatibleEvent(what, str(ours), str(other))

    def _exceeded(self, steps: tuple[int, ...]) -> BudgetExceeded:
        """The error for the limit that comes closest to admitting the spend, among those that don't."""
        budget = self.budget
        rests = [grid.limit - spent for grid, spent in zip(budget.grids, self.spent, strict=True)]
        # A limit that was exceeded before (or is none) holds nothing, and a spend may cost nothing there; one that held until now fails.
        failing = [k for k, (step, rest) in enumerate(zip(steps, rests, strict=True)) if step > rest >= 0]
        k = max(failing, key=lambda k: Fraction(rests[k], steps[k]))
        requested, remaining = (budget.shown(budget.grids[k].amount(max(0, amount))) for amount in (steps[k], rests[k]))
        return BudgetExceeded(budget.quantities[k], requested, remaining)


def repetitions(budget: AnyBudget, rests: Sequence[int], price: Price) -> int | None:
    r"""How many spends of this price fit one after the other; None if it costs nothing.

    Args:
      rests: what is left of each limit, in steps of the budget's grids; below 0 nothing fits, even at price 0.
    """
    fits: list[float] = []
    for rest, step in zip(rests, price.steps, strict=True):
        fits.append((math.inf if rest >= 0 else -1) if step == 0 else rest // step)
    # The sums after n spends are within the k-th limit exactly where n <= fits[k]; the rule allows less and less as n grows.
    kept = max(n for n in fits if budget.is_kept([n <= most for most in fits]))
    return None if kept == math.inf else max(0, int(kept))
