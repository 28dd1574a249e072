r"""What the REST interface shows of ledgers. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from datetime import datetime
from typing import final

from zetadp.accountants.filters import AnySpend
from zetadp.app.ledgers.entries import Charge, Committed, Fate, Lapsed, Reserved, Settlement
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.states import LedgerState, ReservationState
from zetadp.app.ledgers.sums import Sums
from zetadp.mechanisms.base import Value


@final
class LimitUse(Value):
    """One limit of the budget and how much of it is used, each to the nearest float; the history has the exact sums."""

    quantity: str
    limit: float
    reserved: float
    committed: float
    remaining: float


@final
class Balance(Value):
    r"""What a budget has left.

    Attributes:
      limits: for each limit of the budget, in its quantity. The squares of mu add up: a mu of 0.6 and one of 0.8 make 1.
      remaining: the largest spend in the budget's own currency that would be admitted, rounded down.
      open_reservations: the number of reservations that are neither settled nor lapsed.
      commitments: the number of committed spends.
    """

    limits: tuple[LimitUse, ...]
    remaining: AnySpend
    open_reservations: int
    commitments: int


@final
class Head(Value):
    """The last entry of the history. Write it down: compared with it later, the history shows whether anything before it changed."""

    number: int
    sha256: str


@final
class Ledger(Value):
    r"""A ledger.

    Attributes:
      balance: null if each user has one; otherwise ``users`` (the number charged so far) is null.
      renews_at: when the budget's period ends and all but open reservations is free again; null: never.
    """

    id: str
    state: LedgerState
    created: datetime
    definition: LedgerDefinition
    balance: Balance | None
    users: int | None
    renews_at: datetime | None
    head: Head


@final
class LedgerPage(Value):
    r"""Ledgers, newest first; ``next`` is the cursor of the following page, null on the last.

    Attributes:
      damaged: ids of ledgers of this page that aren't shown, since what is stored of them can't be used: verify them.
    """

    ledgers: tuple[Ledger, ...]
    damaged: tuple[str, ...]
    next: str | None


@final
class Reservation(Value):
    r"""A spend that was admitted, and its outcome.

    Attributes:
      spend: what it is for.
      charge: what it takes: for each limit, whole steps of its grid.
      users: who is charged; empty where the ledger protects the data set as a whole.
      left_out: users with too little left, who must not be part of the release.
      purpose: what it is for, by whoever asked; null if they didn't say.
      approved_by: the key that approved it; null where none did.
      then: what happens to it when it lapses; null: it never lapses.
      released: what was committed, if less than all of it.
      spent: the part of the charge that is finally spent; null while that is open.
      entry: number of the entry that made it; ``settled_entry``: of the one that settled it.
    """

    id: str
    ledger: str
    state: ReservationState
    spend: Spent
    charge: Charge
    users: tuple[str, ...]
    left_out: tuple[str, ...]
    job: str | None
    purpose: str | None
    approved_by: str | None
    expires: datetime | None
    then: Fate | None
    released: Spent | None
    spent: Charge | None
    entry: int
    settled_entry: int | None


@final
class ReservationPage(Value):
    r"""Reservations, newest first; ``next`` is the cursor of the following page, null on the last.

    Attributes:
      unreadable: numbers of entries that can't be read: the reservations of this page that they made or settled aren't shown.
    """

    reservations: tuple[Reservation, ...]
    unreadable: tuple[int, ...]
    next: int | None


@final
class Projection(Value):
    r"""Exactly how much more fits at the moment, for the key that asks where keys have quotas.

    Attributes:
      separately: the number of such spends, reserved one after the other; null: unlimited, since they cost nothing.
      together: the most repetitions of the event in a single reservation (each reservation's cost is rounded up, so it may be more); null
        for numbers, and if there is no limit up to the largest count of an event.
      after: the balance after one such reservation; null if it doesn't fit.
    """

    separately: int | None
    together: int | None
    after: Balance | None


def balance_of(definition: LedgerDefinition, sums: Sums) -> Balance:
    """A balance from its sums."""
    budget, filtered = definition.budget, sums.filter(definition)
    uses = tuple(
        LimitUse(
            quantity=quantity,
            limit=budget.shown(max(grid.amount(grid.limit), grid.amount(0))),
            reserved=budget.shown(grid.amount(reserved)),
            committed=budget.shown(grid.amount(committed)),
            remaining=budget.shown(max(grid.amount(grid.limit - reserved - committed), grid.amount(0))),
        )
        for quantity, grid, reserved, committed in zip(budget.quantities, budget.grids, sums.reserved, sums.committed, strict=True)
    )
    return Balance(limits=uses, remaining=filtered.remaining, open_reservations=sums.open, commitments=sums.settled)


def reservation_of(
    ledger_id: str, made: Reserved, number: int, settled: tuple[Settlement, int] | None, approved_by: str | None = None
) -> Reservation:
    """A reservation from the entry that made it and the one that settled it, and who approved it."""
    act = None if settled is None else settled[0]
    return Reservation(
        id=made.reservation,
        ledger=ledger_id,
        state=ReservationState.RESERVED if act is None else ReservationState(act.kind),
        spend=made.spend,
        charge=made.charge,
        users=made.users,
        left_out=made.left_out,
        job=made.job,
        purpose=made.purpose,
        approved_by=approved_by,
        expires=made.expires,
        then=made.then,
        released=act.released if isinstance(act, Committed) else None,
        spent=None if act is None else spent_by(act, made),
        entry=number,
        settled_entry=None if settled is None else settled[1],
    )


def spent_by(act: Settlement, made: Reserved) -> Charge:
    """The part of a reservation's charge that is finally spent."""
    if isinstance(act, Committed):
        return act.charge
    if isinstance(act, Lapsed) and act.then == "spent":
        return made.charge
    return (0,) * len(made.charge)
