r"""Streams of jobs: many followers cost as much as one, and an outage of the database only delays them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.app.jobs_harness import WAIT_SECONDS, postgresql_server, serving, settings, spec, submit, wait_until
from tests.app.preparing_harness import prepare_all
from tests.app.proxy import proxied
from zetadp.app.access.watch import KeyLooks
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.events import HISTORY, JobEventRecord, Logged
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobService
from zetadp.app.submissions.tails import Tails
from zetadp.trainer.specs.report import Progress

FOLLOWERS = 50
OUTAGE_SECONDS = 3.0


def test_followers_of_one_job_share_every_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(tmp_path)
    reads: list[int] = []
    read = JobService.events

    def counted(service: JobService, job_id: str, after: int, kinds: Sequence[str]) -> tuple[list[JobEventRecord], bool]:
        reads.append(after)
        return read(service, job_id, after, kinds)

    monkeypatch.setattr(JobService, "events", counted)
    monkeypatch.setattr(JobQueue, "call", lambda _queue, _job_id, _priority: None)
    with closing(Database(of)) as database:
        database.migrate()
        service = JobService(of, database, JobQueue(of), "default")
        job_id = service.submit(JobSubmission.model_validate({"spec": spec()}), None).id

        async def follow() -> int:
            tails = Tails(0.05)
            told = await asyncio.gather(*(tails.next(service, job_id, 0, HISTORY) for _ in range(FOLLOWERS)))
            assert [event.id for event in told[0].events] == ["1"]
            return len({id(one) for one in told})

        assert asyncio.run(follow()) == 1
    assert reads == [0]


def test_streams_of_one_key_share_every_look() -> None:
    looks: list[str] = []

    class Keys:
        def is_valid(self, key_id: str) -> bool:
            looks.append(key_id)
            return key_id == "valid"

    async def look() -> list[bool]:
        shared = KeyLooks(Keys())  # pyright: ignore[reportArgumentType]
        return list(await asyncio.gather(*(shared.is_valid(key_id) for key_id in ["valid", "ended"] * FOLLOWERS)))

    assert asyncio.run(look()) == [True, False] * FOLLOWERS
    assert sorted(looks) == ["ended", "valid"]


def test_open_streams_outlive_the_database_and_tell_every_event_once(tmp_path: Path) -> None:
    with postgresql_server() as url, proxied(url) as (through, proxy), ThreadPoolExecutor(2) as pool:
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": through})
        direct = Settings.model_validate(of.model_dump() | {"database_url": url})
        with serving(of) as client, closing(Database(direct)) as database:
            job_id = submit(client)
            prepare_all(database)
            token = Leases(database, 3).take(Executor(id="a", host="a", device="auto", hardware="none", lease_seconds=3600.0))
            attempts = Attempts(database, 3)
            attempt = attempts.start_next(token, Capacity())
            assert attempt is not None
            seen: dict[str, list[int]] = {"events": [], "logs": []}
            streams = [pool.submit(follow, client, f"/v1/jobs/{job_id}/{name}", seen[name].append) for name in seen]

            def tell(first: int, last: int) -> None:
                for step in range(first, last + 1):
                    progress = Progress(step=step, steps=9, epsilon=0.1, delta=1e-5, seconds=0.1)
                    attempts.record(attempt, [progress, Logged(line=f"line {step}")], 1.0)

            tell(1, 3)
            wait_until(lambda: [len(seen[name]) for name in seen] == [6, 3])
            proxy.cut()
            tell(4, 6)
            time.sleep(OUTAGE_SECONDS)
            assert [len(seen[name]) for name in seen] == [6, 3]
            proxy.mend()
            wait_until(lambda: [len(seen[name]) for name in seen] == [9, 6])
            tell(7, 9)
            attempts.fail(attempt, "that was all")
            for stream in streams:
                stream.result(WAIT_SECONDS)
            # Three changes of state and nine steps on one stream, nine lines on the other, then the last change of state.
            assert seen == {"events": [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22], "logs": [5, 7, 9, 11, 13, 15, 17, 19, 21]}


def follow(client: httpx2.Client, path: str, note: Callable[[int], None]) -> None:
    """Note the numbers of a stream's events until the server ends it in good order."""
    with client.stream("GET", path, timeout=WAIT_SECONDS) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("id: "):
                note(int(line.removeprefix("id: ")))
