r"""Restores a backup into an empty place: all of it, checked, or nothing.

A backup is a snapshot of one moment. What was spent, released, revoked or deleted after it is lost, and nothing here can know it. The
restored service says so, and unfinished jobs wait until somebody who knows lets them continue.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

from sqlalchemy import Connection, and_, delete, func, inspect, select, text, update
from sqlalchemy.orm import Session

from zetadp.app.access.audit_log import local_event
from zetadp.app.certificates.facts.announced import PlanStatement
from zetadp.app.certificates.log.entries import CERTIFICATE, certificate_entry, plan_entry
from zetadp.app.certificates.log.storing import announced_in
from zetadp.app.certificates.log.tree import completed, leaf_hash, node_hash
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.jobs.attempts import end
from zetadp.app.jobs.history import change_state, locked
from zetadp.app.kit.database import Base, Database, revisions, upgrade
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.verification.tables import verify_stored
from zetadp.app.operations.archive import FILES, BackupUnusable, LedgerEnd, Manifest, StorageKind, TableDump, rows_of, unpack
from zetadp.app.operations.backup import kind_of_storage
from zetadp.app.operations.objects import restore_objects
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.access import KeyRow
from zetadp.app.tables.certificate_log import AnnouncedPlanRow, LogEntryRow, LogNodeRow, LogRow
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import HELD_STATES, JobState, Outcome
from zetadp.app.tables.jobs import JobRow
from zetadp.app.tables.ledgers import LedgerRow
from zetadp.app.tables.tenants import DEFAULT_TENANT
from zetadp.mechanisms.base import Value

ROWS_AT_ONCE = 500
_WHERE: Mapping[StorageKind, str] = {"folder": "in its data folder", "elsewhere": "elsewhere (ZETADP_STORAGE_URL)"}
WARNINGS = (
    "Spends after the backup are lost: its ledgers show more left than there is. Compare the last entries above with what "
    "their readers noted, and reserve and commit by hand what is missing before anybody spends.",
    "Unfinished jobs may have gone on after the backup and released more; run again, they would release it again but count it once. "
    "They are paused unless you said otherwise: resume only those of which nothing is left from after the backup.",
    "Access keys and signing keys that were revoked after the backup are valid again: revoke them again.",
    "Certificates issued after the backup aren't in its log. Anyone who kept a later head of the log will see that it was set back.",
)
"""What the operator who restores must know."""


@final
class Restored(Value):
    """What was restored: rows, certificates with checked signatures, ledgers with checked chains, and unfinished jobs."""

    made: str
    rows: int
    certificates: int
    ledgers: tuple[LedgerEnd, ...]
    unfinished_jobs: tuple[str, ...]
    keys_valid: int


def restore(source: IO[bytes], settings: Settings, into: Path, *, jobs_go_on: bool) -> Restored:
    r"""Restore a backup as the data folder ``into``, with the database of the settings or, without one, SQLite in the folder.

    Args:
      jobs_go_on: whether unfinished jobs are queued again instead of paused.

    Raises:
      BackupUnusable: the backup or the target can't be used; nothing was changed.
      OSError: there is no room, or the folder can't be made; nothing was changed.
      StorageUnavailable: try again.

    With a storage elsewhere, files may be there already when something is refused later: what no row names is swept or harmless.
    """
    if into.is_symlink() or (into.exists() and (not into.is_dir() or any(into.iterdir()))):
        raise BackupUnusable(f"expected an empty folder or none to restore into, got {str(into)!r}")
    into = into.absolute()
    into.parent.mkdir(parents=True, exist_ok=True)
    with _staging(into) as staging:
        manifest = unpack(source, staging / "backup")
        if manifest.revision not in revisions():
            raise BackupUnusable(
                f"the backup is of zetadp {manifest.version} with tables of version {manifest.revision}, this version knows tables up to "
                f"{revisions()[0]}: restore it with that version or a newer one"
            )
        data = staging / "data"
        files = staging / "backup" / FILES
        if files.is_dir():
            files.rename(data)
            for place, _, _ in os.walk(data):
                os.chmod(place, 0o700)
            if (storage := storage_of(settings)).is_elsewhere:
                restore_objects(data, storage.store)
        target = Settings.model_validate(settings.model_dump() | {"data_dir": data})
        database = Database(target)
        try:
            with database.filling() as connection:
                restored = _filled(connection, manifest, staging / "backup", target, jobs_go_on=jobs_go_on)
        finally:
            database.close()
        if into.exists():
            into.rmdir()
        data.rename(into)
    return restored


@contextmanager
def _staging(into: Path) -> Generator[Path]:
    """A temporary folder on the same disk."""
    staging = Path(tempfile.mkdtemp(prefix=f".{into.name}-restoring-", dir=into.parent))  # mode 0700
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _filled(connection: Connection, manifest: Manifest, unpacked: Path, settings: Settings, *, jobs_go_on: bool) -> Restored:
    if tables := inspect(connection).get_table_names():
        raise BackupUnusable(f"expected an empty database to restore into, got one with {len(tables)} tables")
    upgrade(connection, manifest.revision)
    for dump in manifest.tables:
        _load(connection, dump, unpacked)
    upgrade(connection, "head")
    if connection.dialect.name != "sqlite":
        _settle_sequences(connection)
    with Session(bind=connection, expire_on_commit=False) as session:
        _check_ledgers(session, manifest)
        _check_storage(session, manifest, settings)
        certificates = _check_certificates(session, jwks(settings))
        _check_log(session)
        unfinished = tuple(_hold_jobs(session, manifest, jobs_go_on=jobs_go_on))
        what = f"backup of {manifest.made.isoformat()}"
        session.add(local_event(DEFAULT_TENANT, "-", "restored from a backup", what).row())
        keys = session.scalar(select(func.count()).select_from(KeyRow).where(KeyRow.revoked.is_(None))) or 0
        session.flush()
    return Restored(
        made=manifest.made.isoformat(),
        rows=sum(dump.rows for dump in manifest.tables),
        certificates=certificates,
        ledgers=manifest.ledgers,
        unfinished_jobs=unfinished,
        keys_valid=keys,
    )


def _load(connection: Connection, dump: TableDump, unpacked: Path) -> None:
    clause = dump.clause()
    if connection.scalar(select(func.count()).select_from(clause)):
        connection.execute(delete(clause))  # what the migration itself put there
    count = 0
    for rows in _batched(rows_of(unpacked, dump)):
        connection.execute(clause.insert(), rows)
        count += len(rows)
    if count != dump.rows:
        raise BackupUnusable(f"the backup is damaged: table {dump.name} has {count} rows, its manifest says {dump.rows}")


def _batched(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _settle_sequences(connection: Connection) -> None:
    """PostgreSQL's sequences are separate from the rows; set each to continue after the highest number."""
    for table in Base.metadata.sorted_tables:
        for column in table.primary_key.columns:
            sequence = connection.scalar(select(func.pg_get_serial_sequence(table.name, column.name)))
            if sequence is not None:
                highest = connection.scalar(select(func.max(column)))
                if highest is not None:
                    connection.execute(text("SELECT setval(:sequence, :highest)"), {"sequence": sequence, "highest": highest})


