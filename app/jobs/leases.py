r"""Leases: each worker renews one while it runs, and loses its jobs when it no longer does.

A lease is judged by its beat, not by wall-clock time. It has run out when a watcher has seen the same beat for the length of the lease, on
the watcher's monotonic clock; setting a clock, here, there or in the database, kills no worker. A watcher forgets what it saw whenever its
own looks were too far apart: after a minute without a database every worker has the whole length of its lease again.

A dead worker's row is deleted and its jobs are put back in one transaction. If two workers try, only one of them finds the row.
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

from zetadp.app.jobs.attempts import lose
from zetadp.app.jobs.errors import ExecutorBusy
from zetadp.app.kit.database import Database, now
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import ExecutorRow, JobRow
from zetadp.mechanisms.base import Value

BEATS_PER_LEASE = 6
_log = structlog.get_logger()


@final
class Executor(Value):
    """A worker as it registers: its name, its machine, the jobs it runs and its hardware."""

    id: str
    host: str
    device: str
    hardware: str
    lease_seconds: float


@final
class Seen(Value):
    """A row as a watcher saw it; ``renewed`` is the database's time, for people to read."""

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
        """Every current lease."""
        with self._database.reading() as session:
            return [_seen(row) for row in session.scalars(select(ExecutorRow))]

    def take(self, executor: Executor) -> str:
        """Take a lease and return its token. Raises ExecutorBusy if another worker holds the name."""
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
        """Renew the lease; False if it was taken away."""
        with self._database.writing() as session:
            changed = update(ExecutorRow).where(ExecutorRow.token == token)
            changed = changed.values(beat=ExecutorRow.beat + 1, renewed=database_time(session))
            return session.execute(changed.returning(ExecutorRow.id)).first() is not None

    def idle(self, token: str) -> None:
        """Record that this worker has no job."""
        with self._database.writing() as session:
            session.execute(update(ExecutorRow).where(ExecutorRow.token == token).values(job_id=None))

    def bury(self, seen: Seen) -> list[str] | None:
        """Take a dead worker's lease and put its jobs back; the ids of those that wait again, None if it lives or another was first."""
        with self._database.writing() as session:
            dead = delete(ExecutorRow).where(ExecutorRow.id == seen.id, ExecutorRow.token == seen.token, ExecutorRow.beat == seen.beat)
            if session.execute(dead.returning(ExecutorRow.id)).first() is None:
                return None
            return self._put_back(session, seen.token)

    def give_up(self, token: str) -> None:
        """End a lease cleanly: nothing of it is left."""
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
    """The beats that one watcher saw, on its own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, int], float] = {}
        self._looked: float | None = None

    def dead(self, seen: Sequence[Seen], own_token: str) -> list[Seen]:
        """The leases whose beat hasn't changed for their length."""
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
    r"""Holds a worker's lease while it runs: a context manager. Renews it and watches the others' in its own thread.

    Args:
      put_back: called with the ids of jobs that wait again, after a dead worker's lease was taken. It must return at once: the next
        beat comes after it.
      displaced: called once if another worker has taken the name, so that this one can never have it again.
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
        """The token of the current lease; a worker whose lease was taken takes a new one."""
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
        """Handles a row with this worker's name. On this machine that worker is dead, since its lock was free; elsewhere it may live."""
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
