r"""Lists a thousand waiting jobs and lets two hundred watch one. ``python -m benchmarks.jobs [--database sqlite|postgresql]``.

The service runs in a process of its own, and the clients in this one. A watcher's delay is the time from the moment that is written in an
event to its arrival, so it holds the transaction, the service's looking, its sending and this process's reading.
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

from tests.app.jobs_harness import AUTHORIZED, environment, postgresql_server, settings, spec
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.leases import Executor, Leases
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.trainer.specs.report import Progress

JOBS, LISTINGS = 1000, 200
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
    attempt = attempts.start_next(token, ("auto",))
    assert attempt is not None
    assert attempt.job_id == job_id
    watchers = [asyncio.create_task(watch(address, job_id, EVENTS)) for _ in range(WATCHERS)]
    await asyncio.sleep(5.0)  # all of them are connected
    for step in range(1, EVENTS + 1):
        told = Progress(step=step, steps=EVENTS, epsilon=0.1, delta=1e-5, seconds=1.0)
        await asyncio.to_thread(attempts.record, attempt, [told], 1.0)
        await asyncio.sleep(EVENT_SECONDS)
    attempts.stopped(attempt)
    database.close()
    return [delay for delays in await asyncio.gather(*watchers) for delay in delays]


def run(which: str) -> bool:
    """One database; whether both targets are met."""
    with (
        tempfile.TemporaryDirectory(prefix="zetadp-jobs-") as folder,
        postgresql_server() if which == "postgresql" else nullcontext(None) as url,
    ):
        changes = {"database_url": url, "event_poll_seconds": 0.2}
        of = Settings.model_validate(settings(Path(folder)).model_dump() | changes)
        with service(of) as address, httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=60.0) as client:
            for number in range(JOBS):
                body = {"spec": spec(), "labels": {"number": str(number % 10)}}
                client.post("/v1/jobs", json=body).raise_for_status()
            slowest = 0.0
            for name, query in (("50 of them", {}), ("by state", {"state": "queued"}), ("by label", {"label": "number=3"})):
                seconds = timed(lambda query=query: client.get("/v1/jobs", params=query), LISTINGS)
                slowest = max(slowest, p95(seconds))
                told = f"p50 {statistics.median(seconds) * 1000:.1f} ms, p95 {p95(seconds) * 1000:.1f} ms"
                print(f"{which}: {JOBS} queued jobs, listing {name}: {told}", flush=True)  # noqa: T201
            first = client.post("/v1/jobs", json={"spec": spec(), "priority": 100}).raise_for_status().json()["id"]
            delays = asyncio.run(watched(address, of, first))
        told = f"p50 {statistics.median(delays) * 1000:.0f} ms, p95 {p95(delays) * 1000:.0f} ms, worst {max(delays) * 1000:.0f} ms"
        print(f"{which}: {WATCHERS} watchers of one job, {len(delays)} of {WATCHERS * EVENTS} events: delay {told}", flush=True)  # noqa: T201
        return slowest <= 0.05 and p95(delays) <= 1.0 and len(delays) == WATCHERS * EVENTS


def main() -> None:
    """Run and print; ends with 1 where a target is missed."""
    configure_logs("error")
    parser = argparse.ArgumentParser(description="List a thousand waiting jobs and let two hundred watch one.")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    met = [run(which) for which in parser.parse_args().database or ("sqlite", "postgresql")]
    raise SystemExit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
