r"""The service over loopback: a profile against an empty answer to the same body, and the memory of the process.

The server is the real application in a process of its own, with one more route that takes the same request and does nothing. No two
profile requests are alike, so that none is answered from memory; what memory does for repeated ones stands beside.
"""

from __future__ import annotations

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
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare import goal

REQUESTS = 400
EMPTY, PROFILES = "/empty", "/v1/profiles"


def run() -> Iterator[str]:
    """The report's lines."""
    with _server() as (connection, process):
        for path in (EMPTY, PROFILES):
            for i in range(50):
                _post(connection, path, _body(-1 - i))
        empty, fresh, repeated = [], [], []
        for i in range(REQUESTS):
            empty.append(_post(connection, EMPTY, _body(i)))
            fresh.append(_post(connection, PROFILES, _body(i)))
            repeated.append(_post(connection, PROFILES, _body(0)))
        p50 = [1e3 * statistics.median(times) for times in (empty, fresh, repeated)]
        yield f"service, row 6, p50 over loopback: empty {p50[0]:.3f} ms, profile {p50[1]:.3f} ms, the same profile again {p50[2]:.3f} ms"
        yield goal("service, profile / empty", p50[1] / p50[0], 3.0, at_most=True)
        yield goal("service, memory at its highest", _highest_memory(process), 300.0, "MB", at_most=True)


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
    assert response.status in (200, 204), response.status
    return duration


def _highest_memory(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    (kilobytes,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes) / 1000.0


@contextmanager
def _server() -> Iterator[tuple[http.client.HTTPConnection, subprocess.Popen[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.service", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            yield connection, process
            connection.close()
        finally:
            process.terminate()
            process.wait(30)


def serve(folder: str, announce: Callable[[int], None]) -> None:
    """Runs the server until it is told to stop."""
    # Only the server's process needs these, and its memory is measured.
    import uvicorn
    from fastapi import Response

    from zetadp.app.calculators.schemas import ProfileRequest
    from zetadp.app.kit.settings import Settings
    from zetadp.app.main import create_app

    def nothing(request: ProfileRequest) -> Response:  # noqa: ARG001 - the body is read and checked
        return Response(status_code=204)

    # The annotation must be found by FastAPI, which looks it up among the module's names.
    nothing.__annotations__ = {"request": ProfileRequest, "return": Response}
    application = create_app(Settings(data_dir=Path(folder), requests_per_address="1000000000/minute"))
    application.router.routes.insert(0, application.router.route_class(EMPTY, nothing, methods=["POST"]))
    # With its protocol named asyncio turns Nagle's algorithm off; otherwise answers in two packets wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    announce(listener.getsockname()[1])
    uvicorn.Server(uvicorn.Config(application, log_level="warning")).run(sockets=[listener])


def _announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    # Nobody reads on: lines about requests would fill the pipe, and the server would wait for ever.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    serve(sys.argv[1], _announce)
