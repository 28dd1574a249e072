r"""A browser that can reach nothing but this machine, and what it has to complain of on a page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.settings import Settings
from tests.app import jobs_harness as harness

CHROMIUM = shutil.which("chromium")
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
PHONE, DESK = 390, 1280


@dataclass
class Complaints:
    """Everything that went wrong on a page, each in a line."""

    lines: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def watch(self, page: Any) -> None:
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.lines.append(f"script: {error}"))
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("requestfailed", self._failed)

    def _said(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.lines.append(f"console: {message.text}")

    def _failed(self, request: Any) -> None:
        # A request that a newer one made needless was taken back by the page itself.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.lines.append(f"request: {request.url} {request.failure}")


@contextmanager
def serving_pages(folder: Path, **settings: str) -> Generator[tuple[str, str]]:
    """(address, admin key) of a service of its own."""
    environment = {**os.environ, "ZETADP_DATA_DIR": str(folder), "ZETADP_LOG_LEVEL": "warning", **settings}
    command = [sys.executable, "-m", "app", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = key = ""
        while not (address and key):
            line = process.stdout.readline()
            assert line, "the service ended before it said where it is"
            if line.startswith("zetadp is at "):
                address = line.removeprefix("zetadp is at ").strip()
            if "admin key" in line:
                key = line.rsplit(" ", 1)[-1].strip()
        yield address, key
    finally:
        process.terminate()
        process.wait(harness.WAIT_SECONDS)
        process.stdout.close()


@dataclass
class Service:
    """A service in a process of its own that can be ended and started again at the same address, with the harness's keys and settings."""

    settings: Settings
    port: int = 0
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "app", "serve", "--port", str(self.port)]
        variables = {**os.environ, **harness.environment(self.settings), "ZETADP_LOG_LEVEL": "warning"}
        self.process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("zetadp is at "), "the service ended before it said where it is"
        self.port = int(line.rsplit(":", 1)[1])

    def end(self) -> None:
        """At once, as a machine that loses its power."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def client(self, key: str = harness.ADMIN_KEY) -> httpx2.Client:
        return httpx2.Client(base_url=self.address, timeout=harness.WAIT_SECONDS, headers={"Authorization": f"Bearer {key}"})


@contextmanager
def serving_jobs(folder: Path) -> Generator[Service]:
    """A service, and a worker whose child only pretends to train."""
    service = Service(harness.settings(folder))
    service.start()
    try:
        with harness.working(service.settings):
            yield service
    finally:
        service.end()


def keep_key(page: Any, key: str = harness.ADMIN_KEY) -> None:
    """Types the key as its owner would."""
    page.click("#key")
    page.fill("#key-input", key)
    page.click("#key-form button[value=keep]")


@contextmanager
def browser() -> Generator[Any]:
    """Chromium; where there is none the test is skipped, on CI it fails."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed, and on CI it has to be")
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", ALONE])
        try:
            found.on("context", lambda context: context.set_default_timeout(1000 * harness.WAIT_SECONDS))
            yield found
        finally:
            found.close()
