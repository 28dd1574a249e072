r"""Reading ledgers, inside the caller's transaction and without any lock."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from zetadp.app.ledgers.entries import Approved, Reserved, Settlement, read_entry, read_reserved
from zetadp.app.ledgers.errors import EntryUnreadable, LedgerNotFound, ReservationHeld, ReservationNotFound
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, stored_definition
from zetadp.app.ledgers.resources import Balance, Head, Ledger, Reservation, balance_of, reservation_of
from zetadp.app.ledgers.rows import analyst_row
from zetadp.app.ledgers.states import stored_state
from zetadp.app.ledgers.sums import Sums
from zetadp.app.tables.access import KeyRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerJobRow, LedgerRow, LedgerUserRow
from zetadp.mechanisms.errors import InvalidParameter


def found_ledger(session: Session, tenant: str, ledger_id: str) -> LedgerRow:
    """The ledger's row. Raises LedgerNotFound."""
    row = session.scalar(select(LedgerRow).where(LedgerRow.id == ledger_id, LedgerRow.tenant == tenant))
    if row is None:
        raise LedgerNotFound(ledger_id)
    return row


def ledger_of(session: Session, row: LedgerRow) -> Ledger:
    """The ledger as the interface shows it."""
    definition = stored_definition(row.id, row.definition)
    is_whole, sums = definition.protects == "data_set", Sums.read(row.id, definition, row.sums)
    users = None if is_whole else session.scalar(select(func.count()).where(LedgerUserRow.ledger_id == row.id))
    return Ledger(
        id=row.id,
        state=stored_state(row.id, row.state),
        created=row.created,
        definition=definition,
        balance=balance_of(definition, sums) if is_whole else None,
        users=users,
        renews_at=definition.renews_at(row.created, sums.period),
        head=Head(number=row.entries, sha256=row.head),
    )


def sums_of(session: Session, row: LedgerRow, user: str | None) -> Sums:
    """The sums of the data set, or of this user. Raises InvalidParameter: a user is named and the ledger has none, or reversed."""
    definition = stored_definition(row.id, row.definition)
    if definition.protects == "data_set":
        if user is not None:
            raise InvalidParameter("user", "absent: this ledger protects the data set as a whole", user)
        return Sums.read(row.id, definition, row.sums)
    if user is None:
        raise InvalidParameter("user", "given: this ledger protects each user", None)
    stored = session.get(LedgerUserRow, (row.id, user))
    return Sums.empty(definition) if stored is None else Sums.read(row.id, definition, stored.sums)


def quota_left(session: Session, row: LedgerRow, key: str | None) -> tuple[int, ...] | None:
    """What is left of a key's quota, for each limit in steps of its grid: nothing without one; None where the ledger has no quotas."""
    definition = stored_definition(row.id, row.definition)
    if definition.rules is None or definition.rules.quotas is None:
        return None
    stored = session.get(LedgerUserRow, (row.id, analyst_row(key)))
    spent = (Sums.empty(definition) if stored is None else Sums.read(row.id, definition, stored.sums)).spent
    # Less than nothing, so that what costs nothing doesn't fit either.
    return definition.rules.quota_rests(definition.budget, key, spent) or (-1,) * len(spent)


def user_balance(session: Session, row: LedgerRow, user: str) -> Balance:
    """What a user has left; one who was never charged has everything. Raises InvalidParameter if the ledger has no users."""
    return balance_of(stored_definition(row.id, row.definition), sums_of(session, row, user))


def reservations_of(session: Session, made: Sequence[LedgerEntryRow]) -> tuple[list[Reservation], list[int]]:
    """The reservations that these entries of one ledger made, as far as they can be read, and the numbers of the entries that can't."""
    ids = [row.reservation_id for row in made]
    later: dict[str | None, list[tuple[int, str]]] = {}
    if made:
        wanted = select(LedgerEntryRow.reservation_id, LedgerEntryRow.number, LedgerEntryRow.text)
        query = wanted.where(LedgerEntryRow.reservation_id.in_(ids), LedgerEntryRow.settles > 0)
        for name, number, text in session.execute(query.where(LedgerEntryRow.ledger_id == made[0].ledger_id)):
            later.setdefault(name, []).append((number, text))
    found: list[Reservation] = []
    unreadable: list[int] = []
    for row in made:
        try:
            found.append(_reservation(row, later.get(row.reservation_id, [])))
        except EntryUnreadable as broken:
            unreadable.append(broken.entry)
    return found, unreadable


