r"""Fires generated requests at a service in a process of its own: ``python -m benchmarks.fuzz [--requests 100000] [--seconds 600]``.

Half of them are what schemathesis makes of the service's own description, fitting and not; the other half are those with bytes changed,
in body, path, query and headers. Counted are answers of 500 and above, of which there must be none, and what memory the service has at a
fifth, three fifths and the end, which must not grow by more than a tenth. Operations that take long come less often, so all get their turn.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as run_settings
from schemathesis.generation import GenerationMode

from benchmarks.fuzz_shots import Shot, changed
from tests.app.jobs_harness import AUTHORIZED, environment, settings, spec
from tests.app.ledgers_harness import definition, gaussian
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

POOL = 12
"""Requests of each kind that an operation's variants are made of."""
SENDERS = 6
PATIENCE_SECONDS = 60.0
STREAMS = ("/events", "/logs", "/metrics/stream")


@dataclass
class Score:
    """What came back, and what it cost."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    operations: Counter[str] = field(default_factory=Counter[str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    failed: list[tuple[Shot, int, str]] = field(default_factory=list[tuple[Shot, int, str]])
    unanswered: int = 0


def operations() -> dict[str, Any]:
    """Every operation that the service describes, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        document = create_app(Settings(data_dir=Path(folder))).openapi()
    found = (each.ok() for each in schemathesis.openapi.from_dict(document).get_all_operations())
    return {f"{each.method.upper()} {each.path}": each for each in found}


def generated(name: str, operation: Any, count: int, address: str) -> list[Shot]:
    """Requests that schemathesis makes of the description: so many that fit, and as many that don't, where that is possible."""
    shots: list[Shot] = []
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @run_settings(
            max_examples=count,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def collect(case: Any) -> None:
            made = case.as_transport_kwargs(base_url=address)
            wanted = ("method", "url", "headers", "params", "json", "data", "cookies")
            try:
                request = requests.Request(**{key: made[key] for key in wanted if key in made}).prepare()
            except (ValueError, requests.RequestException):
                return  # no client could send it like that
            parts = urlsplit(str(request.url))
            body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode("utf-8", "surrogatepass")
            kept = tuple(
                (key, value if isinstance(value, bytes) else value.encode("latin-1", "replace"))
                for key, value in request.headers.items()
                if key.lower() not in ("content-length", "transfer-encoding", "host", "authorization")
            )
            shots.append(Shot(name, str(request.method), parts.path + ("?" + parts.query if parts.query else ""), kept, body))

        try:
            collect()
        except Exception as error:  # an operation without parameters has nothing that doesn't fit
            if mode is GenerationMode.POSITIVE:
                sys.stderr.write(f"{name}: {type(error).__name__}\n")
    return shots


def send(connection: socket.socket, shot: Shot, host: str) -> tuple[int, str, bool]:
    """(status, the beginning of the answer, whether the connection stays). Raises OSError or HTTPException."""
    given = {key.lower() for key, _ in shot.headers}
    lines = [f"{shot.method} {shot.target} HTTP/1.1".encode("latin-1", "replace")]
    if "host" not in given:
        lines.append(b"Host: " + host.encode())
    if "authorization" not in given:
        lines.append(b"Authorization: " + AUTHORIZED["Authorization"].encode())
    lines += [key.encode("latin-1", "replace") + b": " + value.replace(b"\r", b"").replace(b"\n", b"") for key, value in shot.headers]
    lines.append(b"Content-Length: " + str(len(shot.body)).encode())
    connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + shot.body)
    response = http.client.HTTPResponse(connection, method=shot.method)
    response.begin()
    # A stream of a job that waits, since another request has retried it, would never end.
    is_stream = shot.operation.endswith(STREAMS) and response.status == 200
    content = b"" if is_stream else response.read()
    stays = not response.will_close and not is_stream
    response.close()
    return response.status, content[:300].decode("utf-8", "replace"), stays


