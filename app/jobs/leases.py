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
from datetime import datetime, timedelta
from typing import Self, final

import structlog
from pydantic import AwareDatetime
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from zetadp.app.jobs.attempts import end, lose
from zetadp.app.jobs.errors import ExecutorBusy
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.database import Database, now
from zetadp.app.tables.job_states import JobState, Outcome
from zetadp.app.tables.jobs import ExecutorRow, JobRow
from zetadp.mechanisms.base import Value

BEATS_PER_LEASE = 6
CLOSING_SECONDS = 5.0
"""How long a worker that ends waits for the thread that keeps its lease."""
_log = structlog.get_logger()


@final
class Executor(Value):
    r"""A worker as it registers: its name, its machine, the jobs it runs and its hardware.

    Attributes:
      lock: identifies the lock on its name that it holds; empty if it holds none.
      capacity: what it has for a job.
    """

    id: str
    host: str
    device: str
    hardware: str
    lease_seconds: float
    lock: str = ""
    capacity: Capacity = Capacity()


@final
class Seen(Value):
    """A row as a watcher saw it; ``renewed`` is the database's time, for people to read."""

    id: str
    token: str
    beat: int
    lease_seconds: float
    host: str
    lock: str
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

    def take(self, executor: Executor, token: str | None = None) -> str:
        """Take a lease with this token, or with a fresh one, and return it. Raises ExecutorBusy if a lease has the name."""
        token = token or new_token()
        try:
            with self._database.writing() as session:
                moment = database_time(session)
                row = ExecutorRow(**executor.model_dump(mode="json"), token=token, beat=0, since=moment, renewed=moment, job_id=None)
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

    def idle(self, token: str) -> list[str]:
        """Record that this worker runs no job. One that it holds all the same, since the answer to its start was lost, waits again.

        The ids of such jobs. No death is counted: the worker lives.
        """
        with self._database.writing() as session:
            session.execute(update(ExecutorRow).where(ExecutorRow.token == token).values(job_id=None))
            # What it prepares, in a thread of its own, it does hold.
            held = [job for job in self._held(session, token) if job.state != JobState.PREPARING]
            for job in held:
                end(session, job, Outcome.STOPPED, "its worker couldn't be sure that it had started it")
            return [job.id for job in held]

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
        waiting: list[str] = []
        for job in self._held(session, token):
            lose(session, job, self._maximum_worker_deaths)
            if job.state == JobState.QUEUED:
                waiting.append(job.id)
        return waiting

    def _held(self, session: Session, token: str) -> Sequence[JobRow]:
        return session.scalars(select(JobRow).where(JobRow.holder == token).order_by(JobRow.id).with_for_update()).all()


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

    Entering it raises ExecutorBusy if another worker has the name, or SQLAlchemy's error if the database doesn't answer; then it may be
    entered again.

    Args:
      put_back: called with the ids of jobs that wait again, after a dead worker's lease was taken. It must return at once: the next
        beat comes after it.
      unable: called, from that thread, if the lease can't be kept: with ExecutorBusy if another worker has taken the name, so that this
        one can never have it again; with any other error that nobody foresaw. Who doesn't end the worker then has one that does nothing.
      beaten: called, from that thread, after each try to renew the lease, whatever came of it. It must return at once and raise nothing.
    """

    def __init__(
        self,
        leases: Leases,
        executor: Executor,
        put_back: Callable[[list[str]], None],
        unable: Callable[[Exception], None],
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._leases = leases
        self._executor = executor
        self._put_back = put_back
        self._unable = unable
        self._beaten = beaten
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._watch = Watch()
        self._token = ""
        self._beats = 0

    @property
    def token(self) -> str:
        """The token of the current lease; a worker whose lease was taken takes a new one."""
        return self._token

    @property
    def beats(self) -> int:
        """How many tries to renew the lease are over, whatever came of them."""
        return self._beats

    def __enter__(self) -> Self:
        while True:
            self._bury_predecessor()
            try:
                self._take()
            except ExecutorBusy:
                continue  # somebody was quicker: a living worker, or the last write of a dead one
            break
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._thread.join(CLOSING_SECONDS)
        try:
            self._leases.give_up(self._token)
        except SQLAlchemyError as error:
            _log.warning("lease_left", error=type(error).__name__)  # it runs out

    def _bury_predecessor(self) -> None:
        """Handles a row with this worker's name. If it was taken with the lock that this worker holds, that worker is dead."""
        watch = Watch()
        first: Seen | None = None
        while (before := next((lease for lease in self._leases.seen() if lease.id == self._executor.id), None)) is not None:
            first = first or before
            if (before.lock and before.lock == self._executor.lock) or watch.dead([before], own_token=""):
                self._leases.bury(before)
            elif (before.token, before.beat) != (first.token, first.beat):
                raise ExecutorBusy(self._executor.id)
            else:
                time.sleep(before.lease_seconds / BEATS_PER_LEASE)

    def _take(self) -> None:
        # Known before it is written: if the answer is lost, the next beat finds out whether the lease was taken.
        self._token = new_token()
        self._leases.take(self._executor, self._token)

    def _keep(self) -> None:
        while not self._closing.wait(self._executor.lease_seconds / BEATS_PER_LEASE):
            try:
                self._beat()
            except ExecutorBusy as displaced:
                _log.error("lease_displaced", executor=self._executor.id)
                self._unable(displaced)
                return
            except SQLAlchemyError as error:
                _log.warning("lease_not_renewed", error=type(error).__name__)
            except Exception as error:
                # Without this thread the worker would live on and never work again.
                _log.exception("lease_keeper_failed", executor=self._executor.id)
                self._unable(error)
            self._beats += 1
            self._beaten()

    def _beat(self) -> None:
        if not self._leases.renew(self._token):
            # What it had in hand is another's now; its attempt finds that out by itself.
            _log.warning("lease_lost", executor=self._executor.id)
            self._take()
        for lease in self._watch.dead(self._leases.seen(), self._token):
            if (waiting := self._leases.bury(lease)) is not None:
                _log.warning("worker_lost", executor=lease.id, host=lease.host, jobs=waiting)
                self._put_back(waiting)


def new_token() -> str:
    """A token for a lease: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def is_alive(row: ExecutorRow, moment: datetime) -> bool:
    """Whether the worker had renewed its lease in time at this moment of the database's clock."""
    return moment - row.renewed <= timedelta(seconds=row.lease_seconds)


def capacities(session: Session) -> list[Capacity]:
    """What the living workers and launchers have, each once."""
    moment = database_time(session)
    found = (Capacity.model_validate(row.capacity) for row in session.scalars(select(ExecutorRow)) if is_alive(row, moment))
    return list(dict.fromkeys(found))


def database_time(session: Session) -> datetime:
    """The database's clock; with SQLite, this machine's."""
    if session.get_bind().dialect.name == "sqlite":
        return now()
    moment = session.scalar(select(func.clock_timestamp()))
    assert isinstance(moment, datetime)
    return moment


def _seen(row: ExecutorRow) -> Seen:
    return Seen(
        id=row.id,
        token=row.token,
        beat=row.beat,
        lease_seconds=row.lease_seconds,
        host=row.host,
        lock=row.lock,
        renewed=row.renewed,
    )
