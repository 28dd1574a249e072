"""Getting started, as somebody who is new does: every line of the page is typed, in its order, into a shell.

The README's walk types the same lines, and a test of documents holds the page to them.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from statistics import NormalDist

import httpx2
import pytest

from zetadp.app.web.start import STEPS

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of somebody who has zetadp's Python before all others, and a port of their own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {name: value for name, value in os.environ.items() if name not in {"ZETADP_KEY", "ZETADP_ADMIN_KEY"}} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ZETADP_DATA_DIR": str(tmp_path_factory.mktemp("data")),
        "ZETADP_PORT": str(port),
        "ZETADP_LOG_LEVEL": "warning",
    }


@pytest.fixture(scope="module")
def started(environment: dict[str, str]) -> Generator[tuple[str, str]]:
    """(address, key) as the first step prints them."""
    lines = next(step.lines for step in STEPS if step.name == "serve")
    process = subprocess.Popen(["bash", "-c", f"exec {lines}"], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("zetadp is at ").strip()
    process.stdout.readline()
    key = process.stdout.readline().rsplit(" ", 1)[-1].strip()
    yield address, key
    process.terminate()
    process.wait(120)
    process.stdout.close()


@pytest.fixture(scope="module")
def shown(started: tuple[str, str]) -> dict[str, str]:
    """The lines of each step, as the page shows them."""
    text = httpx2.get(f"{started[0]}/start").text
    return {name: html.unescape(lines) for name, lines in re.findall(r'<pre id="step-(\w+)"[^>]*>(.*?)</pre>', text, re.DOTALL)}


@pytest.fixture(scope="module")
def told(
    started: tuple[str, str], shown: dict[str, str], environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What each step prints in one shell, one after the other; none of them may fail."""
    names = [name for name in shown if name != "serve"]
    typed = [f"echo '== {name}'\n{shown[name].replace('zdp_...', started[1])}\necho" for name in names]
    script = "\n".join(["set -euo pipefail", *typed])
    place = tmp_path_factory.mktemp("typed")
    done = subprocess.run(["bash", "-c", script], env=environment, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(zip(names, re.split(r"^== \w+\n", done.stdout, flags=re.MULTILINE)[1:], strict=True))


def test_the_first_figure_is_the_guarantee_of_that_noise(told: dict[str, str]) -> None:
    [point] = json.loads(told["profile"])["delta"]
    # Balle and Wang 2018, eq. (6): Phi(-1.75) - e Phi(-2.25) for std 2 and sensitivity 1 at epsilon 1.
    normal = NormalDist()
    assert point["upper"] == pytest.approx(normal.cdf(-1.75) - math.e * normal.cdf(-2.25), rel=1e-6)


def test_the_certificate_is_told_in_words_and_verifies_offline(told: dict[str, str]) -> None:
    assert "epsilon" in told["certificate"]
    assert "VALID" in told["verify"].upper()
    assert "FAIL" not in told["verify"]
