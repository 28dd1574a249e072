r"""Whether the service can do its work: the database answers and has this version's tables, there is room on the disk, a key can sign."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, final

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.signing.keys import signer
from zetadp.app.kit.database import Database, revisions
from zetadp.app.kit.disk import StorageFull, check_room
from zetadp.app.kit.errors import ProblemType, Unavailable
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.base import Value

KEPT_SECONDS = 1.0
"""More frequent requests get the previous answer: the route is open to everyone."""
_log = structlog.get_logger()


@final
class ReadinessCheck(Value):
    """One condition for readiness. ``detail`` says what is wrong, in words that are the same for everyone; null if nothing is."""

    name: Literal["database", "migrations", "disk", "signing_key"]
    ok: bool
    detail: str | None = None


@final
class Readiness(Value):
    """Whether the service can do its work, and every check."""

    status: Literal["ready", "not ready"]
    checks: tuple[ReadinessCheck, ...]


class NotReady(Unavailable):
    """Something that the service needs is missing; ``checks`` are all checks made."""

    problem = ProblemType(503, "not-ready", "The service isn't ready.")

    def __init__(self, checks: tuple[ReadinessCheck, ...]) -> None:
        self.checks = checks
        super().__init__("; ".join(f"{check.name}: {check.detail}" for check in checks if not check.ok))

    @property
    def extra(self) -> Mapping[str, object]:
        return {"checks": [check.model_dump() for check in self.checks]}


@final
class _Wrong(Exception):
    """A check's finding; everyone may see the text."""


@final
class ReadinessChecks:
    """All checks; the answer is kept for a second."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._head = revisions()[0]
        self._lock = threading.Lock()
        self._kept: tuple[ReadinessCheck, ...] = ()
        self._made = -KEPT_SECONDS

    def found(self) -> Readiness:
        """The readiness. Raises NotReady if anything is missing."""
        with self._lock:
            if time.monotonic() - self._made >= KEPT_SECONDS:
                self._kept, self._made = self.fresh(), time.monotonic()
            checks = self._kept
        if not all(check.ok for check in checks):
            raise NotReady(checks)
        return Readiness(status="ready", checks=checks)

    def fresh(self) -> tuple[ReadinessCheck, ...]:
        """Make each check now."""
        made: tuple[tuple[Literal["database", "migrations", "disk", "signing_key"], Callable[[], None]], ...] = (
            ("database", self._database_answers),
            ("migrations", self._tables_are_ours),
            ("disk", self._disk_has_room),
            ("signing_key", self._key_signs),
        )
        return tuple(_checked(name, check) for name, check in made)

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

    def _key_signs(self) -> None:
        try:
            signer(self._settings).sign(b"ready?")
        except (SigningKeyUnusable, OSError) as error:
            raise _Wrong("the newest signing key can't be used") from error


def _checked(name: Literal["database", "migrations", "disk", "signing_key"], check: Callable[[], None]) -> ReadinessCheck:
    try:
        check()
    except _Wrong as wrong:
        _log.warning("not_ready", check=name, reason=str(wrong), cause=type(wrong.__cause__).__name__)
        return ReadinessCheck(name=name, ok=False, detail=str(wrong))
    return ReadinessCheck(name=name, ok=True)
