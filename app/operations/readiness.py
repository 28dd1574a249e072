r"""Whether the service can do its work: database and storage answer, the tables have this
version, the disk has room, a key can sign.

Whether a worker lives is told beside that. A service without one is ready: it answers calculators, takes jobs and shows results, jobs
wait as they do behind others, and starting the service again, or sending its requests elsewhere, gives it no worker.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Literal, final

import structlog
from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.signing.keys import signer
from zetadp.app.jobs.leases import database_time, is_alive
from zetadp.app.kit.database import Database, revisions
from zetadp.app.kit.disk import StorageFull, check_room
from zetadp.app.kit.errors import ProblemType, Unavailable
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import ObjectMissing, StorageUnavailable
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.jobs import ExecutorRow
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

KEPT_SECONDS = 1.0
"""More frequent requests get the previous answer: the route is open to everyone."""
LIMIT_SECONDS = 0.8
"""A check that takes longer counts as failed. Kubernetes' probes wait for a second."""
Name = Literal["database", "migrations", "disk", "storage", "signing_key", "workers"]
_log = structlog.get_logger()


@final
class ReadinessCheck(Value):
    r"""One check.

    Attributes:
      needed: whether the service isn't ready without it.
      detail: what is wrong, in words that are the same for everyone; null if nothing is.
    """

    name: Name
    ok: bool
    needed: bool
    detail: str | None = None


@final
class Readiness(Value):
    """Whether the service can do its work, and every check. A check that isn't needed may have failed."""

    status: Literal["ready", "not ready"]
    checks: tuple[ReadinessCheck, ...]


class NotReady(Unavailable):
    """Something that the service needs is missing; ``checks`` are all checks made."""

    problem = ProblemType(503, "not-ready", "The service isn't ready.")

    def __init__(self, checks: tuple[ReadinessCheck, ...]) -> None:
        self.checks = checks
        super().__init__("; ".join(f"{check.name}: {check.detail}" for check in checks if check.needed and not check.ok))

    @property
    def extra(self) -> Mapping[str, object]:
        return {"checks": [check.model_dump() for check in self.checks]}


@final
class _Wrong(Exception):
    """A check's finding; everyone may see the text."""


@final
class ReadinessChecks:
    """All checks. The answer is kept for a second; whatever a check waits for, the answer doesn't."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._head = revisions()[0]
        # One thread each for what may wait for something else.
        self._groups = (
            _Group(
                (
                    ("database", True, self._database_answers),
                    ("migrations", True, self._tables_are_ours),
                    ("workers", False, self._one_works),
                )
            ),
            _Group((("disk", True, self._disk_has_room),)),
            _Group((("storage", True, self._storage_answers),)),
            _Group((("signing_key", True, self._key_signs),)),
        )

    async def found(self) -> Readiness:
        """The readiness. Raises NotReady if anything is missing that is needed."""
        running = [asyncio.wrap_future(group.asked()) for group in self._groups]
        _, late = await asyncio.wait(running, timeout=LIMIT_SECONDS)
        for each in late:
            each.cancel()
        checks = tuple(check for group in self._groups for check in group.found())
        if not all(check.ok for check in checks if check.needed):
            raise NotReady(checks)
        return Readiness(status="ready", checks=checks)

    def _database_answers(self) -> None:
        try:
            self._database.check()
        except SQLAlchemyError as error:
            raise _Wrong("the database doesn't answer") from error

    def _tables_are_ours(self) -> None:
        try:
            with self._database.reading() as session:
                found = list(session.scalars(text("SELECT version_num FROM alembic_version")))
        except SQLAlchemyError as error:
            raise _Wrong("the version of its tables can't be read") from error
        if found != [self._head]:
            raise _Wrong(f"expected tables of version {self._head}, got {', '.join(found) or 'none'}")

    def _one_works(self) -> None:
        try:
            with self._database.reading() as session:
                moment = database_time(session)
                lives = any(is_alive(row, moment) for row in session.scalars(select(ExecutorRow)))
        except SQLAlchemyError as error:
            raise _Wrong("whether a worker lives can't be read") from error
        if not lives:
            raise _Wrong("no worker is alive, so jobs wait")

    def _disk_has_room(self) -> None:
        try:
            check_room(self._settings)
            # Without a name: nothing is left behind, whatever happens.
            with tempfile.TemporaryFile(dir=self._settings.data_dir) as file:
                file.write(b"\0")
                file.flush()
        except StorageFull as full:
            raise _Wrong(f"expected at least {full.needed_bytes} bytes free, got {full.free_bytes}") from full
        except OSError as error:
            raise _Wrong(f"the data folder can't be written ({type(error).__name__})") from error

    def _storage_answers(self) -> None:
        try:
            storage_of(self._settings).store.names("checks/")  # which a bucket that is gone refuses, too
        except (StorageUnavailable, ObjectMissing, InvalidParameter) as error:
            raise _Wrong("the storage doesn't answer, or refuses this service") from error

    def _key_signs(self) -> None:
        try:
            signer(self._settings).sign(b"ready?")
        except (SigningKeyUnusable, OSError) as error:
            raise _Wrong("the newest signing key can't be used") from error


@final
class _Group:
    """Checks that are made one after the other, in a thread of their own while there is something to find out."""

    def __init__(self, checks: Sequence[tuple[Name, bool, Callable[[], None]]]) -> None:
        self._checks = checks
        self._lock = threading.Lock()
        self._running: Future[None] | None = None
        self._kept: tuple[ReadinessCheck, ...] = ()
        self._unfinished: list[ReadinessCheck] = []
        self._made = -KEPT_SECONDS

    def asked(self) -> Future[None]:
        """Make the checks unless they were made a moment ago, or are being made; done once there is an answer."""
        with self._lock:
            if self._running is not None:
                return self._running
            done: Future[None] = Future()
            done.set_running_or_notify_cancel()  # who doesn't wait any longer doesn't end it for others
            if time.monotonic() - self._made < KEPT_SECONDS:
                done.set_result(None)
                return done
            self._running, self._unfinished = done, []
            threading.Thread(target=self._make, args=(done,), name="readiness", daemon=True).start()
            return done

    def found(self) -> tuple[ReadinessCheck, ...]:
        """What was found; a check that isn't over by now has failed."""
        with self._lock:
            if self._running is None:
                return self._kept
            late = f"no answer within {LIMIT_SECONDS} s"
            over = tuple(self._unfinished)
            return over + tuple(
                ReadinessCheck(name=name, ok=False, needed=needed, detail=late) for name, needed, _ in self._checks[len(over) :]
            )

    def _make(self, done: Future[None]) -> None:
        for name, needed, check in self._checks:
            checked = _checked(name, needed, check)
            with self._lock:
                self._unfinished.append(checked)
        with self._lock:
            self._kept, self._made, self._running = tuple(self._unfinished), time.monotonic(), None
        done.set_result(None)


def _checked(name: Name, needed: bool, check: Callable[[], None]) -> ReadinessCheck:
    try:
        check()
    except _Wrong as wrong:
        if needed:
            _log.warning("not_ready", check=name, reason=str(wrong), cause=type(wrong.__cause__).__name__)
        return ReadinessCheck(name=name, ok=False, needed=needed, detail=str(wrong))
    except Exception:
        _log.exception("check_broken", check=name)
        return ReadinessCheck(name=name, ok=False, needed=needed, detail="it couldn't be found out")
    return ReadinessCheck(name=name, ok=True, needed=needed)
