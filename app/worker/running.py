r"""Runs one attempt of a job: its folder, its child, the child's events, and its end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, final

import structlog

from zetadp.app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from zetadp.app.jobs.calculation import CalculationDocument
from zetadp.app.jobs.events import Logged
from zetadp.app.jobs.folders import take_over
from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.kit.disk import is_full
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.tracing import Stretches, span
from zetadp.app.tables.job_states import JobState
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
from zetadp.trainer.specs.report import Failed, Progress, Started

SHUTDOWN_NOTICE_SECONDS = 2.0
"""A service manager sends SIGTERM to child and worker at once; the worker may see its own a little later."""
RETRY_SECONDS = 0.5
"""Between two tries while the database doesn't answer."""
_T = TypeVar("_T")
_log = structlog.get_logger()


class Stop(StrEnum):
    """Why a child is stopped before its end."""

    ASKED = "asked"
    TIMEOUT = "timeout"
    LOST_CHECKPOINT = "lost_checkpoint"
    SHUTDOWN = "shutdown"


@final
class Runner:
    r"""Runs attempts, one at a time.

    Args:
      command: makes the command line of a child that trains from its folder.
    """

    def __init__(self, settings: Settings, attempts: Attempts, stopping: threading.Event, command: ChildCommand) -> None:
        self._settings = settings
        self._attempts = attempts
        self._stopping = stopping
        self._command = command

    def run(self, attempt: Attempt) -> None:
        """Run the attempt to its end. Writes that the database can't take at once are made when it answers again."""
        with structlog.contextvars.bound_contextvars(job=attempt.job_id, attempt=attempt.number):
            _log.info("job_started")
            try:
                with span("run job", {"zetadp.job": attempt.job_id, "zetadp.attempt": attempt.number}, "consumer", attempt.traceparent):
                    _Run(self._settings, self._attempts, self._stopping, self._command, attempt).run()
                _log.info("job_left")
            except AttemptSuperseded:
                _log.warning("job_superseded")


@final
class _Run:
    def __init__(self, settings: Settings, attempts: Attempts, stopping: threading.Event, command: ChildCommand, attempt: Attempt) -> None:
        self._settings = settings
        self._attempts = attempts
        self._stopping = stopping
        self._attempt = attempt
        self._is_calculation = isinstance(attempt.document, CalculationDocument)
        self._command = calculation_command if self._is_calculation else command
        self._begun = time.monotonic()
        self._stored_events = 0
        self._stretches = Stretches()

    @property
    def _ran_seconds(self) -> float:
        return self._attempt.ran_seconds + time.monotonic() - self._begun

    def run(self) -> None:
        try:
            self._do()
        except (AttemptSuperseded, *UNAVAILABLE):
            raise
        except Exception as error:
            # This worker can't do it; another may, and if none can the job ends.
            _log.exception("worker_failed")
            how = "its worker's disk is full" if is_full(error) else "its worker was lost"
            self._patiently(lambda: self._attempts.lost(self._attempt, how))

    def _do(self) -> None:
        folder = self._settings.job_dir(self._attempt.job_id)
        workdir = take_over(folder, self._attempt.number)
        write_request(workdir, self._attempt.document)
        with sole_user(folder, lambda: self._reason_to_stop() is not None, self._settings.lease_seconds) as lock:
            if lock is None:
                self._end_stopped(self._reason_to_stop())
                return
            with JobChild(
                self._command(workdir),
                folder / LOG,
                lock,
                self._settings.data_sets_dir,
                visible(self._settings.device),
                self._settings.made_data_sets_dir,
            ) as child:
                self._record([Logged(line=f"attempt {self._attempt.number}: process started")])
                stop, reason = self._follow(child)
                code = child.exit_code()
            self._record([Logged(line=f"attempt {self._attempt.number}: process ended with code {code}")])
            if code == 0:
                self._complete(workdir)
            elif stop is not None or code in (EXIT_STOPPED, -signal.SIGTERM):
                self._end_stopped(stop)
            else:
                self._fail(reason or _described_exit(code, "calculation" if self._is_calculation else "training"))

    def _follow(self, child: JobChild) -> tuple[Stop | None, str | None]:
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
                self._record(events)
            if stop is None and (stop := self._reason_to_stop()) is not None:
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
                "the checkpoint with its earlier steps isn't in this worker's data folder; if run again they would be released twice "
                "and counted once. Workers of one service share one data folder"
            )
        elif stop is Stop.SHUTDOWN or self._stopping.wait(SHUTDOWN_NOTICE_SECONDS):
            self._patiently(lambda: self._attempts.stopped(attempt, "its worker was shut down"))
        else:
            self._fail("its process was stopped from outside (SIGTERM)")

    def _fail(self, reason: str) -> None:
        self._patiently(lambda: self._attempts.fail(self._attempt, reason))

    def _complete(self, workdir: Path) -> None:
        document = self._attempt.document

        def complete() -> None:
            if isinstance(document, CalculationDocument):
                complete_calculation(self._attempt, self._attempts, workdir)
            else:
                complete_training(self._attempt, document, self._attempts, workdir, self._settings)

        try:
            self._patiently(complete)
        except RunRefused as refusal:
            self._fail(str(refusal))

    def _patiently(self, operation: Callable[[], _T]) -> _T:
        """Do it when the database answers. A stopping worker doesn't wait longer than its child would be given."""
        deadline = float("inf")
        while True:
            try:
                return operation()
            except UNAVAILABLE as error:
                if self._stopping.is_set():
                    deadline = min(deadline, time.monotonic() + self._settings.stop_grace_seconds)
                if time.monotonic() > deadline:
                    raise
                _log.warning("database_unavailable", error=type(error).__name__)
                time.sleep(RETRY_SECONDS)


def _described_exit(code: int, work: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system may have run out of memory)" if -code == signal.SIGKILL else ""
        return f"the {work} process was ended by {name}{hint}"
    return f"the {work} process ended with code {code} and gave no reason"
