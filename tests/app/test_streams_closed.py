r"""A client that closes an event stream in the middle: no error, in a real server with a real connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import MutableMapping
from contextlib import closing
from pathlib import Path
from typing import Any, final

import pytest
from starlette.types import ASGIApp, Message, Receive, Send
from structlog.testing import capture_logs

from tests.app.jobs_harness import ADMIN_KEY, WAIT_SECONDS, running, settings, spec, wait_until
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.app.submissions.service import JobService
from zetadp.trainer.specs.report import Progress

STEPS = 20


@final
class Held:
    """An application whose streams come to a halt after their first event, as they do where a client doesn't read; how each one ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.halted = threading.Event()
        self.ends: list[BaseException | None] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def halting(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body":
                self.halted.set()
                await asyncio.Event().wait()

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, halting)
        except BaseException as error:
            self.ends.append(error)
            raise
        self.ends.append(None)


def job_with_history(of: Settings) -> str:
    """The id of a running job with a history."""
    with closing(Database(of)) as database, closing(JobQueue(of)) as queue:
        database.migrate()
        job_id = JobService(of, database, queue, "default").submit(JobSubmission.model_validate({"spec": spec()}), None).id
        prepare_all(database)
        token = Leases(database, 3).take(Executor(id="a", host="a", device="auto", hardware="none", lease_seconds=3600.0))
        attempts = Attempts(database, 3)
        attempt = attempts.start_next(token, Capacity())
        assert attempt is not None
        attempts.record(attempt, [Progress(step=step, steps=STEPS, epsilon=0.1, delta=1e-5, seconds=0.1) for step in range(1, STEPS)], 1.0)
    return job_id


@pytest.mark.parametrize("name", ["events", "metrics/stream"])
def test_a_client_that_closes_a_stream_in_the_middle_is_no_error(name: str, tmp_path: Path) -> None:
    of = settings(tmp_path)
    job_id = job_with_history(of)
    app = create_app(of)
    held = Held(app)
    with capture_logs() as lines, running(held) as address:
        app.state.keys.adopt(ADMIN_KEY)
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            head = f"GET /v1/jobs/{job_id}/{name} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ADMIN_KEY}\r\n\r\n"
            line.sendall(head.encode())
            assert held.halted.wait(WAIT_SECONDS)
        wait_until(lambda: held.ends != [])
    assert held.ends == [None]
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []
