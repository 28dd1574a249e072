r"""What cheap questions and health checks wait for while others ask expensive ones: idle, and under attack.

The service is ``zetadp serve`` in its own processes. Attackers have no key and, by default, an address of loopback each. They send profiles
of 60 different mechanisms, one after another, no two alike, and send again at once what is refused. The measured client asks for profiles
that nobody asked before, and ``/livez``, with pauses. Run ``python -m benchmarks.starvation [ATTACKERS [SECONDS [ADDRESSES]]]``; further
arguments go to ``zetadp serve``.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MECHANISMS = 60
PAUSE_SECONDS = 0.01
PROFILES = "/v1/profiles"
DRAW = random.Random()  # noqa: S311 - nothing is kept secret with it


def run(attackers: int = 100, seconds: float = 20.0, addresses: int = 250) -> Iterator[str]:
    """The report's lines."""
    with _service() as port:
        _measured(port, 2.0)
        idle = _measured(port, seconds)
        answers: multiprocessing.Queue[dict[int, int]] = multiprocessing.Queue()
        attack = multiprocessing.Process(target=_attack, args=(port, attackers, addresses, seconds + 4.0, answers))
        attack.start()
        time.sleep(3.0)
        attacked = _measured(port, seconds)
        statuses = answers.get(timeout=120)
        attack.join()
    for path in (PROFILES, "/livez"):
        rows = [(kind, sorted(times[path])) for kind, times in (("idle", idle), (f"{attackers} attackers", attacked))]
        for kind, times in rows:
            p50, p99, worst = (_ms(times, share) for share in (0.5, 0.99, 1.0))
            yield f"starvation, {path}, {kind}: {len(times)} answers, p50 {p50}, p99 {p99}, worst {worst}"
        yield f"starvation, {path}, p99 under attack / idle: {_quantile(rows[1][1], 0.99) / _quantile(rows[0][1], 0.99):.2f}"
    yield f"starvation, attackers' answers by status: {dict(sorted(statuses.items()))}"


def _quantile(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def _ms(times: list[float], share: float) -> str:
    return f"{1e3 * _quantile(times, share):.1f} ms"


def _measured(port: int, seconds: float) -> dict[str, list[float]]:
    """Times of answers, in seconds, by path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    times: dict[str, list[float]] = {PROFILES: [], "/livez": []}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for path, taken in times.items():
            begun = time.perf_counter()
            if path == PROFILES:
                connection.request("POST", path, _cheap(), {"Content-Type": "application/json"})
            else:
                connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            taken.append(time.perf_counter() - begun)
            assert answer.status == 200, answer.status
            time.sleep(PAUSE_SECONDS)
    connection.close()
    return times


def _release(std: float) -> dict[str, object]:
    sensitivity = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
    return {"kind": "release", "mechanism": {"kind": "gaussian", "std": std, "sensitivity": sensitivity}}


def _cheap() -> bytes:
    event = {
        "kind": "repeated",
        "count": 1000,
        "event": {"kind": "poisson_sampled", "probability": 0.01, "event": _release(1 + DRAW.random())},
    }
    return json.dumps({"event": event, "deltas": [1e-5]}).encode()


def _expensive(draw: random.Random) -> bytes:
    events = [
        {
            "kind": "repeated",
            "count": 100,
            "event": {"kind": "poisson_sampled", "probability": draw.uniform(0.001, 0.05), "event": _release(draw.uniform(0.7, 4.0))},
        }
        for _ in range(MECHANISMS)
    ]
    return json.dumps({"event": {"kind": "composed", "events": events}, "deltas": [1e-5, 1e-6, 1e-7], "epsilons": [0.5, 1.0, 2.0]}).encode()


def _attack(port: int, attackers: int, addresses: int, seconds: float, answers: multiprocessing.Queue[dict[int, int]]) -> None:
    statuses: Counter[int] = Counter()
    ends = time.monotonic() + seconds

    async def one(number: int) -> None:
        draw = random.Random(number)  # noqa: S311 - nothing is kept secret with it
        while time.monotonic() < ends:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.1.1.{1 + number % addresses}", 0))
                while time.monotonic() < ends:
                    body = _expensive(draw)
                    writer.write(
                        b"POST /v1/profiles HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                        % len(body)
                        + body
                    )
                    head = await reader.readuntil(b"\r\n\r\n")
                    statuses[int(head.split()[1])] += 1
                    length = int(next(line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length")))
                    await reader.readexactly(length)
                    if b"connection: close" in head.lower():
                        break
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                statuses[0] += 1
                await asyncio.sleep(0.05)

    async def everyone() -> None:
        await asyncio.wait([asyncio.create_task(one(number)) for number in range(attackers)], timeout=seconds)

    asyncio.run(everyone())
    answers.put(dict(statuses))


@contextmanager
def _service() -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "ZETADP_DATA_DIR": folder,
            "ZETADP_LOG_LEVEL": "error",
            "ZETADP_REQUESTS_PER_ADDRESS": "1000000/minute",
        }
        command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", *sys.argv[4:]]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)  # noqa: S603
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rsplit(":", 1)[1])
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    for line in run(*(int(text) for text in sys.argv[1:4])):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
