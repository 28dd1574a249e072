r"""Who lives: a lease for each worker, renewed while it runs, and the jobs of those that renew it no more.

A lease is judged by its beat, not by a clock. Whoever watches it has seen the same beat for the length of the lease, on his own clock that
only goes forward; a clock that is set, here, there or in the database, kills nobody. What he saw is forgotten whenever his own looks were
too far apart: after a minute without a database every worker has the whole length of its lease again.

A dead worker's row is deleted and its jobs are put back in one transaction. Two that try find one row: one of them wins.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self, final

import structlog
from pydantic import AwareDatetime
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from app.jobs.attempts import lose
from app.jobs.errors import ExecutorBusy
from app.kit.database import Database, now
from app.tables.job_states import JobState
from app.tables.jobs import ExecutorRow, JobRow
from mechanisms.base import Value

BEATS_PER_LEASE = 6
_log = structlog.get_logger()


@final
class Executor(Value):
    """A worker as it registers: its name, where it runs, what jobs it takes and on what hardware."""

    id: str
    host: str
    device: str
    hardware: str
    lease_seconds: float


@final
class Seen(Value):
    """A row as somebody watched it; ``renewed`` is the database's time, for people."""

    id: str
    token: str
    beat: int
    lease_seconds: float
    host: str
    renewed: AwareDatetime


@final
class Leases:
    """The table of leases."""

    def __init__(self, database: Database, maximum_worker_deaths: int) -> None:
        self._database = database
        self._maximum_worker_deaths = maximum_worker_deaths

    def seen(self) -> list[Seen]:
        """Every lease as it is now."""
        with self._database.reading() as session:
            return [_seen(row) for row in session.scalars(select(ExecutorRow))]

    def take(self, executor: Executor) -> str:
        """A new lease: its token. Raises ExecutorBusy where another holds the name."""
        token = secrets.token_hex(16)
        try:
            with self._database.writing() as session:
                moment = database_time(session)
                row = ExecutorRow(**executor.model_dump(), token=token, beat=0, since=moment, renewed=moment, job_id=None)
                session.add(row)
        except IntegrityError:
            raise ExecutorBusy(executor.id) from None
        return token

    def renew(self, token: str) -> bool:
        """One more beat; False where the lease was taken away."""
        with self._database.writing() as session:
            changed = update(ExecutorRow).where(ExecutorRow.token == token)
            changed = changed.values(beat=ExecutorRow.beat + 1, renewed=database_time(session))
            return session.execute(changed.returning(ExecutorRow.id)).first() is not None

    def idle(self, token: str) -> None:
        """This worker has nothing in hand."""
        with self._database.writing() as session:
            session.execute(update(ExecutorRow).where(ExecutorRow.token == token).values(job_id=None))

    def bury(self, seen: Seen) -> list[str] | None:
        """Take a dead worker's lease and put its jobs back; the ids of those that wait again, None where it lives or another was first."""
        with self._database.writing() as session:
            dead = delete(ExecutorRow).where(ExecutorRow.id == seen.id, ExecutorRow.token == seen.token, ExecutorRow.beat == seen.beat)
            if session.execute(dead.returning(ExecutorRow.id)).first() is None:
                return None
            return self._put_back(session, seen.token)

    def give_up(self, token: str) -> None:
        """End a lease in good order: nothing is left of it."""
        with self._database.writing() as session:
            session.execute(delete(ExecutorRow).where(ExecutorRow.token == token))
            self._put_back(session, token)

    def _put_back(self, session: Session, token: str) -> list[str]:
        held = session.scalars(select(JobRow).where(JobRow.holder == token).order_by(JobRow.id).with_for_update())
        waiting: list[str] = []
        for job in held.all():
            lose(session, job, self._maximum_worker_deaths)
            if job.state == JobState.QUEUED:
                waiting.append(job.id)
        return waiting


@final
class Watch:
    """One watcher's memory of the beats it saw, on its own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, int], float] = {}
        self._looked: float | None = None

    def dead(self, seen: Sequence[Seen], own_token: str) -> list[Seen]:
        """Those whose beat has been the same for the length of their lease."""
        moment = self._clock()
        if self._looked is not None and seen and moment - self._looked > min(lease.lease_seconds for lease in seen) / 2:
            self._since.clear()  # nobody looked for a while: perhaps nobody could renew either
        self._looked = moment
        self._since = {
            (lease.token, lease.beat): self._since.get((lease.token, lease.beat), moment) for lease in seen if lease.token != own_token
        }
        return [
            lease for lease in seen if lease.token != own_token and moment - self._since[lease.token, lease.beat] >= lease.lease_seconds
        ]


@final
class LeaseKeeper:
    r"""Holds a worker's lease while it runs: a context manager. Renews it, and watches the others', in a thread of its own.

    Args:
      put_back: called with the ids of jobs that wait again, after a dead worker's lease was taken. It must return at once: the next
        beat comes after it.
      displaced: called once where another worker has taken the name, so that this one can never have it again.
    """

    def __init__(self, leases: Leases, executor: Executor, put_back: Callable[[list[str]], None], displaced: Callable[[], None]) -> None:
        self._leases = leases
        self._executor = executor
        self._put_back = put_back
        self._displaced = displaced
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._watch = Watch()
        self._token = ""

    @property
    def token(self) -> str:
        """Of the lease as it is now; a worker whose lease was taken takes a new one."""
        return self._token

    def __enter__(self) -> Self:
        self._bury_predecessor()
        self._token = self._leases.take(self._executor)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._thread.join()
        try:
            self._leases.give_up(self._token)
        except SQLAlchemyError as error:
            _log.warning("lease_left", error=type(error).__name__)  # it runs out

    def _bury_predecessor(self) -> None:
        """The row of a worker of this name. On this machine it is dead, for its lock was free; elsewhere it may live and is watched."""
        watch = Watch()
        first: Seen | None = None
        while (before := next((lease for lease in self._leases.seen() if lease.id == self._executor.id), None)) is not None:
            first = first or before
            if before.host == self._executor.host or watch.dead([before], own_token=""):
                self._leases.bury(before)
            elif (before.token, before.beat) != (first.token, first.beat):
                raise ExecutorBusy(self._executor.id)
            else:
                time.sleep(before.lease_seconds / BEATS_PER_LEASE)

    def _keep(self) -> None:
        while not self._closing.wait(self._executor.lease_seconds / BEATS_PER_LEASE):
            try:
                self._beat()
            except ExecutorBusy:
                _log.error("lease_displaced", executor=self._executor.id)
                self._displaced()
                return
            except SQLAlchemyError as error:
                _log.warning("lease_not_renewed", error=type(error).__name__)

    def _beat(self) -> None:
        if not self._leases.renew(self._token):
            # What it had in hand is another's now; its attempt finds that out by itself.
            _log.warning("lease_lost", executor=self._executor.id)
            self._token = self._leases.take(self._executor)
        for lease in self._watch.dead(self._leases.seen(), self._token):
            if (waiting := self._leases.bury(lease)) is not None:
                _log.warning("worker_lost", executor=lease.id, host=lease.host, jobs=waiting)
                self._put_back(waiting)


def database_time(session: Session) -> datetime:
    """The database's clock; with SQLite, this machine's."""
    if session.get_bind().dialect.name == "sqlite":
        return now()
    moment = session.scalar(select(func.clock_timestamp()))
    assert isinstance(moment, datetime)
    return moment


def _seen(row: ExecutorRow) -> Seen:
    return Seen(id=row.id, token=row.token, beat=row.beat, lease_seconds=row.lease_seconds, host=row.host, renewed=row.renewed)
