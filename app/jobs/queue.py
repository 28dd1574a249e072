r"""The queue of jobs, on DBOS: the calling side. Only this module and ``listening.py``, the called side, know about DBOS.

Which jobs wait, in what order, and which worker holds what is in our own tables and decided there, in one transaction. A workflow here only
calls: it wakes one idle worker, which then takes the job that is next. A call that is lost costs a moment, since an idle worker also looks
by itself; a call that comes twice, too late or to a worker without the right device finds nothing, and nothing is done twice.

So nobody waits for the queue: DBOS tries a locked SQLite file again without end. Calls go out in a thread of their own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, final

import structlog
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.errors import QueueUnavailable
from zetadp.app.jobs.resources import HIGHEST_PRIORITY
from zetadp.app.kit.database import PATIENCE
from zetadp.app.kit.settings import Settings

if TYPE_CHECKING:
    from dbos import DBOSClient

APPLICATION = "zetadp"
APPLICATION_VERSION = "1"
"""Fixed, since DBOS would otherwise hash the source, and a job queued before an upgrade would wait for the old version for ever."""
QUEUE = "train"
WORKFLOW = "train"
POLLING_SECONDS = 0.1
ANSWERED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
CALLS_AT_ONCE = 500
CALLS_WAITING = 1000
"""More calls than this needn't go out: they already keep every worker awake for a while."""
CLOSING_SECONDS = 2.0
"""How long closing waits for calls in flight."""
_log = structlog.get_logger()


def patient(url: str) -> str:
    """The queue's URL with our timeouts: DBOS has none of its own for a server that silently disappears.

    >>> patient("sqlite:////data/queue.sqlite")
    'sqlite:////data/queue.sqlite'
    >>> "connect_timeout=5&" in patient("postgresql+psycopg://db/zetadp")
    True
    """
    place = make_url(url)
    if place.get_backend_name() != "postgresql":
        return url
    return place.update_query_dict({name: str(value) for name, value in PATIENCE.items()}).render_as_string(hide_password=False)


@final
class JobQueue:
    """A client of the queue: makes its tables and connects on first use, so that making one is free."""

    def __init__(self, settings: Settings) -> None:
        self._url = patient(settings.queue_url)
        self._lock, self._lock_of_calls = threading.Lock(), threading.Lock()
        self._client: DBOSClient | None = None
        self._calls: queue.Queue[tuple[str, int] | None] = queue.Queue(CALLS_WAITING)
        self._caller: threading.Thread | None = None
        self._is_silent = False

    def prepare(self) -> None:
        """Make the queue's tables. Raises QueueUnavailable."""
        with self._connected():
            pass

    def call(self, job_id: str, priority: int) -> None:
        """Wake an idle worker for a job that waits now; calls for jobs with a higher priority go first.

        It returns at once, whatever the queue does. A call that can't be made is lost: an idle worker finds the job by
        itself.
        """
        with self._lock_of_calls:
            if self._caller is None:
                self._caller = threading.Thread(target=self._keep_calling, name="calls", daemon=True)
                self._caller.start()
        try:
            self._calls.put_nowait((job_id, priority))
        except queue.Full:
            self._failed()

    def forget(self, before: datetime, *, only_count: bool = False) -> int:
        """Delete the answered calls from before this moment and return their number. Raises QueueUnavailable."""
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
        """Send the calls that can still go out within seconds, and close the connections, if any were made."""
        if self._caller is not None:
            with suppress(queue.Full):
                self._calls.put_nowait(None)
            self._caller.join(CLOSING_SECONDS)
        if not self._lock.acquire(timeout=CLOSING_SECONDS):
            return  # somebody still waits to be connected; it ends with the process
        try:
            if self._client is not None:
                self._client.destroy()
                self._client = None
        finally:
            self._lock.release()

    def _keep_calling(self) -> None:
        while (call := self._calls.get()) is not None:
            job_id, priority = call
            # DBOS takes a quarter of a second to import: the first call waits for that, and not the start of the service.
            from dbos import EnqueueOptions

            options = EnqueueOptions(
                workflow_name=WORKFLOW,
                queue_name=QUEUE,
                app_version=APPLICATION_VERSION,
                priority=HIGHEST_PRIORITY - priority + 1,  # DBOS takes the least first, from 1
            )
            try:
                with self._connected() as client:
                    client.enqueue(options, job_id)
                self._is_silent = False
            except QueueUnavailable:
                self._failed()

    def _failed(self) -> None:
        if not self._is_silent:
            _log.warning("call_failed")  # once until one is heard again
        self._is_silent = True

    @contextmanager
    def _connected(self) -> Iterator[DBOSClient]:
        from dbos import error  # late, as in ``_keep_calling``

        try:
            yield self._connect()
        except (SQLAlchemyError, error.DBOSException) as failure:
            raise QueueUnavailable(f"the queue doesn't answer: {type(failure).__name__}") from failure

    def _connect(self) -> DBOSClient:
        from dbos import DBOS, DBOSClient  # late, as in ``_keep_calling``

        from zetadp.app.jobs.serializer import JsonSerializer

        with self._lock:
            if self._client is None:
                DBOS.migrate(self._url)
                self._client = DBOSClient(
                    system_database_url=self._url,
                    serializer=JsonSerializer(),
                    application_name=APPLICATION,
                    retry_connection_errors=False,
                )
                self._client.register_queue(QUEUE, worker_concurrency=1, polling_interval_sec=POLLING_SECONDS)
            return self._client
