r"""The worker: runs waiting jobs, one at a time, each in a child process. ``zetadp worker`` runs ``main``."""

from __future__ import annotations

import fcntl
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager

import structlog
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.errors import ExecutorBusy, LeaseLost
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.kit import tracing
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.shutdown import Shutdown
from zetadp.app.worker.child import ChildCommand, training_command
from zetadp.app.worker.hardware import accelerators, described, devices_of
from zetadp.app.worker.listening import run_worker
from zetadp.app.worker.running import Runner
from zetadp.mechanisms.errors import InvalidParameter

EXIT_BUSY = 75
"""``EX_TEMPFAIL``: a worker with this name is already running, or the service's database doesn't answer at the start."""
EXIT_BROKEN = 1
"""An unforeseen error; the log says where."""
_log = structlog.get_logger()


@contextmanager
def sole_executor(settings: Settings) -> Generator[None]:
    """Hold this worker's name on this machine while it runs: a lease under the name is then known to be a dead worker's.

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
    """Run a worker until SIGTERM or SIGINT; then its job is stopped at a checkpoint and queued again. Returns the exit code.

    If anything delays it by more than ``stop_grace_seconds`` plus ``shutdown_seconds``, the process ends here.
    """
    configure_logs(settings.log_level, settings.log_format)
    shutdown = Shutdown(settings.stop_grace_seconds + settings.shutdown_seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: shutdown.ask())
    code = _run(settings, shutdown, command)
    shutdown.leave(code)
    return code


def _run(settings: Settings, shutdown: Shutdown, command: ChildCommand) -> int:
    database = Database(settings)
    try:
        with sole_executor(settings):
            tracing.configure("zetadp-worker")
            database.migrate()
            _work(settings, database, shutdown, command)
            _log.info("worker_stopped", executor=settings.executor_id)
    except InvalidParameter as refusal:
        _log.error("worker_refused", reason=str(refusal))
        return EXIT_BROKEN
    except ExecutorBusy as refusal:
        _log.error("worker_refused", reason=str(refusal))
        return EXIT_BUSY
    except SQLAlchemyError as error:
        _log.error("worker_refused", reason=f"the database doesn't answer: {type(error).__name__}")
        return EXIT_BUSY
    except Exception:
        _log.exception("worker_broken")
        return EXIT_BROKEN
    finally:
        database.close()
        tracing.close()
    return 0


def _work(settings: Settings, database: Database, shutdown: Shutdown, command: ChildCommand) -> None:
    stopping = shutdown.stopping
    found = accelerators()
    executor = Executor(
        id=settings.executor_id,
        host=socket.gethostname(),
        device=settings.device,
        hardware=described(settings.device, found),
        lease_seconds=settings.lease_seconds,
    )
    leases, queue = Leases(database, settings.maximum_worker_deaths), JobQueue(settings)
    attempts = Attempts(database, settings.maximum_worker_deaths)
    runner = Runner(settings, attempts, stopping, command)
    devices = devices_of(settings.device, found)

    def call_all(job_ids: list[str]) -> None:
        for job_id in job_ids:
            queue.call(job_id, 0)

    try:
        with LeaseKeeper(leases, executor, call_all, displaced=shutdown.ask) as keeper:
            _log.info("worker_started", executor=settings.executor_id, devices=devices)

            def run_next() -> bool:
                try:
                    attempt = attempts.start_next(keeper.token, devices)
                    if attempt is None:
                        return False
                    runner.run(attempt)
                    leases.idle(keeper.token)
                except LeaseLost:
                    stopping.wait(settings.lease_seconds / 10)  # the keeper takes a new one
                except SQLAlchemyError as error:
                    _log.warning("database_unavailable", error=type(error).__name__)
                    return False
                return True

            run_worker(settings, queue, run_next, stopping)
    finally:
        queue.close()
