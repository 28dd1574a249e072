r"""The worker: runs waiting jobs, one at a time, each in a child process. ``zetadp worker`` runs ``main``."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack
from functools import partial
from typing import final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.certificates.signing.keys import has_key
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.errors import ExecutorBusy, LeaseLost
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases
from zetadp.app.jobs.preparations import Preparations
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.kit import tracing
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.shutdown import Shutdown
from zetadp.app.kit.waiting import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Pauses, Stopped, when_available
from zetadp.app.operations.retention import remove_logs
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.job_states import HELD_STATES
from zetadp.app.worker.child import ChildCommand, training_command
from zetadp.app.worker.exits import EXIT_BROKEN, EXIT_BUSY, EXIT_REFUSED
from zetadp.app.worker.hardware import accelerators, capacity_of, chosen, described, memory_there
from zetadp.app.worker.heartbeat import beat
from zetadp.app.worker.listening import run_worker
from zetadp.app.worker.naming import PATIENCE_SECONDS, names, sole_executor
from zetadp.app.worker.one_job import OneJob, share
from zetadp.app.worker.preparing import Preparer, PreparingCommand, preparing_command
from zetadp.app.worker.running import Runner
from zetadp.mechanisms.errors import InvalidParameter

LEASES_WAITED = 3.0
"""How many leases a worker of one job waits for another that holds it."""
_log = structlog.get_logger()


def main(
    settings: Settings,
    command: ChildCommand = training_command,
    preparing: PreparingCommand = preparing_command,
    only: OneJob | None = None,
) -> int:
    """Run a worker until SIGTERM or SIGINT; then its job is stopped at a checkpoint and queued again. Returns the exit code.

    With ``only`` it ends when that job does, and takes and prepares no other.

    It waits for a database that is locked or away. If anything delays its end by more than ``stop_grace_seconds`` plus
    ``shutdown_seconds``, the process ends here.
    """
    configure_logs(settings.log_level, settings.log_format)
    shutdown = Shutdown(settings.stop_grace_seconds + settings.shutdown_seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: shutdown.ask())
    code = _run(settings, shutdown, command, preparing, only)
    shutdown.leave(code)
    return code


def _run(settings: Settings, shutdown: Shutdown, command: ChildCommand, preparing: PreparingCommand, only: OneJob | None) -> int:
    database = Database(settings)
    try:
        tracing.configure("zetadp-worker")
        when_available(database.migrate, shutdown.stopping)
        _prepare_storage(settings, database)
        if only is not None and only.place is not None and only.place.machine > 0:
            code = share(settings, database, only.job_id, only.place, command, shutdown.stopping)
        else:
            with ExitStack() as stack:
                code = _Worker(settings, database, shutdown, command, preparing, only).work(stack)
    except Stopped:
        code = 0
    except InvalidParameter as refusal:
        _log.error("worker_refused", reason=str(refusal))
        return EXIT_REFUSED
    except ExecutorBusy as refusal:
        _log.error("worker_refused", reason=str(refusal))
        return EXIT_BUSY
    except StorageUnavailable as error:
        _log.error("worker_refused", reason=f"the storage doesn't answer, or refuses: {error.what}")
        return EXIT_BUSY
    except Exception:
        _log.exception("worker_broken")
        return EXIT_BROKEN
    finally:
        database.close()
        tracing.close()
    _log.info("worker_stopped", exit_code=code)
    return code


def _prepare_storage(settings: Settings, database: Database) -> None:
    """Raises StorageUnavailable, and InvalidParameter if it can't be used or this machine has no key of the service's to sign with."""
    storage = storage_of(settings)
    if not storage.is_elsewhere:
        return
    storage.prepare()
    if not has_key(settings):
        # A key made here would sign certificates that nobody can check against the service's published keys.
        raise InvalidParameter("ZETADP_DATA_DIR", "a folder with a copy of the service's keys folder", "one without")
    remove_logs(settings, database)


@final
class _Worker:
    """One worker's life under one name."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        shutdown: Shutdown,
        command: ChildCommand,
        preparing: PreparingCommand,
        only: OneJob | None,
    ) -> None:
        names = chosen(settings.device, accelerators(), os.environ)
        self._settings = settings
        self._shutdown = shutdown
        self._hardware = described(names)
        limits = [limit for limit in (memory_there(), settings.training_bytes) if limit is not None]
        self._capacity = capacity_of(settings.device, names, min(limits, default=None), only.machines if only else 1)
        self._leases = Leases(database, settings.maximum_worker_deaths)
        self._attempts = Attempts(database, settings.maximum_worker_deaths)
        self._queue = JobQueue(settings)
        self._preparations = Preparations(database, settings.maximum_worker_deaths)
        self._preparing = preparing
        self._command = command
        self._only = only
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._is_unsure = False
        self._lost = -1, 0.0
        self._code = 0

    def work(self, stack: ExitStack) -> int:
        """Run jobs until it is asked to end, or can't keep its lease; the exit code. Raises ExecutorBusy, Stopped."""
        stack.callback(self._queue.close)
        name, keeper = self._registered(stack)
        self._take_name(name)
        if self._only is not None:
            _log.info("worker_started", executor=name, job=self._only.job_id)
            return self._run_only(self._only.job_id, keeper)
        preparer = Preparer(self._settings, self._preparations, lambda: keeper.token, self._queue.call, self._preparing)
        stack.enter_context(preparer)
        _log.info("worker_started", executor=name, devices=self._capacity.devices)
        run_worker(self._settings, name, self._queue, lambda: self._run_next(keeper), self._shutdown.stopping, preparer.wake)
        return self._code

    def _take_name(self, name: str) -> None:
        """Only with its lock: what a dead worker of this name left on this machine's disk is cleared away."""
        named = Settings.model_validate(self._settings.model_dump() | {"executor_id": name})
        place = self._only.place if self._only else None
        self._runner = Runner(named, self._attempts, self._shutdown.stopping, self._command, place)

    def _registered(self, stack: ExitStack) -> tuple[str, LeaseKeeper]:
        """A name and a lease under it: of the names that it may have, the first that no living worker has."""
        settings, host = self._settings, socket.gethostname()
        # A launcher's settings are its workers', but a name is one process's.
        given = None if self._only else settings.executor_id
        busy: ExecutorBusy | None = None
        patience = PATIENCE_SECONDS if given else 0.0  # a worker without a name of its own takes the next one
        for name in names(given, host, settings.device):
            with ExitStack() as tried:
                try:
                    executor = Executor(
                        id=name,
                        host=host,
                        lock=tried.enter_context(sole_executor(settings.data_dir, name, patience)),
                        device=settings.device,
                        hardware=self._hardware,
                        capacity=self._capacity,
                        lease_seconds=settings.lease_seconds,
                    )
                    sign = partial(beat, settings, name)
                    keeper = LeaseKeeper(self._leases, executor, self._call, self._unable, sign)
                    when_available(lambda keeper=keeper, tried=tried: tried.enter_context(keeper), self._shutdown.stopping)
                except ExecutorBusy as taken:
                    busy = taken
                    continue
                stack.enter_context(tried.pop_all())
                return name, keeper
        assert busy is not None  # there is a first name
        raise busy

    def _call(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            self._queue.call(job_id, 0)

    def _unable(self, error: Exception) -> None:
        """The lease can't be kept: end in good order, so that whoever watches this process starts another."""
        self._code = EXIT_BUSY if isinstance(error, ExecutorBusy) else EXIT_BROKEN
        self._shutdown.ask()

    def _run_only(self, job_id: str, keeper: LeaseKeeper) -> int:
        """Run this job once, if it waits or soon does: the worker that had it before may have died with its machine."""
        deadline = time.monotonic() + LEASES_WAITED * self._settings.lease_seconds
        while not self._shutdown.stopping.is_set():
            try:
                found = self._attempts.start(keeper.token, self._capacity, job_id)
            except (LeaseLost, SQLAlchemyError) as error:
                # If the answer was lost, it is this worker's now; its lease goes with this process, and the job to another.
                _log.warning("job_not_started", error=type(error).__name__)
                self._shutdown.stopping.wait(self._pauses.following())
                continue
            if isinstance(found, Attempt):
                return self._run_attempt(found)
            if found not in HELD_STATES or time.monotonic() > deadline:
                _log.info("job_not_waiting", state=found)
                return self._code
            self._shutdown.stopping.wait(self._settings.cancel_poll_seconds)
        return self._code

    def _run_attempt(self, attempt: Attempt) -> int:
        try:
            self._runner.run(attempt)
        except SQLAlchemyError as error:
            # Its end couldn't be written down: the lease goes with this worker, and the job to another.
            _log.warning("database_unavailable", error=type(error).__name__)
            return EXIT_BROKEN
        return self._code

    def _run_next(self, keeper: LeaseKeeper) -> bool:
        try:
            if self._is_unsure:
                self._leave(keeper)
            attempt = self._attempts.start_next(keeper.token, self._capacity)
            if attempt is not None:
                self._is_unsure = True
                self._runner.run(attempt)
                self._leave(keeper)
            self._pauses.reset()
            return attempt is not None
        except LeaseLost:
            self._check(keeper)
            self._shutdown.stopping.wait(self._settings.lease_seconds / 10)  # the keeper takes a new one
            return True
        except SQLAlchemyError as error:
            # A start whose answer was lost may have been stored: then this worker holds a job that nobody runs.
            self._is_unsure = True
            pause = self._pauses.following()
            _log.warning("database_unavailable", error=type(error).__name__, pause_seconds=pause)
            self._shutdown.stopping.wait(pause)
            return False

    def _leave(self, keeper: LeaseKeeper) -> None:
        """Make sure that this worker holds no job."""
        left = self._leases.idle(keeper.token)
        self._is_unsure = False
        if left:
            _log.warning("jobs_put_back", jobs=left)

    def _check(self, keeper: LeaseKeeper) -> None:
        """Whether the keeper still tries: one that waits for an answer for ever would never take another lease."""
        moment = time.monotonic()
        beats, since = self._lost
        if beats != keeper.beats:
            # Counted from here: a worker that was suspended mustn't judge by how long that was.
            self._lost = keeper.beats, moment
        elif moment - since > 2.0 * self._settings.lease_seconds + self._settings.database_busy_seconds:
            _log.error("lease_keeper_silent", seconds=round(moment - since))
            self._unable(TimeoutError())
