r"""The definition of a ledger, fixed when it is made: its budget, its neighbours, and what it protects."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, final

from pydantic import Field, StringConstraints

from zetadp.accountants.events import Event
from zetadp.accountants.filters import AnyBudget, AnySpend, Filter
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Adjacency, PrivacyUnit
from zetadp.mechanisms.base import Value

LedgerName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}$")]
UserName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
"""Who is charged. Pseudonyms are best: the history keeps them for ever."""

Purpose = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}$")]
"""What a spend is for, by whoever asks. The history keeps it for ever, and nobody checks it: it limits nothing."""

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
    """

    model_config = example(
        {"name": "scans", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    )

    name: LedgerName
    budget: AnyBudget
    adjacency: Adjacency
    unit: PrivacyUnit
    protects: Literal["data_set", "each_user"]

    def opened(self) -> Filter:
        """The filter before anything is spent."""
        return Filter.opened(self.budget, self.adjacency, self.unit)

    def filter(self, spent: tuple[int, ...], count: int) -> Filter:
        """The filter after these sums, in steps of its grids."""
        return Filter(budget=self.budget, adjacency=self.adjacency, unit=self.unit, spent=spent, count=count)


@lru_cache(maxsize=4096)
def stored_definition(text: str) -> LedgerDefinition:
    """A definition as stored; cached, since the same few are read with every spend, and its budget caches its grids."""
    return LedgerDefinition.model_validate_json(text)