def _check_ledgers(session: Session, manifest: Manifest) -> None:
    for row in session.scalars(select(LedgerRow).order_by(LedgerRow.id)).all():
        report = verify_stored(session, row)
        if report.problems:
            raise BackupUnusable(f"ledger {row.id} isn't sound in the backup: {report.problems[0]}")
    kept = {ledger_id: head for ledger_id, head in session.execute(select(LedgerRow.id, LedgerRow.head))}  # noqa: C416 (rows, not pairs)
    if kept != {ledger.ledger: ledger.head for ledger in manifest.ledgers}:
        raise BackupUnusable("the backup is damaged: its manifest names ledgers or last entries that differ from its rows")


def _check_storage(session: Session, manifest: Manifest, settings: Settings) -> None:
    """A checkpoint of one kind of storage isn't found in the other."""
    here = kind_of_storage(settings)
    begun = select(func.count()).where(JobRow.finished.is_(None), JobRow.attempt > 0)
    if manifest.storage != here and (count := session.scalar(begun)):
        raise BackupUnusable(
            f"the backup is of a service with its storage {_WHERE[manifest.storage]}, and {count} of its jobs have begun and not ended: "
            f"they can't go on in one with its storage {_WHERE[here]}"
        )


def _check_certificates(session: Session, keys: PublicKeySet) -> int:
    """Check every signature against the backup's keys."""
    count = 0
    for job_id, stored in session.execute(select(CertificateRow.job_id, CertificateRow.envelope)):
        envelope = Envelope.model_validate(stored)
        signed = [(keys.find(signature.keyid), signature) for signature in envelope.signatures]
        if not any(key is not None and envelope.is_signed_by(key, signature) for key, signature in signed):
            raise BackupUnusable(f"the certificate of job {job_id} isn't signed by a key of the backup")
        count += 1
    return count


