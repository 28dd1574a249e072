r"""Lists and submits jobs while thousands wait, and lets two hundred watch one.

    python -m benchmarks.jobs [--database sqlite|postgresql] [--jobs 5000] [--data-sets FOLDER]

The service runs in a process of its own, and the clients in this one. The waiting jobs are copies of one that was submitted and prepared:
rows and events like those of any other. A watcher's delay is the time from the moment that is written in an event to its arrival, so it
holds the transaction, the service's looking, its sending and this process's reading.

With the folder of file-based data sets, the training of the largest one is submitted too, while no worker has read it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from sqlalchemy import insert, select

from tests.app.jobs_harness import AUTHORIZED, environment, postgresql_server, settings, spec
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.database import Base, Database, new_id
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobEventRow, JobRow
from zetadp.trainer.specs.report import Progress

JOBS, CALLS = 5000, 200
LARGEST = "phase_mnist"
"""The recipe whose data set takes longest to read."""
LISTING_SECONDS, SUBMITTING_SECONDS, LARGEST_SECONDS, DELAY_SECONDS = 0.05, 0.1, 0.3, 1.0
"""Targets for 95 of 100."""
AT_ONCE = 500
WATCHERS, EVENTS, EVENT_SECONDS = 200, 60, 0.5


def p95(seconds: list[float]) -> float:
    """The value that 95 of 100 stay below."""
    return statistics.quantiles(seconds, n=20)[-1]


@contextmanager
def service(of: Settings) -> Generator[str]:
    """The address of a service in a process of its own."""
    variables = {**os.environ, **environment(of), "ZETADP_LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own command)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("zetadp is at "):
                    yield line.removeprefix("zetadp is at ").strip()
                    break
        finally:
            process.terminate()


def timed(call: Callable[[], httpx2.Response], times: int) -> list[float]:
    """Seconds of each call."""
    found: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        call().raise_for_status()
        found.append(time.perf_counter() - begun)
    return found


async def watch(address: str, job_id: str, events: int) -> list[float]:
    """Seconds of delay of each of the first so many progress events."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    lines = [f"GET /v1/jobs/{job_id}/events HTTP/1.1", f"Host: {place.netloc}", *(f"{name}: {value}" for name, value in AUTHORIZED.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    delays: list[float] = []
    while len(delays) < events and (line := await reader.readline()):
        if line.startswith(b"data: ") and b'"event":"progress"' in line:
            moment = datetime.fromisoformat(json.loads(line.removeprefix(b"data: "))["time"])
            delays.append(time.time() - moment.timestamp())
    writer.close()
    return delays


async def watched(address: str, of: Settings, job_id: str) -> list[float]:
    """All watchers' delays, while a worker's side writes events."""
    database = Database(of)
    token = Leases(database, 3).take(Executor(id="bench", host="bench", device="auto", hardware="none", lease_seconds=3600.0))
    attempts = Attempts(database, 3)
    attempt = attempts.start_next(token, Capacity())
    assert attempt is not None
    assert attempt.job_id == job_id
    watchers = [asyncio.create_task(watch(address, job_id, EVENTS)) for _ in range(WATCHERS)]
    await asyncio.sleep(5.0)  # all of them are connected
    for step in range(1, EVENTS + 1):
        event = Progress(step=step, steps=EVENTS, epsilon=0.1, delta=1e-5, seconds=1.0)
        await asyncio.to_thread(attempts.record, attempt, [event], 1.0)
        await asyncio.sleep(EVENT_SECONDS)
    attempts.stopped(attempt)
    database.close()
    return [delay for delays in await asyncio.gather(*watchers) for delay in delays]


def filled(of: Settings, job_id: str, count: int) -> None:
    """Prepare this job, and store so many copies of it, with a label each in ten share."""
    database = Database(of)
    prepare_all(database)
    with database.reading() as session:
        job = columns(session.get_one(JobRow, job_id))
        events = [columns(row) for row in session.scalars(select(JobEventRow).where(JobEventRow.job_id == job_id))]
    for first in range(0, count, AT_ONCE):
        ids = [new_id() for _ in range(min(AT_ONCE, count - first))]
        with database.writing() as session:
            session.execute(insert(JobRow), [job | {"id": one, "labels": {"number": str(k % 10)}} for k, one in enumerate(ids)])
            session.execute(insert(JobEventRow), [event | {"job_id": one} for one in ids for event in events])
    database.close()


def columns(row: Base) -> dict[str, object]:
    """The row's values, by column."""
    return {column.key: getattr(row, column.key) for column in type(row).__table__.columns}


def told(which: str, what: str, seconds: list[float], target: float) -> bool:
    """Print the times of these calls; whether the target is met."""
    found = f"p50 {statistics.median(seconds) * 1000:.1f} ms, p95 {p95(seconds) * 1000:.1f} ms, worst {max(seconds) * 1000:.1f} ms"
    print(f"{which}: {what}: {found} (target p95 {target * 1000:.0f} ms)", flush=True)  # noqa: T201
    return p95(seconds) <= target


def run(which: str, jobs: int, data_sets: Path | None) -> bool:
    """One database; whether all targets are met."""
    with (
        tempfile.TemporaryDirectory(prefix="zetadp-jobs-") as folder,
        postgresql_server() if which == "postgresql" else nullcontext(None) as url,
    ):
        changes = {"database_url": url, "event_poll_seconds": 0.2, "data_sets_dir": data_sets}
        of = Settings.model_validate(settings(Path(folder)).model_dump() | changes)
        met: list[bool] = []
        with service(of) as address, httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=60.0) as client:

            def submit() -> httpx2.Response:
                return client.post("/v1/jobs", json={"spec": spec(), "labels": {"number": "0"}})

            first = submit().raise_for_status().json()["id"]
            filled(of, first, jobs - 1)
            waiting = f"{jobs} queued jobs"
            for name, query in (("50 of them", {}), ("by state", {"state": "queued"}), ("by label", {"label": "number=3"})):
                seconds = timed(lambda query=query: client.get("/v1/jobs", params=query), CALLS)
                met.append(told(which, f"{waiting}, listing {name}", seconds, LISTING_SECONDS))
            met.append(told(which, f"{waiting}, submitting", timed(submit, CALLS), SUBMITTING_SECONDS))
            if data_sets is not None:
                largest = client.get(f"/v1/recipes/{LARGEST}").raise_for_status().json()["spec"]
                seconds = timed(lambda: client.post("/v1/jobs", json={"spec": largest}), CALLS)
                met.append(told(which, f"{waiting}, submitting {LARGEST}", seconds, LARGEST_SECONDS))
            urgent = client.post("/v1/jobs", json={"spec": spec(), "priority": 100}).raise_for_status().json()["id"]
            database = Database(of)
            prepare_all(database)
            database.close()
            delays = asyncio.run(watched(address, of, urgent))
        met.append(
            told(which, f"{WATCHERS} watchers of one job, {len(delays)} of {WATCHERS * EVENTS} events, delay", delays, DELAY_SECONDS)
        )
        return all(met) and len(delays) == WATCHERS * EVENTS


def main() -> None:
    """Run and print; ends with 1 where a target is missed."""
    configure_logs("error")
    parser = argparse.ArgumentParser(description="List and submit jobs while thousands wait, and let two hundred watch one.")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many wait")
    parser.add_argument("--data-sets", type=Path, help=f"where the files of {LARGEST} are; without it that isn't submitted")
    options = parser.parse_args()
    met = [run(which, options.jobs, options.data_sets) for which in options.database or ("sqlite", "postgresql")]
    raise SystemExit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
