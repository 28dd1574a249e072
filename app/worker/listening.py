r"""Receives the queue's calls while a worker runs its jobs.

A worker needs no queue: it looks for waiting jobs itself every ``resubmit_seconds``; a call only wakes it sooner. So it listens in its own
thread, which keeps trying while the queue can't be reached, at the start or for a locked file, however long that lasts.
What DBOS does once it is launched outlives an outage by itself: its threads try again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self, final

import structlog
from dbos import DBOS, DBOSConfig

from zetadp.app.jobs.queue import APPLICATION, APPLICATION_VERSION, QUEUE, WORKFLOW, JobQueue, patient
from zetadp.app.jobs.serializer import JsonSerializer
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.waiting import Pauses

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses between two tries to reach the queue."""
CLOSING_SECONDS = 5.0
"""How long a worker that ends waits for the queue's threads."""
_log = structlog.get_logger()


@final
class Listener:
    """Listens for calls while the context lasts; ``heard`` is called for each at once. One in a process: DBOS keeps itself in globals."""

    def __init__(self, settings: Settings, executor_id: str, queue: JobQueue, heard: Callable[[], None]) -> None:
        self._settings = settings
        self._executor_id = executor_id
        self._heard = heard
        self._queue = queue
        self._called, self._idle, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._reach, name="listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._idle.set()
        ending = threading.Thread(target=self._end, name="listener-end", daemon=True)
        ending.start()
        ending.join(CLOSING_SECONDS)

    def busy(self) -> None:
        """From now on calls wait: a busy worker takes at most one and answers it when it is free."""
        self._idle.clear()

    def wait(self, seconds: float) -> None:
        """Wait until a call comes, at most this long."""
        self._idle.set()
        self._called.wait(seconds)
        self._called.clear()

    def _reach(self) -> None:
        pauses, is_silent = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), False
        while not self._closing.is_set():
            try:
                self._launch()
            except Exception as error:  # whatever it is: jobs are done without calls
                if not is_silent:
                    _log.warning("queue_unavailable", error=type(error.__cause__ or error).__name__)
                is_silent = True
                DBOS.destroy(destroy_registry=True)
                self._closing.wait(pauses.following())
            else:
                if is_silent:
                    _log.info("queue_reached")
                return

    def _launch(self) -> None:
        self._queue.prepare()

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
        def call(_job_id: str) -> None:
            self._heard()
            self._idle.wait()
            self._called.set()

        DBOS(config=_worker_config(self._settings, self._executor_id))
        DBOS.listen_queues([QUEUE])
        DBOS.launch()

    def _end(self) -> None:
        self._thread.join()
        DBOS.destroy(destroy_registry=True)


def run_worker(
    settings: Settings,
    executor_id: str,
    queue: JobQueue,
    run_next: Callable[[], bool],
    stopping: threading.Event,
    heard: Callable[[], None],
) -> None:
    r"""Run jobs in this thread, one at a time, until ``stopping`` is set and the current job is released.

    Args:
      executor_id: this worker's name.
      run_next: runs the next job to its end; False if none is waiting. It must return soon after ``stopping``.
      heard: called when a call comes, also while a job runs: the job that is called for may have to be prepared.
    """

    def run_all() -> None:
        while not stopping.is_set() and run_next():
            pass

    run_all()  # calls matter to an idle worker alone: what was left by a dead one needn't wait until they can be heard
    if stopping.is_set():
        return
    with Listener(settings, executor_id, queue, heard) as listener:
        while not stopping.is_set():
            listener.busy()
            run_all()
            listener.wait(settings.resubmit_seconds)


def _worker_config(settings: Settings, executor_id: str) -> DBOSConfig:
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=patient(settings.queue_url),
        serializer=JsonSerializer(),
        application_version=APPLICATION_VERSION,
        executor_id=executor_id,
        enable_otlp=False,
        log_level="WARNING",
    )