def _check_log(session: Session) -> None:
    """Check every leaf against its certificate, and every inner node against its children."""
    query = select(LogEntryRow.number, LogEntryRow.kind, LogEntryRow.leaf, LogEntryRow.content, CertificateRow.envelope).outerjoin(
        CertificateRow, and_(CertificateRow.id == LogEntryRow.subject, LogEntryRow.kind == CERTIFICATE)
    )
    plans = {row.number: row.statement for row in session.scalars(select(AnnouncedPlanRow))}
    nodes = {
        (level, position): bytes.fromhex(hash_)
        for level, position, hash_ in session.execute(select(LogNodeRow.level, LogNodeRow.position, LogNodeRow.hash))
    }
    size = 0
    for number, kind, leaf, content, envelope in session.execute(query.order_by(LogEntryRow.number)):
        right = leaf_hash(content.encode())
        if number != size or leaf != right.hex() or content.encode() != _entry_of(kind, envelope, plans.get(number)):
            what = "certificate" if kind == CERTIFICATE else "plan"
            raise BackupUnusable(f"entry {size} of the log of certificates doesn't match its {what}")
        nodes[0, number] = right
        for parent, left_child, right_child in completed(number):
            if nodes.get(parent) != node_hash(nodes[left_child], nodes[right_child]):
                raise BackupUnusable(f"node {parent} of the log of certificates doesn't match its children")
        size += 1
    if (session.scalar(select(LogRow.size)) or 0) != size:
        raise BackupUnusable(f"the log of certificates states a size other than its {size} entries")


def _entry_of(kind: str, envelope: dict[str, object] | None, plan: str | None) -> bytes | None:
    """What the log has to hold of a certificate or of a plan; None where that is missing."""
    if kind == CERTIFICATE:
        if envelope is None:
            return None
        statement = Envelope.model_validate(envelope).content
        return certificate_entry(statement, announced_in(statement))
    return None if plan is None else plan_entry(PlanStatement.model_validate_json(plan))


def _hold_jobs(session: Session, manifest: Manifest, *, jobs_go_on: bool) -> Iterator[str]:
    """Hold the jobs that waited or that a worker held: no worker has them any more."""
    reason = f"restored from the backup of {manifest.made.isoformat()}"
    waiting = [JobState.PREPARING, JobState.QUEUED]
    if not jobs_go_on:
        session.execute(update(JobRow).values(awaits=None))  # an approval mustn't start what may have run after the backup
    unfinished = select(JobRow.id).where(JobRow.state.in_([*waiting, *HELD_STATES])).order_by(JobRow.id)
    for job_id in session.scalars(unfinished).all():
        job = locked(session, job_id)
        assert job is not None  # found in this transaction
        if job.state in HELD_STATES or job.holder is not None:
            end(session, job, Outcome.STOPPED, reason)
        if job.state in waiting and not jobs_go_on:
            change_state(session, job, JobState.PAUSED, reason)
        yield job_id
