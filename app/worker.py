r"""The worker: takes jobs off the queue, one at a time, and does each in a child process. ``python -m app worker`` runs ``main``."""

from __future__ import annotations

import fcntl
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import final

import structlog

from app.database import Database
from app.jobs.attempts import Attempt, Attempts, AttemptSuperseded
from app.jobs.calculation import CalculationDocument
from app.jobs.child import (
    EXIT_STOPPED,
    ChildCommand,
    JobChild,
    calculation_command,
    sole_user,
    training_command,
    write_request,
)
from app.jobs.completion import RunRefused, complete_calculation, complete_training
from app.jobs.errors import QueueUnavailable
from app.jobs.queue import GiveBack, JobQueue, Presence, run_worker
from app.logs import configure_logs
from app.settings import Settings
from trainer.report import Failed

SHUTDOWN_NOTICE_SECONDS = 2.0
"""A service manager sends SIGTERM to child and worker at once; the worker may see its own a little later."""
EXIT_BUSY = 75
"""``EX_TEMPFAIL``: a worker of this name runs already."""
_log = structlog.get_logger()


class Stop(StrEnum):
    """Why a child is stopped before its end."""

    CANCEL = "cancel"
    SHUTDOWN = "shutdown"


class ExecutorBusy(Exception):
    """Another worker of the same name runs on this data folder."""

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(f"a worker named {executor_id!r} runs already; give this one another name with ZETADP_EXECUTOR_ID")


@final
class Worker:
    r"""Runs jobs.

    Args:
      command: makes the command line of a child that trains from its folder.
    """

    def __init__(self, settings: Settings, database: Database, stopping: threading.Event, command: ChildCommand) -> None:
        self._settings = settings
        self._database = database
        self._stopping = stopping
        self._command = command
        self._attempts = Attempts(database, settings.maximum_worker_deaths)

    def run_job(self, job_id: str) -> None:
        """Bring one job to an end.

        Raises:
          GiveBack: the worker is stopping, or the job was started again elsewhere; its checkpoint stays.
        """
        if self._stopping.is_set():
            raise GiveBack
        attempt = self._attempts.start(job_id)
        if attempt is None:
            return
        log = _log.bind(job=job_id, attempt=attempt.number)
        log.info("job_started")
        try:
            self._do(attempt)
        except AttemptSuperseded:
            log.warning("job_superseded")
            raise GiveBack from None
        log.info("job_left")

    def look_after(self, queue: JobQueue) -> None:
        """Put jobs on the queue that it doesn't know (storing them worked, queueing them didn't) or wrongly holds for ended."""
        try:
            for job_id, presence in queue.presence(self._attempts.unfinished()).items():
                if presence is Presence.UNKNOWN:
                    _log.warning("job_queued_late", job=job_id)
                    queue.submit(job_id)
            self._requeue_abandoned(queue)
        except QueueUnavailable:
            _log.exception("queue_unavailable")

    def _requeue_abandoned(self, queue: JobQueue) -> None:
        ended = [job_id for job_id, presence in queue.presence(self._attempts.unfinished()).items() if presence is Presence.ENDED]
        # A job that ends between the two reads looks abandoned; asked once more, it is finished.
        for job_id in set(ended) & set(self._attempts.unfinished()):
            _log.warning("job_abandoned", job=job_id)
            queue.submit_again(job_id)

    def _do(self, attempt: Attempt) -> None:
        is_calculation = isinstance(attempt.document, CalculationDocument)
        command = calculation_command if is_calculation else self._command
        workdir = self._settings.job_dir(attempt.job_id)
        write_request(workdir, attempt.document)
        with sole_user(workdir, lambda: self._reason_to_stop(attempt) is not None) as lock:
            if lock is None:
                self._end_stopped(attempt, self._reason_to_stop(attempt))
                return
            with JobChild(command(workdir), workdir, lock, self._settings.data_sets_dir) as child:
                stop, reason = self._follow(attempt, child)
                code = child.exit_code()
            if code == 0:
                self._complete(attempt, workdir)
            elif stop is not None or code in (EXIT_STOPPED, -signal.SIGTERM):
                self._end_stopped(attempt, stop)
            else:
                self._attempts.fail(attempt, reason or _described_exit(code, "calculation" if is_calculation else "training"))

    def _follow(self, attempt: Attempt, child: JobChild) -> tuple[Stop | None, str | None]:
        """Copy the child's events until its end; returns why it was stopped, if it was, and its own reason for failing, if it gave one."""
        stop: Stop | None = None
        reason: str | None = None
        deadline = float("inf")
        while not child.is_over:
            events = child.events(self._settings.cancel_poll_seconds)
            if events:
                self._attempts.record(attempt, events)
                reason = next((event.reason for event in events if isinstance(event, Failed)), reason)
            if stop is None and (stop := self._reason_to_stop(attempt)) is not None:
                child.stop()
                deadline = time.monotonic() + self._settings.stop_grace_seconds
            elif time.monotonic() > deadline:
                child.kill()
        return stop, reason

    def _reason_to_stop(self, attempt: Attempt) -> Stop | None:
        if self._attempts.is_cancelling(attempt):
            return Stop.CANCEL
        return Stop.SHUTDOWN if self._stopping.is_set() else None

    def _end_stopped(self, attempt: Attempt, stop: Stop | None) -> None:
        if stop is Stop.CANCEL:
            self._attempts.cancelled(attempt)
        elif stop is Stop.SHUTDOWN or self._stopping.wait(SHUTDOWN_NOTICE_SECONDS):
            self._attempts.give_back(attempt, "its worker was shut down")
            raise GiveBack
        else:
            self._attempts.fail(attempt, "its process was stopped from outside (SIGTERM)")

    def _complete(self, attempt: Attempt, workdir: Path) -> None:
        try:
            document = attempt.document
            if isinstance(document, CalculationDocument):
                complete_calculation(attempt, self._attempts, workdir)
            else:
                complete_training(attempt, document, self._attempts, workdir, self._settings)
        except RunRefused as refusal:
            self._attempts.fail(attempt, str(refusal))


def _described_exit(code: int, work: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the system may have run out of memory)" if -code == signal.SIGKILL else ""
        return f"the {work} process was ended by {name}{hint}"
    return f"the {work} process ended with code {code} and gave no reason"


@contextmanager
def sole_executor(settings: Settings) -> Generator[None]:
    """Hold this worker's name while it runs: what the queue holds for running under the name is then known to be abandoned.

    Raises:
      ExecutorBusy: another process holds it.
    """
    with (settings.data_dir / f"worker-{settings.executor_id}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExecutorBusy(settings.executor_id) from None
        yield


def main(settings: Settings, command: ChildCommand = training_command) -> int:
    """Run a worker until SIGTERM or SIGINT; the job in hand is then stopped at a checkpoint and queued again. Returns the exit code."""
    configure_logs(settings.log_level)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    database = Database(settings)
    try:
        with sole_executor(settings):
            database.migrate()
            worker = Worker(settings, database, stopping, command)
            _log.info("worker_started", executor=settings.executor_id)
            run_worker(settings, worker.run_job, stopping, worker.look_after)
            _log.info("worker_stopped", executor=settings.executor_id)
    except ExecutorBusy as busy:
        _log.error("worker_refused", reason=str(busy))
        return EXIT_BUSY
    finally:
        database.close()
    return 0
