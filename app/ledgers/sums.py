r"""Running sums of one balance: what is reserved and what is committed, in whole steps of the budget's grids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self, final

from zetadp.accountants.filters import Filter, Price
from zetadp.app.ledgers.entries import Charge
from zetadp.app.ledgers.errors import LedgerDamaged
from zetadp.app.ledgers.ledger_definition import LedgerDefinition


@final
@dataclass(frozen=True, slots=True)
class Sums:
    r"""The sums of a balance in its current period.

    ``open`` counts the reservations in ``reserved``, ``settled`` those that left something in ``committed``.
    """

    reserved: Charge
    committed: Charge
    open: int
    settled: int
    period: int = 0

    @classmethod
    def empty(cls, definition: LedgerDefinition) -> Self:
        """Nothing spent yet."""
        nothing = (0,) * len(definition.budget.limits)
        return cls(nothing, nothing, 0, 0)

    @classmethod
    def read(cls, ledger_id: str, definition: LedgerDefinition, text: str) -> Self:
        """From what ``text`` gave. Raises LedgerDamaged."""
        try:
            found = json.loads(text)
            reserved, committed = (tuple(int(number) for number in found[name]) for name in ("reserved", "committed"))
            counts = [found[name] for name in ("open", "settled", "period")]
        except (ValueError, TypeError, KeyError) as unreadable:
            raise LedgerDamaged(ledger_id, "the sums") from unreadable
        limits = len(definition.budget.limits)
        if len(reserved) != limits or len(committed) != limits or any(type(count) is not int for count in counts):
            raise LedgerDamaged(ledger_id, "the sums")
        if min(*reserved, *committed, *counts) < 0:
            raise LedgerDamaged(ledger_id, "the sums")
        return cls(reserved, committed, *counts)

    def text(self) -> str:
        """As stored; numbers of 130 bits as decimal text."""
        reserved, committed = ([str(number) for number in sums] for sums in (self.reserved, self.committed))
        return json.dumps({"reserved": reserved, "committed": committed, "open": self.open, "settled": self.settled, "period": self.period})

    def filter(self, definition: LedgerDefinition) -> Filter:
        """The filter, with everything reserved or committed spent: a reservation is a spend made early (proofs/filters.md, section 7)."""
        return definition.filter(self.spent, self.open + self.settled)

    def admitted(self, definition: LedgerDefinition, price: Price) -> Sums:
        """With the price reserved. Raises BudgetExceeded."""
        state = self.filter(definition)
        if not state.admits(price):
            state.spend(price)  # raises, and says why
        return Sums(_added(self.reserved, price.steps), self.committed, self.open + 1, self.settled, self.period)

    def renewed(self, period: int) -> Sums:
        """At the beginning of this period: only what is reserved counts."""
        return Sums(self.reserved, (0,) * len(self.committed), self.open, 0, period)

    @property
    def spent(self) -> Charge:
        """Reserved and committed together."""
        return _added(self.reserved, self.committed)

    def holds(self, charge: Charge) -> bool:
        """Whether a reservation of this charge can be among those that are reserved."""
        return self.open > 0 and all(part <= whole for part, whole in zip(charge, self.reserved, strict=True))

    def settled_at(self, charge: Charge, kept: Charge | None) -> Sums:
        """With a reservation of this charge, which it holds, turned into ``kept``, which is no more; None where nothing was released."""
        reserved = _less(self.reserved, charge)
        if kept is None:
            return Sums(reserved, self.committed, self.open - 1, self.settled, self.period)
        assert all(part <= whole for part, whole in zip(kept, charge, strict=True))  # whoever calls has taken the smaller one
        return Sums(reserved, _added(self.committed, kept), self.open - 1, self.settled + 1, self.period)


def _added(first: Charge, second: Charge) -> Charge:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _less(whole: Charge, part: Charge) -> Charge:
    rest = tuple(a - b for a, b in zip(whole, part, strict=True))
    assert min(rest) >= 0  # it holds the part
    return rest