def _reservation(row: LedgerEntryRow, later: Sequence[tuple[int, str]]) -> Reservation:
    """The reservation that this entry made, with the later entries about it. Raises EntryUnreadable."""
    made, approved_by, settled = read_reserved(row.number, row.text), None, None
    for number, text in later:
        entry = read_entry(number, text)
        if isinstance(entry.act, Approved):
            approved_by = entry.by
        elif isinstance(entry.act, Settlement):
            settled = (entry.act, number)
        else:
            raise EntryUnreadable(number)
    return reservation_of(row.ledger_id, made, row.number, settled, approved_by)


def found_reservation(session: Session, ledger_id: str, reservation_id: str) -> Reservation:
    """A reservation of this ledger. Raises ReservationNotFound, EntryUnreadable."""
    found, unreadable = reservations_of(session, [_made(session, ledger_id, reservation_id)])
    if unreadable:
        raise EntryUnreadable(unreadable[0])
    return found[0]


def found_reserved(session: Session, tenant: str, ledger_id: str, reservation_id: str) -> Reserved:
    """The entry that made a reservation, which never changes. Raises LedgerNotFound, ReservationNotFound, EntryUnreadable."""
    found_ledger(session, tenant, ledger_id)
    made = _made(session, ledger_id, reservation_id)
    return read_reserved(made.number, made.text)


def _made(session: Session, ledger_id: str, reservation_id: str) -> LedgerEntryRow:
    wanted = select(LedgerEntryRow).where(LedgerEntryRow.ledger_id == ledger_id, LedgerEntryRow.reservation_id == reservation_id)
    row = session.scalar(wanted.where(LedgerEntryRow.settles == 0))
    if row is None:
        raise ReservationNotFound(ledger_id, reservation_id)
    return row


def check_not_held(session: Session, tenant: str, ledger_id: str, reservation_id: str) -> None:
    """Raises LedgerNotFound; ReservationHeld: a job made the reservation, and it alone settles it, at its end."""
    found_ledger(session, tenant, ledger_id)
    held = select(LedgerJobRow.job_id).where(LedgerJobRow.reservation_id == reservation_id, LedgerJobRow.ledger_id == ledger_id)
    if (job_id := session.scalar(held)) is not None:
        raise ReservationHeld(reservation_id, job_id)


def check_for_jobs(definition: LedgerDefinition) -> None:
    """Raises InvalidParameter: no job can be charged to this ledger."""
    if definition.protects != "data_set":
        raise InvalidParameter(
            "ledger", "one that protects a data set as a whole: a job doesn't say whose records it uses", definition.name
        )


def check_quota_keys(session: Session, tenant: str, definition: LedgerDefinition) -> None:
    """Raises InvalidParameter: a quota names no key of the tenant, or one that another was rotated to. Nothing is ever reserved by it: a
    key's id is drawn when the key is made, and a definition never changes."""
    quotas = definition.rules.quotas if definition.rules is not None and definition.rules.quotas is not None else ()
    known = select(KeyRow.id, KeyRow.principal).where(KeyRow.tenant == tenant, KeyRow.id.in_([quota.key for quota in quotas]))
    principals: dict[str, str] = {key: principal for key, principal in session.execute(known)}  # noqa: C416 (rows, not pairs)
    for place, quota in enumerate(quotas):
        field, principal = f"rules.quotas[{place}].key", principals.get(quota.key)
        if principal is None:
            raise InvalidParameter(field, "the id of one of your tenant's keys, made before the ledger (GET /v1/keys)", quota.key)
        if principal != quota.key:
            raise InvalidParameter(field, f"the first of a key's rotations, {principal} here", quota.key)


def check_job_rules(definition: LedgerDefinition, key: str | None, purpose: str | None) -> None:
    """Raises InvalidParameter: the ledger's rules refuse a job of this key for this purpose, whatever it costs."""
    rules = definition.rules
    if rules is None:
        return
    rules.check_purpose(purpose)
    if rules.quotas is not None and key not in {quota.key for quota in rules.quotas}:
        raise InvalidParameter("ledger", f"one in which key {key} has a quota", definition.name)


def waits_for_approval(session: Session, ledger_id: str, reservation_id: str) -> bool:
    """Whether nothing of a reservation may be released yet, since the ledger's rules ask for a second key's approval."""
    text = session.execute(select(LedgerRow.definition).where(LedgerRow.id == ledger_id)).scalar_one()
    rules = stored_definition(ledger_id, text).rules
    if rules is None or rules.approval != "second_key":
        return False
    return found_reservation(session, ledger_id, reservation_id).approved_by is None
