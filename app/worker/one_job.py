r"""A worker that a launcher has started for one job, and its part on a machine that isn't the first of those that share the job."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.jobs.workspaces import scratch_folder
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.tables.job_states import JobState
from zetadp.app.uploads.availability import at_hand
from zetadp.app.worker.child import LOG, ChildCommand, JobChild, write_request
from zetadp.app.worker.exits import EXIT_BROKEN
from zetadp.app.worker.hardware import visible
from zetadp.app.worker.memory import exceeds
from zetadp.app.worker.running import team_of
from zetadp.mechanisms.base import Value
from zetadp.trainer.data import Uploaded
from zetadp.trainer.specs.report import Failed
from zetadp.trainer.team_place import TeamPlace

NOTICED_SECONDS = 60.0
"""How long the first machine's worker may take to notice that another one's part has ended."""
_log = structlog.get_logger()


@final
class OneJob(Value):
    """The job that a worker is there for, and this machine's place among those that share it; None if it is the only one."""

    job_id: str
    place: TeamPlace | None = None

    @property
    def machines(self) -> int:
        """How many machines share the job."""
        return 1 if self.place is None else self.place.machines


def share(settings: Settings, database: Database, job_id: str, place: TeamPlace, command: ChildCommand, stopping: threading.Event) -> int:
    r"""Do this machine's part of the job once, when the first machine's worker runs it; the exit code.

    This worker has no lease. What it computes reaches the first machine's process only, and counts only if that one's attempt does. It
    tells the database nothing but why its own part can't be done.
    """
    attempts = Attempts(database, settings.maximum_worker_deaths)
    while not stopping.is_set():
        try:
            found = attempts.running(job_id)
            if isinstance(found, Attempt):
                ended = _Part(settings, attempts, found, place, command, stopping).run()
                if ended is not None:
                    return ended
            elif found is not JobState.QUEUED:
                _log.info("job_over", state=found)
                return 0
        except SQLAlchemyError as error:
            _log.warning("database_unavailable", error=type(error).__name__)
        except StorageUnavailable as error:
            _log.warning("storage_unavailable", error=error.what)
        stopping.wait(settings.cancel_poll_seconds)
    return 0


@final
class _Part:
    """This machine's part of one attempt."""

    def __init__(
        self, settings: Settings, attempts: Attempts, attempt: Attempt, place: TeamPlace, command: ChildCommand, stopping: threading.Event
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._attempt = attempt
        self._place = place
        self._command = command
        self._stopping = stopping

    def run(self) -> int | None:
        """The exit code of this worker; None if the attempt was over first: its worker may have died long before."""
        folder = scratch_folder(self._settings) / f"{self._attempt.job_id}-{self._place.machine}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        try:
            return self._run(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path) -> int | None:
        document = self._attempt.document
        assert isinstance(document, TrainingDocument)  # only trainings are shared
        data_sets = self._settings.made_data_sets_dir
        if isinstance(data := document.spec.data, Uploaded):
            data_sets = at_hand(self._settings, data.data_set, folder / "data-sets")
        write_request(folder, document)
        _log.info("part_started", job=self._attempt.job_id, attempt=self._attempt.number, machine=self._place.machine)
        with (folder / "lock").open("w") as lock:
            child = JobChild(
                self._command(folder),
                folder / LOG,
                lock.fileno(),
                self._settings.data_sets_dir,
                visible(self._settings.device),
                data_sets,
                team_of(self._place, self._attempt),
            )
            with child:
                is_current = self._follow(child)
                code = child.exit_code()
        _log.info("part_ended", job=self._attempt.job_id, attempt=self._attempt.number, exit_code=code)
        if code == 0:
            return 0
        return self._left(code) if is_current else None

    def _follow(self, child: JobChild) -> bool:
        """Until its end. False if it was ended since the attempt is over."""
        deadline = float("inf")
        while not child.is_over:
            for event in child.events(self._settings.cancel_poll_seconds):
                if isinstance(event, Failed):
                    self._failed(event.reason)
            if self._stopping.is_set():
                # The first machine's process decides when to stop, and this one's stops with it.
                deadline = min(deadline, time.monotonic() + self._settings.stop_grace_seconds)
            if time.monotonic() > deadline:
                child.kill()
            if (too_much := exceeds(child.pid, self._settings.training_bytes, self._attempt.memory_bytes)) is not None:
                child.kill()
                self._failed(too_much)
                return True
            if not self._is_current():
                child.kill()
                return False
        return True

    def _failed(self, reason: str) -> None:
        """Every attempt would end like this one: the job has failed."""
        with suppress(AttemptSuperseded):
            self._attempts.fail(self._attempt, f"on machine {self._place.machine} of those that share it: {reason}")

    def _is_current(self) -> bool:
        try:
            self._attempts.wanted(self._attempt)
        except AttemptSuperseded:
            return False
        except SQLAlchemyError as error:
            _log.warning("database_unavailable", error=type(error).__name__)
        return True

    def _left(self, code: int) -> int:
        """The exit code after a part that ended early. The first machine's worker is given the time to say so itself: a cluster may end all
        workers as soon as one fails."""
        deadline = time.monotonic() + NOTICED_SECONDS
        while not self._stopping.is_set() and time.monotonic() < deadline:
            if not self._is_current():
                return 0
            self._stopping.wait(self._settings.cancel_poll_seconds)
        _log.warning("part_lost", exit_code=code)
        return EXIT_BROKEN
