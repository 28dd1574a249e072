r"""The service over loopback: a profile against an empty endpoint of the same framework, and the memory of the process.

The service is the real application in a process of its own, whose calculating processes count as its own. The empty one is a bare FastAPI
application under the same server, in another process: one endpoint that reads the body of the same request and returns a constant. All are
asked in turn, some requests each, by one client. No two profile requests are alike, so that none is answered from memory; what memory does
for repeated ones stands beside. Processor time is that of all processes of a server, the client's not among it.
"""

from __future__ import annotations

import gc
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, final

from benchmarks.compare import goal

ROUNDS = 20
REQUESTS = 25
"""Of each kind in each round."""
PROFILES = "/v1/profiles"
KINDS = ("empty", "profile", "the same profile again")


@final
class _Server(NamedTuple):
    connection: http.client.HTTPConnection
    pid: int


def run() -> Iterator[str]:
    """The report's lines."""
    with _served("empty") as empty, _served("service") as service:
        peers = dict(zip(KINDS, (empty, service, service), strict=True))
        walls: dict[str, list[float]] = {kind: [] for kind in KINDS}
        used = dict.fromkeys(KINDS, 0.0)
        serial = 0
        for turn in range(-2, ROUNDS):
            for kind, server in peers.items():
                bodies = [_body(0 if kind == KINDS[2] else serial + i) for i in range(REQUESTS)]
                serial += REQUESTS
                before = _used_seconds(server.pid)
                times = [_post(server.connection, PROFILES, body) for body in bodies]
                if turn >= 0:  # the rounds before are for warming up
                    used[kind] += _used_seconds(server.pid) - before
                    walls[kind] += times
        wall = [1e3 * statistics.median(walls[kind]) for kind in KINDS]
        cpu = [1e3 * used[kind] / (ROUNDS * REQUESTS) for kind in KINDS]
        for name, (none, fresh, again) in (("p50 over loopback", wall), ("processor time of a request", cpu)):
            yield f"service, row 6, {name}: empty {none:.3f} ms, profile {fresh:.3f} ms, the same profile again {again:.3f} ms"
        yield goal("service, profile / empty, p50", wall[1] / wall[0], 1.8, at_most=True)
        yield goal("service, the same profile again / empty, p50", wall[2] / wall[0], 1.8, at_most=True)
        yield f"     processor time: profile / empty {cpu[1] / cpu[0]:.2f}, the same profile again / empty {cpu[2] / cpu[0]:.2f}"
        yield goal("service, memory at its highest", _highest_memory(service.pid), 300.0, "MB", at_most=True)


def _body(serial: int) -> bytes:
    """Row 6 of the work set, its multiplier changed in the last digits."""
    sensitivity = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
    release = {"kind": "release", "mechanism": {"kind": "gaussian", "std": 1.0 + 1e-12 * serial, "sensitivity": sensitivity}}
    event = {"kind": "repeated", "count": 10_000, "event": {"kind": "poisson_sampled", "probability": 0.01, "event": release}}
    return json.dumps({"event": event, "deltas": [1e-6]}).encode()


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> float:
    start = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    duration = time.perf_counter() - start
    assert response.status == 200, response.status
    return duration


def _used_seconds(pid: int) -> float:
    """Processor time that this process and all below it have used."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            number, rest = int(path.parent.name), path.read_text().rpartition(")")[2].split()
            parents[number], ticks[number] = int(rest[1]), int(rest[11]) + int(rest[12])
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += ticks[one]
        waiting += [child for child, parent in parents.items() if parent == one]
    return total / os.sysconf("SC_CLK_TCK")


def _highest_memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (kilobytes,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes) / 1000.0


@contextmanager
def _served(which: str) -> Iterator[_Server]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.service", which, folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            yield _Server(connection, process.pid)
            connection.close()
        finally:
            process.terminate()
            process.wait(30)


def serve(which: str, folder: str, announce: Callable[[int], None]) -> None:
    """Runs the server until it is told to stop."""
    # Only the servers' processes need these, and their memory is measured.
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    async def constant(request: Request) -> JSONResponse:
        await request.body()
        return JSONResponse({"epsilon": 1.0})

    gc.set_threshold(50_000)  # as ``zetadp serve`` has it, and more below
    if which == "empty":
        application = FastAPI()
        constant.__annotations__ = {"request": Request, "return": JSONResponse}  # FastAPI looks for names among the module's
        application.add_api_route(PROFILES, constant, methods=["POST"])
    else:
        from zetadp.app.kit.logs import configure_logs
        from zetadp.app.kit.settings import Settings
        from zetadp.app.main import create_app

        configure_logs("info")
        application = create_app(Settings(data_dir=Path(folder), requests_per_address="1000000000/minute"))
    # With its protocol named asyncio turns Nagle's algorithm off; otherwise answers in two packets wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    announce(listener.getsockname()[1])
    # But that connections wait for the other kinds' turns.
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=600
    )
    uvicorn.Server(config).run(sockets=[listener])


def _announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    # Nobody reads on: lines about requests would fill the pipe, and the server would wait for ever.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], _announce)
