"""``zetadp serve --processes``: several processes on one port, with one limit of requests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.app.jobs_harness import WAIT_SECONDS, wait_until

LIMIT = 20


def children(pid: int) -> set[int]:
    return {int(child) for listed in Path(f"/proc/{pid}/task").glob("*/children") for child in listed.read_text().split()}


def serving(pid: int) -> set[int]:
    """The processes that answer, which are those that Python spawned for it."""
    found = set()
    for child in children(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in command:
            found.add(child)
    return found


@pytest.mark.slow
def test_processes_share_a_port_and_a_limit_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    environment = os.environ | {"ZETADP_DATA_DIR": str(tmp_path / "data"), "ZETADP_REQUESTS_PER_ADDRESS": f"{LIMIT}/hour"}
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", "--processes", "2"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]

        def status(path: str) -> int:
            with httpx2.Client(base_url=address, timeout=WAIT_SECONDS) as client:
                return client.get(path).status_code

        with ThreadPoolExecutor(16) as several:
            statuses = list(several.map(status, ["/v1/accountants"] * 3 * LIMIT))
        assert (statuses.count(200), statuses.count(429)) == (LIMIT, 2 * LIMIT)
        before = serving(process.pid)
        assert len(before) == 2
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: len(serving(process.pid) - before) == 1)
        assert [status("/livez") for _ in range(8)] == [200] * 8
        assert status("/v1/accountants") == 429  # the counts outlive a process
        last = serving(process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in last))
