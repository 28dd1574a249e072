r"""Checks a ledger's tables: its history, and every figure that is stored beside it and follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from zetadp.app.kit.database import now
from zetadp.app.ledgers.entries import Released
from zetadp.app.ledgers.rows import Requester, entry_row
from zetadp.app.ledgers.statements import LOOK_AGAIN_SECONDS
from zetadp.app.ledgers.sums import Sums
from zetadp.app.ledgers.verification.prices import Clock
from zetadp.app.ledgers.verification.replay import CLOCKS_DIFFER, ChainReport, Replay, SettledForJob
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerJobRow, LedgerLapseRow, LedgerRow, LedgerUserRow

ENTRIES_AT_ONCE = 1000


def verify_stored(session: Session, row: LedgerRow, seconds: float = math.inf) -> ChainReport:
    r"""Check a ledger's tables: its history and everything stored with it.

    Args:
      seconds: how much processor time that may take in all; what isn't reached is told as such.
    """
    replay, clock = Replay(row.id), Clock(seconds)
    for stored in _stored_entries(session, row.id):
        if clock.left <= 0:
            later = select(func.count()).where(LedgerEntryRow.ledger_id == row.id, LedgerEntryRow.number >= stored.number)
            return replay.report(clock, session.scalar(later) or 0)
        if stored.number != replay.number + 1:
            replay.note(f"entry {replay.number + 1} is missing", f"entry {stored.number}")
        entry = replay.read(stored.text, stored.sha256)
        if entry is not None:
            by_text = entry_row(entry, stored.text, stored.sha256, Requester(None, stored.idempotency_key, stored.request_sha256))
            if any(getattr(stored, column) != value for column, value in by_text.items()):
                replay.note("its columns differ from its text")
    _compare_row(replay, row)
    _compare_users(session, replay)
    _compare_lapses(session, replay, row)
    _compare_jobs(session, replay)
    return replay.report(clock)


def _stored_entries(session: Session, ledger_id: str) -> Iterator[LedgerEntryRow]:
    after = 0
    while True:
        query = select(LedgerEntryRow).where(LedgerEntryRow.ledger_id == ledger_id, LedgerEntryRow.number > after)
        rows = list(session.scalars(query.order_by(LedgerEntryRow.number).limit(ENTRIES_AT_ONCE)))
        yield from rows
        session.expunge_all()  # a long history isn't kept in memory
        if len(rows) < ENTRIES_AT_ONCE:
            return
        after = rows[-1].number


def _compare_row(replay: Replay, row: LedgerRow) -> None:
    definition = replay.definition
    if definition is None:
        return  # the report says so
    whole = replay.sums("") if definition.protects == "data_set" else Sums.empty(definition)
    for what, kept, right in (
        ("its number of entries", row.entries, replay.number),
        ("the time it was made", row.created, replay.opened),
        ("its head", row.head, replay.head),
        ("its state", row.state, str(replay.state)),
        ("its name", row.name, definition.name),
        ("the time of its last entry", row.latest, replay.latest),
        ("its definition", row.definition, definition.model_dump_json()),
        ("its sums", row.sums, whole.text()),
    ):
        if kept != right:
            replay.note(f"{what} must be {right} by the entries, got {kept}", "ledger")


def _compare_users(session: Session, replay: Replay) -> None:
    kept = session.execute(select(LedgerUserRow.name, LedgerUserRow.sums).where(LedgerUserRow.ledger_id == replay.ledger_id))
    # As texts: what was changed may be none that can be read.
    stored: dict[str, str] = {name: sums for name, sums in kept}  # noqa: C416 (rows, not pairs)
    computed = {name: sums.text() for name, sums in replay.balances.items() if name}
    for name in stored.keys() | computed.keys():
        if stored.get(name) != computed.get(name):
            replay.note(f"its sums must be {computed.get(name)} by the entries, got {stored.get(name)}", f"user {name!r}")


def _compare_lapses(session: Session, replay: Replay, row: LedgerRow) -> None:
    kept = select(LedgerLapseRow.reservation_id, LedgerLapseRow.look_at).where(LedgerLapseRow.ledger_id == replay.ledger_id)
    looks = {name: look_at for name, look_at in session.execute(kept)}  # noqa: C416 (rows, not pairs)
    lapsing = {name: made for name, made in replay.open.items() if made.expires is not None}
    for name in sorted(lapsing.keys() - looks.keys()):
        replay.note("it lapses, but the time isn't stored", f"reservation {name}")
    for name in sorted(looks.keys() - lapsing.keys()):
        replay.note("it isn't open or never lapses, but is stored as one that lapses", f"reservation {name}")
    for name in sorted(looks.keys() & lapsing.keys()):
        expires, job = lapsing[name].expires, lapsing[name].job
        assert expires is not None  # it lapses
        # One of a job that hasn't ended is looked at again and again.
        latest = expires if job is None else max(expires, now() + timedelta(seconds=LOOK_AGAIN_SECONDS) + CLOCKS_DIFFER)
        if not expires <= looks[name] <= latest:
            replay.note(f"it lapses at {expires}, stored is {looks[name]}", f"reservation {name}")
    if looks and (row.next_lapse is None or row.next_lapse > min(looks.values())):
        replay.note(f"its next reservation lapses at {min(looks.values())}, stored is {row.next_lapse}", "ledger")


def _compare_jobs(session: Session, replay: Replay) -> None:
    """What the service settled by itself it settled at the end of a job, if that job is still stored."""
    for first in range(0, len(replay.by_service), ENTRIES_AT_ONCE):
        settled = replay.by_service[first : first + ENTRIES_AT_ONCE]
        of = (JobRow.id, JobRow.ledger, JobRow.state, JobRow.attempt)
        latest = (LedgerJobRow.reservation_id.label("reservation"), LedgerJobRow.attempt.label("before"))
        found = select(*of, *latest).outerjoin(LedgerJobRow, LedgerJobRow.job_id == JobRow.id)
        jobs = {row.id: row for row in session.execute(found.where(JobRow.id.in_({one.job for one in settled})))}
        for one in settled:
            if one.job in jobs and (problem := _job_problem(replay.ledger_id, one, jobs[one.job])) is not None:
                replay.note(f"it was settled without a key, and {problem}", f"entry {one.entry}")


def _job_problem(ledger_id: str, settled: SettledForJob, job: Row[*tuple[Any, ...]]) -> str | None:
    if job.ledger != ledger_id:
        return "its job isn't charged to this ledger"
    if job.reservation != settled.act.reservation:
        return None  # of an earlier run, of which nothing more is stored
    if not JobState(job.state).is_final:
        return "its job hasn't ended"
    return "a worker had its job in hand" if isinstance(settled.act, Released) and job.attempt != job.before else None