class Gun:
    """Senders that choose what comes next, and count what comes back."""

    def __init__(self, address: str, pools: dict[str, list[Shot]], places: list[dict[str, str]], seed: int) -> None:
        place = urlsplit(address)
        self._server, self._host = (str(place.hostname), int(place.port or 80)), place.netloc
        self._pools, self._places, self._seed = pools, places, seed
        self._lock = threading.Lock()
        self._left = 0
        self._deadline = 0.0
        self.score = Score()

    def fire(self, count: int, deadline: float) -> int:
        """So many requests, or as many as there is time for; how many were sent."""
        self._left, self._deadline = count, deadline
        senders = [threading.Thread(target=self._send_all, args=(self._seed + number,)) for number in range(SENDERS)]
        self._seed += SENDERS
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        return count - max(0, self._left)

    def _send_all(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 (which request comes next)
        connection: socket.socket | None = None
        while time.monotonic() < self._deadline:
            with self._lock:
                if self._left <= 0:
                    break
                self._left -= 1
                names = list(self._pools)
                weights = [1.0 / (0.003 + self.score.seconds.get(name, 0.003)) for name in names]
            shot = self._chosen(chance.choices(names, weights)[0], chance)
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = socket.create_connection(self._server, PATIENCE_SECONDS)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                status, text, stays = send(connection, shot, self._host)
            except (OSError, http.client.HTTPException):
                status, text, stays = 0, "", False
            if not stays and connection is not None:
                connection.close()
                connection = None
            self._count(shot, status, text, time.monotonic() - begun)
        if connection is not None:
            connection.close()

    def _chosen(self, name: str, chance: random.Random) -> Shot:
        shot = chance.choice(self._pools[name])
        if chance.random() < 0.6:
            # Ids of things that are there, in place of those that schemathesis made up.
            path, mark, query = shot.target.partition("?")
            parts, wanted = path.split("/"), name.split()[1].split("/")
            there = chance.choice(self._places)
            if len(parts) == len(wanted):
                parts = [
                    there.get(want.strip("{}"), part) if want.startswith("{") else part for part, want in zip(parts, wanted, strict=True)
                ]
            shot = Shot(shot.operation, shot.method, "/".join(parts) + mark + query, shot.headers, shot.body)
        return changed(shot, chance) if chance.random() < 0.5 else shot

    def _count(self, shot: Shot, status: int, text: str, seconds: float) -> None:
        with self._lock:
            score = self.score
            score.operations[shot.operation] += 1
            before = score.seconds.get(shot.operation, seconds)
            score.seconds[shot.operation] = 0.9 * before + 0.1 * seconds
            if status == 0:
                score.unanswered += 1
                return
            score.statuses[status] += 1
            if status >= 500:
                score.failed.append((shot, status, text))


@contextmanager
def service(of: Settings, log: Path) -> Generator[tuple[str, int]]:
    """Address and process id of a service in a process of its own."""
    variables = {**os.environ, **environment(of), "ZETADP_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0"]
    with log.open("wb") as errors, subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("zetadp is at "):
                    address = line.removeprefix("zetadp is at ").strip()
                    wait_for(address)
                    yield address, process.pid
                    break
        finally:
            process.terminate()


def wait_for(address: str) -> None:
    """Until the service answers."""
    for _ in range(600):
        try:
            if httpx2.get(f"{address}/livez").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service doesn't answer")


def resident(pid: int) -> float:
    """Megabytes of memory that the process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def places(address: str) -> list[dict[str, str]]:
    """Things that are there: a job that has ended, ledgers, a reservation, a key, an upload."""
    with httpx2.Client(base_url=address, headers=AUTHORIZED, timeout=60.0) as client:
        job = client.post("/v1/jobs", json={"spec": spec()}).json()["id"]
        client.post(f"/v1/jobs/{job}/cancel")
        found = []
        for protects in ("data_set", "each_user"):
            body = definition(name=protects, protects=protects).model_dump(mode="json") | {"budget": {"kind": "gdp", "mu": 5.0}}
            ledger = client.post("/v1/ledgers", json=body).json()["id"]
            users = {"users": {"names": ["ann"], "short_of_budget": "refuse"}} if protects == "each_user" else {}
            made = client.post(
                f"/v1/ledgers/{ledger}/reservations", json={"spend": gaussian(4.0, 9).model_dump(mode="json")} | users
            ).json()
            key = client.post("/v1/keys", json={"name": "fuzz", "scopes": ["submit"]}).json()["key"]["id"]
            upload = client.post(
                "/v1/uploads?format=csv&name=fuzz", content=b"a,b\n1,2\n", headers={"content-type": "application/octet-stream"}
            )
            upload_id = upload.json().get("id", "0") if upload.status_code < 300 else "0"
            named = {
                "job_id": job,
                "ledger_id": ledger,
                "reservation_id": made["id"],
                "user": "ann",
                "key_id": key,
                "upload_id": str(upload_id),
            }
            found.append(named | {"name": "digits", "kind": "gaussian", "row": "C3", "paper": "zeta_dp"})
        return found


def main() -> None:
    """Run and print; ends with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description="Fire generated requests at a real service.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so long, however many were sent.")
    parser.add_argument("--seed", type=int, default=1)
    given_ = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zetadp-fuzz-") as folder:
        limits = dict.fromkeys(("requests_per_key", "requests_per_address", "failures_per_address"), "100000000/minute")
        changes = {**limits, "calculation_seconds": 0.5, "batch_seconds": 1.0, "log_level": "warning"}
        of = Settings.model_validate(settings(Path(folder) / "data").model_dump() | changes)
        of.data_dir.mkdir()
        with service(of, Path(folder) / "log") as (address, pid):
            there = places(address)
            begun = time.monotonic()
            pools = {name: generated(name, each, POOL, address) for name, each in operations().items()}
            pools = {name: shots for name, shots in pools.items() if shots}
            told = f"{sum(map(len, pools.values()))} requests of {len(pools)} operations generated in {time.monotonic() - begun:.0f} s"
            print(told, flush=True)  # noqa: T201
            gun, memory, sent = Gun(address, pools, there, given_.seed), {}, 0
            begun = time.monotonic()
            for share in (0.2, 0.6, 1.0):
                sent += gun.fire(round(given_.requests * share) - sent, begun + given_.seconds * share)
                memory[share] = resident(pid)
                print(f"{sent} requests, {time.monotonic() - begun:.0f} s: {memory[share]:.0f} MiB", flush=True)  # noqa: T201
        complaints = Counter(
            json.loads(line).get("error_type") for line in (Path(folder) / "log").read_text().splitlines() if '"unhandled_error"' in line
        )
    score = gun.score
    growth = memory[1.0] / memory[0.2] - 1
    print(f"statuses: {dict(sorted(score.statuses.items()))}; connections that ended without an answer: {score.unanswered}")  # noqa: T201
    print(f"operations reached: {len(score.operations)} of {len(pools)}, the least {min(score.operations.values())} times")  # noqa: T201
    print(f"answers of 500 and above: {len(score.failed)}; errors in the log: {dict(complaints)}")  # noqa: T201
    for shot, status, text in score.failed[:30]:
        print(f"  {status} {shot.method} {shot.target[:200]} {shot.headers!r:.300} {shot.body[:400]!r} -> {text[:200]}")  # noqa: T201
    print(f"memory from a fifth to the end: {growth:+.1%}")  # noqa: T201
    raise SystemExit(0 if not score.failed and growth <= 0.1 else 1)


if __name__ == "__main__":
    main()
