r"""The definition of a ledger, fixed when it is made: its budget, its neighbours, and what it protects."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Literal, Self, final

from pydantic import Field, StringConstraints, ValidationError, model_validator

from zetadp.accountants.events import Event
from zetadp.accountants.filters import AnyBudget, AnySpend, Filter
from zetadp.app.calculators.schemas import example
from zetadp.app.ledgers.errors import LedgerDamaged
from zetadp.app.ledgers.rules import Rules
from zetadp.mechanisms import Adjacency, PrivacyUnit
from zetadp.mechanisms.base import Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError

LedgerName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}$")]
UserName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
"""Who is charged. Pseudonyms are best: the history keeps them for ever."""

LARGEST_GROUP_OF_USERS = 1000

Spent = Annotated[AnySpend | Event, Field(discriminator="kind")]
"""An event, which the filter accounts for, or a number in one of its currencies, which is accepted as given."""


@final
class LedgerDefinition(Value):
    r"""A budget and what it protects.

    Attributes:
      name: unique among the tenant's ledgers.
      budget: what may be spent in all, by fully adaptive composition.
      adjacency: of every spend. Events are checked; numbers are assumed to refer to it.
      unit: of every spend, likewise.
      protects: ``data_set``, one balance for everything done to the data set; or ``each_user``, a balance for each user, charged
        with the releases that use this user's records. The list of users that a reservation names counts as public.
      renews_after_days: the whole budget is free again after each such period, counted from when the ledger was made; what is still
        reserved then counts in the next period too. Each period's releases are within the budget. Somebody whose data stay for k periods
        is protected by k budgets together: sums of epsilon at delta 0, rho and Renyi divergences are k times as large, mu is sqrt(k)
        times. Null: never. Only for a data set as a whole.
      rules: who may spend, and what for; null: whoever may use ledgers, for anything.
    """

    model_config = example(
        {"name": "scans", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    )

    name: LedgerName
    budget: AnyBudget
    adjacency: Adjacency
    unit: PrivacyUnit
    protects: Literal["data_set", "each_user"]
    renews_after_days: Annotated[int | None, Field(strict=True, ge=1, le=36_600, exclude_if=is_absent)] = None
    rules: Annotated[Rules | None, Field(exclude_if=is_absent)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.protects == "each_user" and self.renews_after_days is not None:
            raise InvalidParameter("renews_after_days", "absent where each user has a balance", self.renews_after_days)
        if self.protects == "each_user" and self.rules is not None and self.rules.quotas is not None:
            raise InvalidParameter("rules.quotas", "absent where each user has a balance", len(self.rules.quotas))
        return self

    def period_at(self, opened: datetime, moment: datetime) -> int:
        """The number of the budget's period at this moment, from 0."""
        return 0 if self.renews_after_days is None else max(0, (moment - opened) // timedelta(days=self.renews_after_days))

    def renews_at(self, opened: datetime, period: int) -> datetime | None:
        """When this period ends; None: never."""
        return None if self.renews_after_days is None else opened + (period + 1) * timedelta(days=self.renews_after_days)

    def opened(self) -> Filter:
        """The filter before anything is spent."""
        return Filter.opened(self.budget, self.adjacency, self.unit)

    def filter(self, spent: tuple[int, ...], count: int) -> Filter:
        """The filter after these sums, in steps of its grids."""
        return Filter(budget=self.budget, adjacency=self.adjacency, unit=self.unit, spent=spent, count=count)


def stored_definition(ledger_id: str, text: str) -> LedgerDefinition:
    """The definition of this ledger, as stored. Raises LedgerDamaged."""
    try:
        return _definition(text)
    except (ValidationError, PrivacyError) as invalid:
        raise LedgerDamaged(ledger_id, "the definition") from invalid


@lru_cache(maxsize=4096)
def _definition(text: str) -> LedgerDefinition:
    """Cached, since the same few are read with every spend, and a budget caches its grids."""
    return LedgerDefinition.model_validate_json(text)
