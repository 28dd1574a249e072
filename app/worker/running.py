r"""Runs one attempt of a job: its folder, its child, the child's events, and its end."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, final

import structlog

from zetadp.app.certificates.errors import CertificateRefused, SigningKeyUnusable
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.signing.keys import write_once
from zetadp.app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from zetadp.app.jobs.calculation import CalculationDocument
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.jobs.events import Logged, process_started
from zetadp.app.jobs.folders import FolderTaken
from zetadp.app.jobs.workspaces import Workspace, scratch_folder, workspace
from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.kit.disk import is_full
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.tracing import Stretches, span
from zetadp.app.kit.waiting import Pauses
from zetadp.app.storage.base import ObjectDamaged, ObjectMissing, StorageUnavailable
from zetadp.app.tables.job_states import JobState
from zetadp.app.uploads.availability import at_hand
from zetadp.app.worker.announcing import NotAnnounced, announce, have_witnessed, secret_of
from zetadp.app.worker.child import (
    EXIT_STOPPED,
    LOG,
    ChildCommand,
    ChildEvent,
    JobChild,
    calculation_command,
    sole_user,
    write_request,
)
from zetadp.app.worker.completion import RunRefused, complete_calculation, complete_training
from zetadp.app.worker.hardware import visible
from zetadp.app.worker.memory import exceeds
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.data import Uploaded
from zetadp.trainer.request import LOST, NOISE_KEY, RunSecret
from zetadp.trainer.specs.report import Failed, Progress, Started
from zetadp.trainer.team_place import TeamPlace

SHUTDOWN_NOTICE_SECONDS = 2.0
"""A service manager sends SIGTERM to child and worker at once; the worker may see its own a little later."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 5.0
"""Pauses between two tries while the database doesn't answer."""
_T = TypeVar("_T")
_log = structlog.get_logger()


class Stop(StrEnum):
    """Why a child is stopped before its end."""

    ASKED = "asked"
    TIMEOUT = "timeout"
    LOST_CHECKPOINT = "lost_checkpoint"
    SHUTDOWN = "shutdown"
    MEMORY = "memory"


