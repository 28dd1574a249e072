"""The documentation page in a real browser that can reach nothing but this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    environment = {**os.environ, "ZETADP_DATA_DIR": str(tmp_path_factory.mktemp("docs")), "ZETADP_LOG_LEVEL": "warning"}
    process = subprocess.Popen([sys.executable, "-m", "app", "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().removeprefix("zetadp is at ").strip()
    process.terminate()
    process.wait(20)
    process.stdout.close()


@pytest.fixture(scope="module")
def visit(address, tmp_path_factory):
    """(the page as the browser drew it, what it logged), with every other host unresolvable."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed, and on CI it has to be")
        pytest.skip("chromium is not installed")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={tmp_path_factory.mktemp('browser')}",
        "--virtual-time-budget=10000",
        "--dump-dom",
        f"{address}/docs",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout, done.stderr


def test_every_calculator_is_drawn(visit):
    page, _ = visit
    for path in ("/v1/profiles", "/v1/calibrations", "/v1/compare/complex_gaussian", "/v1/jobs"):
        assert f'data-path="{path}"' in page


def test_nothing_fails_to_load(visit):
    _, log = visit
    assert [text for text in log.splitlines() if "CONSOLE" in text] == []
