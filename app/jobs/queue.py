r"""The queue of jobs, on DBOS. The only module that knows of it: the rest of the service sees ``JobQueue`` and ``run_worker``.

What waits, in what order, and who has what in hand stands in our own tables and is decided there, in one transaction. A workflow here only
calls: it wakes one idle worker, which then takes the job that is next. A call that is lost costs a moment, since an idle worker also looks
by itself; a call that comes twice, too late or to a worker without the right device finds nothing, and nothing is done twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import final

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, Serializer, error
from sqlalchemy.exc import SQLAlchemyError

from app.jobs.errors import QueueUnavailable
from app.jobs.resources import HIGHEST_PRIORITY
from app.settings import Settings

APPLICATION = "zetadp"
APPLICATION_VERSION = "1"
"""Fixed: DBOS would otherwise hash the source, and a job queued before an upgrade would wait for the old version for ever."""
QUEUE = "train"
WORKFLOW = "train"
POLLING_SECONDS = 0.1
ANSWERED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
CALLS_AT_ONCE = 500


@final
class JsonSerializer(Serializer):
    """What passes through the queue's tables is JSON. DBOS's default is pickle, which runs whatever it reads."""

    def name(self) -> str:
        return "zetadp_json"

    def serialize(self, data: object) -> str:
        return json.dumps(data, default=_described, allow_nan=False)

    def deserialize(self, serialized_data: str) -> object:
        return json.loads(serialized_data)


def _described(value: object) -> str:
    # An error that ended a workflow; its text may quote values, its type can't.
    return type(value).__qualname__


@final
class JobQueue:
    """A client of the queue: makes its tables and connects on first use, so that making one is free."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: DBOSClient | None = None

    def prepare(self) -> None:
        """Make the queue's tables. Raises QueueUnavailable."""
        with self._connected():
            pass

    def call(self, job_id: str, priority: int) -> None:
        """Wake an idle worker for a job that waits now; calls for jobs of higher priority go first.

        Raises:
          QueueUnavailable: the queue's database doesn't answer.
        """
        options = EnqueueOptions(
            workflow_name=WORKFLOW,
            queue_name=QUEUE,
            app_version=APPLICATION_VERSION,
            priority=HIGHEST_PRIORITY - priority + 1,  # DBOS takes the least first, from 1
        )
        with self._connected() as client:
            client.enqueue(options, job_id)

    def forget(self, before: datetime, *, only_count: bool = False) -> int:
        """Delete the calls from before this moment that were answered; how many there were. Raises QueueUnavailable."""
        found = 0
        with self._connected() as client:
            while True:
                ids = [
                    call.workflow_id
                    for call in client.list_workflows(
                        name=WORKFLOW,
                        status=list(ANSWERED),
                        end_time=before.isoformat(),
                        limit=CALLS_AT_ONCE,
                        offset=found if only_count else 0,
                        load_input=False,
                        load_output=False,
                    )
                ]
                found += len(ids)
                if ids and not only_count:
                    client.delete_workflows(ids)
                if len(ids) < CALLS_AT_ONCE:
                    return found

    def close(self) -> None:
        """Close the connections, if any were made."""
        with self._lock:
            if self._client is not None:
                self._client.destroy()
                self._client = None

    @contextmanager
    def _connected(self) -> Iterator[DBOSClient]:
        try:
            yield self._connect()
        except (SQLAlchemyError, error.DBOSException) as failure:
            raise QueueUnavailable(f"the queue doesn't answer: {type(failure).__name__}") from failure

    def _connect(self) -> DBOSClient:
        with self._lock:
            if self._client is None:
                DBOS.migrate(self._settings.queue_url)
                self._client = DBOSClient(
                    system_database_url=self._settings.queue_url,
                    serializer=JsonSerializer(),
                    application_name=APPLICATION,
                    retry_connection_errors=False,
                )
                self._client.register_queue(QUEUE, worker_concurrency=1, polling_interval_sec=POLLING_SECONDS)
            return self._client


def run_worker(settings: Settings, queue: JobQueue, run_next: Callable[[], bool], stopping: threading.Event) -> None:
    r"""Run jobs in this thread, one at a time, until ``stopping`` is set and the job in hand is let go.

    Args:
      run_next: takes up the job that is next and brings it to an end; False where none waits. It must return soon after ``stopping``.
    """
    called, idle = threading.Event(), threading.Event()

    @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
    def call(_job_id: str) -> None:
        # A busy worker takes one call at most, and answers it when it is free.
        idle.wait()
        called.set()

    def run_all() -> None:
        while not stopping.is_set() and run_next():
            pass

    run_all()  # calls matter to an idle worker alone: what was left by a dead one needn't wait until they can be heard
    if stopping.is_set():
        return
    queue.prepare()
    DBOS(config=_worker_config(settings))
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    try:
        while not stopping.is_set():
            idle.clear()
            run_all()
            idle.set()
            called.wait(settings.resubmit_seconds)
            called.clear()
    finally:
        stopping.set()
        idle.set()
        DBOS.destroy(destroy_registry=True)


def _worker_config(settings: Settings) -> DBOSConfig:
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=settings.queue_url,
        serializer=JsonSerializer(),
        application_version=APPLICATION_VERSION,
        executor_id=settings.executor_id,
        enable_otlp=False,
        log_level="WARNING",
    )
