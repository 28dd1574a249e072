r"""The queue of jobs, on DBOS. The only module that knows of it: the rest of the service sees ``JobQueue`` and ``run_worker``.

A workflow's id is its job's id, so submitting twice is submitting once. The workflow has no steps of its own: what a job has done is in
its checkpoint and in our tables, and a workflow that starts again looks there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import final

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, Serializer, error
from sqlalchemy.exc import SQLAlchemyError

from app.jobs.errors import QueueUnavailable
from app.settings import Settings

APPLICATION = "zetadp"
APPLICATION_VERSION = "1"
"""Fixed: DBOS would otherwise hash the source, and a job queued before an upgrade would wait for the old version for ever."""
QUEUE = "train"
WORKFLOW = "train"
POLLING_SECONDS = 0.1
ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class Presence(StrEnum):
    """What the queue knows of a job."""

    UNKNOWN = "unknown"
    WAITING_OR_RUNNING = "waiting_or_running"
    ENDED = "ended"


class GiveBack(BaseException):
    """Raised by a job's function to leave the job unfinished. Not an ``Exception``: DBOS would record that as the job's outcome."""


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

    def submit(self, job_id: str) -> None:
        """Put the job on the queue, unless it is there.

        Raises:
          QueueUnavailable: the queue's database doesn't answer.
        """
        options = EnqueueOptions(workflow_name=WORKFLOW, queue_name=QUEUE, workflow_id=job_id, app_version=APPLICATION_VERSION)
        with self._connected() as client:
            client.enqueue(options, job_id)

    def submit_again(self, job_id: str) -> None:
        """Put a job back that the queue holds for running or ended: its worker is known to have let go of it."""
        with self._connected() as client:
            client.delete_workflow(job_id)
        self.submit(job_id)

    def submit_again_held_by(self, executor_id: str) -> None:
        """Put back every job that the queue holds for running on this worker, which runs none any more: another one may take them."""
        with self._connected() as client:
            held = client.list_workflows(status="PENDING", executor_id=executor_id, load_input=False, load_output=False)
        for workflow in held:
            self.submit_again(workflow.workflow_id)

    def cancel(self, job_id: str) -> None:
        """Take a waiting job off the queue."""
        with self._connected() as client:
            client.cancel_workflow(job_id)

    def presence(self, job_ids: list[str]) -> dict[str, Presence]:
        """What the queue knows of each job."""
        if not job_ids:
            return {}
        with self._connected() as client:
            known = client.list_workflows(workflow_ids=job_ids, load_input=False, load_output=False)
        found = {workflow.workflow_id: Presence.ENDED if workflow.status in ENDED else Presence.WAITING_OR_RUNNING for workflow in known}
        return {job_id: found.get(job_id, Presence.UNKNOWN) for job_id in job_ids}

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


def run_worker(
    settings: Settings, run_job: Callable[[str], None], stopping: threading.Event, look_after: Callable[[JobQueue], None]
) -> None:
    r"""Take jobs off the queue, one at a time, until ``stopping`` is set and the job in hand is let go.

    Args:
      run_job: brings one job to an end, in a thread of its own; ``GiveBack`` leaves it for the next worker. It must return soon after
        ``stopping`` is set.
      look_after: called at the start and every ``settings.resubmit_seconds``, in this thread.
    """
    busy = threading.Lock()

    @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
    def train(job_id: str) -> None:
        with busy:
            run_job(job_id)

    queue = JobQueue(settings)
    try:
        look_after(queue)
        DBOS(config=_worker_config(settings))
        DBOS.listen_queues([QUEUE])
        DBOS.launch()
        try:
            while not stopping.wait(settings.resubmit_seconds):
                look_after(queue)
        finally:
            stopping.set()
            with busy:  # the job in hand has seen ``stopping`` and is being let go
                DBOS.destroy(destroy_registry=True)
        queue.submit_again_held_by(settings.executor_id)
    finally:
        queue.close()


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
