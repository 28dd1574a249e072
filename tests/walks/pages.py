r"""A browser that can reach nothing but this machine, and what it has to complain of on a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app import jobs_harness as harness
from tests.app.forked import Command
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The shell draws the same pages and has no windows: a walk takes it a fraction of the processor time."""
NO_BROWSER = "no Chromium: `apt-get install chromium-headless-shell` (Debian), or any chromium on the PATH"
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


@dataclass
class Service:
    """A service in a process of its own that can be ended and started again at the same address, with the harness's keys and settings."""

    settings: Settings
    port: int = 0
    starts: int = 0
    process: Command | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        variables = {**os.environ, **harness.environment(self.settings), "ZETADP_LOG_LEVEL": "warning"}
        self.starts += 1
        folder = self.settings.data_dir / f"service {self.starts}"
        self.process = Command(folder, "serve", "--port", str(self.port), env=variables)
        self.port = int(self.process.first_line().rsplit(":", 1)[1])
        # It listens before it has made its tables, and answers after.
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=5), timeout=harness.WAIT_SECONDS) as client:
            client.get(f"{self.address}/livez").raise_for_status()

    def end(self) -> None:
        """At once, as a machine that loses its power."""
        assert self.process is not None
        self.process.kill()

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


def new_key(service: Service, tenant: str, *scopes: Scope) -> str:
    database = Database(service.settings)
    try:
        return KeyService(database).create(tenant, "walks", scopes, None).text
    finally:
        database.close()


def keep_key(page: Any, key: str = harness.ADMIN_KEY) -> None:
    """Types the key as its owner would."""
    page.click("#key")
    page.fill("#key-input", key)
    page.click("#key-form button[value=keep]")


def give_key(page: Any, address: str, key: str) -> None:
    """As if it had been typed before on this tab: for walks that are about something else."""
    page.goto(f"{address}/livez")
    page.evaluate("(key) => sessionStorage.setItem('zetadp-key', key)", key)


@contextmanager
def browser() -> Generator[Any]:
    """Chromium; where there is none the test is skipped, on CI it fails."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed, and on CI it has to be")
        pytest.skip(NO_BROWSER)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--renderer-process-limit=1", ALONE])
        try:
            found.on("context", lambda context: context.set_default_timeout(1000 * harness.WAIT_SECONDS))
            yield found
        finally:
            found.close()
