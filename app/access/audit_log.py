r"""The audit log: who did what, and who was refused. One thread writes it, so that many requests share one transaction."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import final

import structlog
from sqlalchemy import or_, select, update

from zetadp.app.access.resources import AuditEntry, AuditPage
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.key_text import without_secrets
from zetadp.app.tables.access import AuditRow, KeyRow
from zetadp.app.tables.tenants import DEFAULT_TENANT

ENTRIES_PER_TRANSACTION = 500
LAST_USED_SECONDS = 60.0
"""Resolution of a key's time of last use; a write for each request would be too much."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True)
class AuditEvent:
    """An audit entry that doesn't have a number yet; see ``AuditEntry``."""

    time: datetime
    tenant: str | None
    key_id: str | None
    address: str
    action: str
    target: str
    status: int
    request_id: str

    def row(self) -> AuditRow:
        """The row to store, cut to the columns' lengths and without any key's secret."""
        return AuditRow(
            time=self.time,
            tenant=self.tenant,
            key_id=self.key_id,
            address=self.address[:64],
            action=without_secrets(self.action)[:200],
            target=without_secrets(self.target)[:500],
            status=self.status,
            request_id=self.request_id,
        )


def local_event(tenant: str, key_id: str, action: str, target: str) -> AuditEvent:
    """An action of the operator on the service's machine."""
    return AuditEvent(now(), tenant, key_id, "local", action, target, 0, "-")


@final
@dataclass(frozen=True)
class _Used:
    key_id: str
    time: datetime


@final
class AuditLog:
    """Writes entries in a thread; once closed, it has written everything."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: queue.SimpleQueue[tuple[AuditEvent | _Used, Future[None]] | None] = queue.SimpleQueue()
        self._used: dict[str, float] = {}
        self._writer = threading.Thread(target=self._write, name="audit", daemon=True)
        self._writer.start()

    def record(self, event: AuditEvent) -> Future[None]:
        """Queue an entry; the future is done once it is written. It never raises: a failure goes to the service's log."""
        written: Future[None] = Future()
        self._waiting.put((event, written))
        return written

    def used(self, key_id: str) -> None:
        """Note that a key was used now; this is stored about once a minute."""
        moment = time.monotonic()
        if moment - self._used.get(key_id, -LAST_USED_SECONDS) >= LAST_USED_SECONDS:
            self._used[key_id] = moment
            self._waiting.put((_Used(key_id, now()), Future()))

    @property
    def waiting(self) -> int:
        """The number of entries that aren't written yet."""
        return self._waiting.qsize()

    def page(self, tenant: str, before: int | None, limit: int) -> AuditPage:
        """At most ``limit`` entries before the number ``before``, newest first. The operator's tenant also sees those without a tenant."""
        query = select(AuditRow).order_by(AuditRow.number.desc()).limit(limit + 1)
        own = AuditRow.tenant == tenant
        query = query.where(or_(own, AuditRow.tenant.is_(None)) if tenant == DEFAULT_TENANT else own)
        if before is not None:
            query = query.where(AuditRow.number < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
        entries = tuple(_entry(row) for row in rows[:limit])
        return AuditPage(entries=entries, next=rows[limit - 1].number if len(rows) > limit else None)

    def close(self) -> None:
        """Write all waiting entries and end."""
        self._waiting.put(None)
        self._writer.join()

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            is_last = False
            while len(batch) < ENTRIES_PER_TRANSACTION and not is_last:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    break
                is_last = following is None
                if following is not None:
                    batch.append(following)
            self._store([noted for noted, _ in batch])
            for _, written in batch:
                written.set_result(None)
            if is_last:
                return

    def _store(self, noted: Sequence[AuditEvent | _Used]) -> None:
        deeds = [each for each in noted if isinstance(each, AuditEvent)]
        try:
            with self._database.writing() as session:
                session.add_all([event.row() for event in deeds])
                for use in noted:
                    if isinstance(use, _Used):
                        session.execute(update(KeyRow).where(KeyRow.id == use.key_id).values(last_used=use.time))
        except Exception as error:
            # Whatever it was, requests wait for this thread. The thing itself was done or refused: the service's own log tells it.
            for event in deeds:
                _log.error(
                    "audit_entry_not_stored",
                    error_type=type(error).__name__,
                    tenant=event.tenant,
                    key_id=event.key_id,
                    address=event.address,
                    action=without_secrets(event.action),
                    target=without_secrets(event.target),
                    status=event.status,
                    of_request=event.request_id,
                )


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        number=row.number,
        time=row.time,
        tenant=row.tenant,
        key_id=row.key_id,
        address=row.address,
        action=row.action,
        target=row.target,
        status=row.status,
        request_id=row.request_id,
    )