@final
class Runner:
    r"""Runs attempts, one at a time.

    Args:
      command: makes the command line of a child that trains from its folder.
      place: this machine's among those that share its jobs; None for jobs of one machine.
    """

    def __init__(
        self,
        settings: Settings,
        attempts: Attempts,
        stopping: threading.Event,
        command: ChildCommand,
        place: TeamPlace | None = None,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._stopping = stopping
        self._command = command
        self._place = place
        # Of a process of this name that was killed: it may be newer than what anybody has heard of, and is never continued from.
        shutil.rmtree(scratch_folder(settings), ignore_errors=True)

    def run(self, attempt: Attempt) -> None:
        """Run the attempt to its end. Writes that the database can't take at once are made when it answers again."""
        with structlog.contextvars.bound_contextvars(job=attempt.job_id, attempt=attempt.number):
            _log.info("job_started")
            try:
                with span("run job", {"zetadp.job": attempt.job_id, "zetadp.attempt": attempt.number}, "consumer", attempt.traceparent):
                    _Run(self._settings, self._attempts, self._stopping, self._command, attempt, team_of(self._place, attempt)).run()
                _log.info("job_left")
            except AttemptSuperseded:
                _log.warning("job_superseded")


@final
class _Run:
    def __init__(
        self,
        settings: Settings,
        attempts: Attempts,
        stopping: threading.Event,
        command: ChildCommand,
        attempt: Attempt,
        team: TeamPlace | None,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._stopping = stopping
        self._attempt = attempt
        self._team = team
        self._is_calculation = isinstance(attempt.document, CalculationDocument)
        self._command = calculation_command if self._is_calculation else command
        self._begun = time.monotonic()
        self._stored_events = 0
        self._stretches = Stretches()
        self._announced: AnnouncedFacts | None = None

    @property
    def _ran_seconds(self) -> float:
        return self._attempt.ran_seconds + time.monotonic() - self._begun

    def run(self) -> None:
        try:
            self._do()
        except (AttemptSuperseded, *UNAVAILABLE):
            raise
        except StorageUnavailable:
            # Only a worker that is asked to end gives up waiting. What wasn't kept was recorded nowhere and is done again.
            self._patiently(lambda: self._attempts.stopped(self._attempt, "its worker was shut down while the storage didn't answer"))
        except (ObjectMissing, ObjectDamaged) as error:
            _log.error("kept_files_unreadable", error=type(error).__name__, key=error.key)
            self._fail(f"what its earlier attempts kept, or its data, can't be read from the storage ({type(error).__name__})")
        except FolderTaken:
            self._patiently(lambda: self._attempts.wanted(self._attempt))  # by a later attempt, as a rule
            self._fail(
                "the storage holds what a later attempt kept, which the database doesn't know of: the job neither continues nor starts over"
            )
        except Exception as error:
            # This worker can't do it; another may, and if none can the job ends.
            _log.exception("worker_failed")
            how = "its worker's disk is full" if is_full(error) else "its worker was lost"
            self._patiently(lambda: self._attempts.lost(self._attempt, how))

    def _do(self) -> None:
        owner = secrets.token_hex(16)
        place = self._patiently(lambda: workspace(self._settings, self._attempt.job_id, self._attempt.number, owner))
        try:
            self._work(place)
        finally:
            place.leave()

    def _work(self, place: Workspace) -> None:
        folder = self._settings.job_dir(self._attempt.job_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        data_sets = self._patiently(lambda: self._data_sets(place))
        if not self._announce():
            return
        write_request(place.folder, self._attempt.document)
        try:
            self._write_noise_key(place)
            self._run_child(place, folder, data_sets)
        finally:
            (place.folder / NOISE_KEY).unlink(missing_ok=True)

    def _run_child(self, place: Workspace, folder: Path, data_sets: Path) -> None:
        with sole_user(folder, lambda: self._reason_to_stop() is not None, self._settings.lease_seconds) as lock:
            if lock is None:
                self._end_stopped(self._reason_to_stop())
                return
            # Before there is a process: one that is left alone by a worker that was killed has begun as well.
            self._record([process_started(self._attempt.number)])
            with JobChild(
                self._command(place.folder),
                folder / LOG,
                lock,
                self._settings.data_sets_dir,
                visible(self._settings.device),
                data_sets,
                self._team,
            ) as child:
                stop, reason = self._follow(child, place)
                code = child.exit_code()
            self._patiently(place.keep)  # also what it wrote and didn't tell: its end is told now
            self._record([Logged(line=f"attempt {self._attempt.number}: process ended with code {code}")])
            if code == 0:
                self._complete(place)
            elif stop is Stop.MEMORY:
                self._fail(reason or "it used too much memory")
            elif stop is None and code == LOST:
                self._patiently(lambda: self._attempts.lost(self._attempt, "a machine that shared it was lost"))
            elif stop is not None or code in (EXIT_STOPPED, -signal.SIGTERM):
                self._end_stopped(stop)
            else:
                self._fail(reason or _described_exit(code, "calculation" if self._is_calculation else "training"))

    def _announce(self) -> bool:
        """Log the plan before anything of it runs; False if that failed, and the job has ended with the reason."""
        document = self._attempt.document
        if isinstance(document, TrainingDocument):
            try:
                self._announced = self._patiently(lambda: announce(self._attempt, document, self._attempts, self._settings))
            except (NotAnnounced, CertificateRefused, PrivacyError, SigningKeyUnusable) as refused:
                self._fail(f"its plan wasn't logged: {' '.join(str(refused).split())}")
                return False
        return True

    def _write_noise_key(self, place: Workspace) -> None:
        """What the child's randomness follows from, in its folder, if it is kept; the child deletes the file when it has read it."""
        path = place.folder / NOISE_KEY
        path.unlink(missing_ok=True)
        announced = self._announced
        secret = None if announced is None else self._secret(announced)
        if secret is not None:
            write_once(path, RunSecret(secret=secret.hex(), attempt=self._attempt.number).model_dump_json().encode())

    def _secret(self, announced: AnnouncedFacts) -> bytes | None:
        return self._patiently(lambda: secret_of(announced, self._attempts, self._attempt.job_id, self._settings))

    def _data_sets(self, place: Workspace) -> Path:
        """The folder of the data sets made from uploads, with the one that this job needs."""
        document = self._attempt.document
        if isinstance(document, TrainingDocument) and isinstance(data := document.spec.data, Uploaded):
            return at_hand(self._settings, data.data_set, place.folder.parent / "data-sets")
        return self._settings.made_data_sets_dir

    def _follow(self, child: JobChild, place: Workspace) -> tuple[Stop | None, str | None]:
        """Copy the child's events until its end; returns why it was stopped, if it was, and its own reason for failing, if it gave one."""
        stop: Stop | None = None
        reason: str | None = None
        deadline = float("inf")
        while not child.is_over:
            events = child.events(self._settings.cancel_poll_seconds)
            if events:
                reason = next((event.reason for event in events if isinstance(event, Failed)), reason)
                if stop is None and self._forgets(events):
                    stop = Stop.LOST_CHECKPOINT
                    child.kill()
                # What is told of a step mustn't be lost with this machine: the step would be run again, and released twice.
                self._patiently(place.keep)
                self._record(events)
            if stop is None and (too_much := exceeds(child.pid, self._settings.training_bytes, self._attempt.memory_bytes)) is not None:
                stop, reason = Stop.MEMORY, too_much
                child.kill()
            elif stop is None and (stop := self._reason_to_stop()) is not None:
                child.stop()
                deadline = time.monotonic() + self._settings.stop_grace_seconds
            elif time.monotonic() > deadline:
                child.kill()
        return stop, reason

    def _forgets(self, events: list[ChildEvent]) -> bool:
        """Whether the child begins before a step that the job has already reported to be in a checkpoint."""
        started = next((event for event in events if isinstance(event, Started)), None)
        return started is not None and started.resumed_from_step < self._patiently(lambda: self._attempts.last_checkpoint(self._attempt))

    def _record(self, events: list[ChildEvent]) -> None:
        def record() -> None:
            self._attempts.record(self._attempt, events, self._ran_seconds)

        try:
            record()
        except UNAVAILABLE:
            # The connection may have been lost on the way back: then they are stored, and once is enough.
            self._patiently(lambda: record() if self._attempts.stored_events(self._attempt) == self._stored_events else None)
        self._stored_events += len(events)
        for event in events:
            self._trace(event)

    def _trace(self, event: ChildEvent) -> None:
        if isinstance(event, Started):
            self._stretches.end("start process", {"zetadp.step": event.resumed_from_step})
        elif isinstance(event, Progress):
            # Only after it was stored: what a trace tells, the job's history has told.
            self._stretches.end("release steps", {"zetadp.step": event.step, "zetadp.steps": event.steps})

    def _reason_to_stop(self) -> Stop | None:
        if self._patiently(lambda: self._attempts.wanted(self._attempt)) is not JobState.RUNNING:
            return Stop.ASKED
        limit = self._attempt.timeout_seconds
        if limit is not None and self._ran_seconds > limit:
            return Stop.TIMEOUT
        return Stop.SHUTDOWN if self._stopping.is_set() else None

    def _end_stopped(self, stop: Stop | None) -> None:
        attempt = self._attempt
        if stop is Stop.ASKED:
            self._patiently(lambda: self._attempts.stopped(attempt))
        elif stop is Stop.TIMEOUT:
            self._fail(f"it ran for longer than its timeout of {attempt.timeout_seconds:g} s")
        elif stop is Stop.LOST_CHECKPOINT:
            self._fail(
                "the checkpoint with its earlier steps isn't in this worker's storage; if run again they would be released twice "
                "and counted once. Workers of one service share one storage: a data folder, or what ZETADP_STORAGE_URL names"
            )
        elif stop is Stop.SHUTDOWN or self._stopping.wait(SHUTDOWN_NOTICE_SECONDS):
            self._patiently(lambda: self._attempts.stopped(attempt, "its worker was shut down"))
        else:
            self._fail("its process was stopped from outside (SIGTERM)")

    def _fail(self, reason: str) -> None:
        self._patiently(lambda: self._attempts.fail(self._attempt, reason))

    def _complete(self, place: Workspace) -> None:
        document = self._attempt.document

        def complete() -> None:
            if isinstance(document, CalculationDocument):
                complete_calculation(self._attempt, self._attempts, place)
            else:
                complete_training(self._attempt, document, self._attempts, place, self._settings, self._announced)

        try:
            self._patiently(complete)
            if not self._is_calculation:
                have_witnessed(self._attempts, self._settings)
        except RunRefused as refusal:
            self._fail(str(refusal))
            return
        try:
            place.settle()
        except StorageUnavailable as error:
            _log.warning("not_deleted", error=error.what)  # what is left goes with the job's files

    def _patiently(self, operation: Callable[[], _T]) -> _T:
        """Do it when database and storage answer. A stopping worker doesn't wait longer than its child would be given."""
        deadline = float("inf")
        pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return operation()
            except (*UNAVAILABLE, StorageUnavailable) as error:
                if self._stopping.is_set():
                    deadline = min(deadline, time.monotonic() + self._settings.stop_grace_seconds)
                if time.monotonic() > deadline:
                    raise
                pause = pauses.following()
                if isinstance(error, StorageUnavailable):
                    _log.warning("storage_unavailable", error=error.what, pause_seconds=pause)
                    self._patiently(lambda: self._attempts.wanted(self._attempt))  # a superseded attempt needn't wait for it
                else:
                    _log.warning("database_unavailable", error=type(error).__name__, pause_seconds=pause)
                if self._stopping.is_set():
                    time.sleep(FIRST_PAUSE_SECONDS)
                else:
                    self._stopping.wait(pause)


def team_of(place: TeamPlace | None, attempt: Attempt) -> TeamPlace | None:
    """The place with the secret of this attempt's team, which follows from what only the service's own processes know."""
    if place is None:
        return None
    secret = hashlib.sha256(f"{attempt.holder}:{attempt.number}".encode()).hexdigest()
    return TeamPlace.model_validate({**dict(place), "secret": secret})


def _described_exit(code: int, work: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system may have run out of memory)" if -code == signal.SIGKILL else ""
        return f"the {work} process was ended by {name}{hint}"
    return f"the {work} process ended with code {code} and gave no reason"
