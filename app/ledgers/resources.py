r"""What the REST interface tells of ledgers. Domain types appear as they are; only transport fields are added."""

from __future__ import annotations

from datetime import datetime
from typing import final

from accountants.filters import AnySpend
from app.ledgers.entries import Charge, Committed, Fate, Lapsed, Reserved, Settlement
from app.ledgers.ledger_definition import LedgerDefinition, Spent
from app.ledgers.states import LedgerState, ReservationState
from app.ledgers.sums import Sums
from mechanisms.base import Value


@final
class LimitUse(Value):
    """One limit of the budget and how much of it is taken, each to the nearest float; the history has the exact sums."""

    quantity: str
    limit: float
    reserved: float
    committed: float
    remaining: float


@final
class Balance(Value):
    r"""What a budget has left.

    Attributes:
      limits: for each limit of the budget, in its quantity. Squares of mu are what adds up: 0.6 and 0.8 of mu make 1.
      remaining: the largest spend in the budget's own currency that would be admitted, rounded down.
      open_reservations: how many are neither settled nor lapsed.
      commitments: how many spends were committed.
    """

    limits: tuple[LimitUse, ...]
    remaining: AnySpend
    open_reservations: int
    commitments: int


@final
class Head(Value):
    """The last entry of the history. Note it down: nothing before it can then be changed without your seeing it."""

    number: int
    sha256: str


@final
class Ledger(Value):
    """A ledger. ``balance`` is null where each user has one, and ``users`` (how many have been charged so far) where they have none."""

    id: str
    state: LedgerState
    created: datetime
    definition: LedgerDefinition
    balance: Balance | None
    users: int | None
    head: Head


@final
class LedgerPage(Value):
    """Ledgers, newest first; ``next`` is the cursor of the following page, null on the last."""

    ledgers: tuple[Ledger, ...]
    next: str | None


@final
class Reservation(Value):
    r"""A spend that was admitted, and what became of it.

    Attributes:
      spend: what it is for.
      charge: what it takes: for each limit, whole steps of its grid.
      users: who is charged; empty where the ledger protects the data set as a whole.
      left_out: users with too little left, who must not be part of the release.
      then: what becomes of it when it lapses; null: it never does.
      released: where less than all of it was committed: what was.
      spent: what of the charge is spent for good; null while that is open.
      entry: number of the entry that made it; settled_entry of that which settled it.
    """

    id: str
    ledger: str
    state: ReservationState
    spend: Spent
    charge: Charge
    users: tuple[str, ...]
    left_out: tuple[str, ...]
    job: str | None
    expires: datetime | None
    then: Fate | None
    released: Spent | None
    spent: Charge | None
    entry: int
    settled_entry: int | None


@final
class ReservationPage(Value):
    """Reservations, newest first; ``next`` is the cursor of the following page, null on the last."""

    reservations: tuple[Reservation, ...]
    next: int | None


@final
class Projection(Value):
    r"""How much more fits, exactly, as things stand.

    Attributes:
      separately: how many such spends, reserved one after the other; null: without end, they cost nothing.
      together: the most repetitions of the event in a single reservation (each reservation's cost is rounded up, so it may be more); null
        for numbers, and where there is no end up to the largest count of an event.
      after: the balance as one such reservation would leave it; null where it doesn't fit.
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


def reservation_of(ledger_id: str, made: Reserved, number: int, settled: tuple[Settlement, int] | None) -> Reservation:
    """A reservation from the entry that made it and the one that settled it."""
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
        expires=made.expires,
        then=made.then,
        released=act.released if isinstance(act, Committed) else None,
        spent=None if act is None else spent_by(act, made),
        entry=number,
        settled_entry=None if settled is None else settled[1],
    )


def spent_by(act: Settlement, made: Reserved) -> Charge:
    """What of a reservation's charge is spent for good."""
    if isinstance(act, Committed):
        return act.charge
    if isinstance(act, Lapsed) and act.then == "spent":
        return made.charge
    return (0,) * len(made.charge)
