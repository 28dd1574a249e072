"""The README, as somebody who is new does it: the service runs, every other line is typed in its order, as it stands there.

By default the walk of the command line starts a service and trains; here it is slow.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from statistics import NormalDist

import pytest

from tests.app.documents import README, ROOT, blocks

pytest.importorskip("torch")

USUAL = "http://127.0.0.1:8000"
PATIENT = {"ZETADP_CALCULATION_WAIT_SECONDS": "300"}
"""Beside other work the calculating processes may take long to start."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout, as far as the lines see one: its `.venv` has python, which knows zetadp, and the command."""
    place = tmp_path_factory.mktemp("readme")
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("zetadp", "-m zetadp")):
        (programs / name).write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o700)
    return place


@pytest.fixture(scope="module")
def service(folder: Path) -> Generator[tuple[str, str, dict[str, str]]]:
    """(address, key, environment) of a service as `make serve` runs it, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ZETADP_")}
    environment = plain | {"ZETADP_DATA_DIR": str(folder / "data"), "ZETADP_PORT": str(port), "ZETADP_LOG_LEVEL": "warning"} | PATIENT
    command = [str(folder / ".venv/bin/zetadp"), "serve", "--with-worker"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("zetadp is at ").strip()
    process.stdout.readline()
    key = process.stdout.readline().rsplit(" ", 1)[-1].strip()
    yield address, key, environment
    process.terminate()
    process.wait(120)
    process.stdout.close()


@pytest.fixture(scope="module")
def told(folder: Path, service: tuple[str, str, dict[str, str]]) -> list[str]:
    """What each block prints, but for those that call make alone; they are typed in one shell, and none of them may fail."""
    address, key, environment = service
    typed = [block for block in blocks(README, "sh") if not all(line.startswith("make ") for line in block.splitlines())]
    assert len(typed) == 2
    # The only differences: the port, and the key that was printed.
    lines = "\necho; echo ==\n".join(typed).replace(USUAL, address).replace("zdp_...", key)
    environment = environment | {"ZETADP_ADDRESS": address}
    script = f"set -euo pipefail\n{lines}"
    done = subprocess.run(["bash", "-c", script], env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\n==\n")


@pytest.mark.slow
def test_the_answer_over_http_is_the_guarantee_of_that_noise(told: list[str]) -> None:
    [point] = json.loads(told[0])["delta"]
    # Balle and Wang 2018, eq. (6): Phi(-1.75) - e Phi(-2.25) for std 2 and sensitivity 1 at epsilon 1.
    normal = NormalDist()
    assert point["upper"] == pytest.approx(normal.cdf(-1.75) - math.e * normal.cdf(-2.25), rel=1e-6)


@pytest.mark.slow
def test_the_certificate_verifies(told: list[str], folder: Path) -> None:
    assert "VALID" in told[1].upper()
    assert "INVALID" not in told[1].upper()
    assert "FAIL" not in told[1]
    assert json.loads((folder / "job.json").read_text())["state"] == "succeeded"


def test_the_python_snippet_prints_noise_that_is_enough_and_no_more() -> None:
    snippet, _ = blocks(README, "python")  # the other one, which trains, runs with all pages' snippets
    done = subprocess.run([sys.executable, "-W", "error", "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=True)
    # 1.4146: the same event by `zetadp calibrate --accountant pld`, a second opinion.
    noise, lower, upper, route = done.stdout.split()
    assert float(noise) == pytest.approx(1.4146, rel=1e-4)
    assert 0.999 < float(lower.removeprefix("lower=")) <= float(upper.removeprefix("upper=")) <= 1.0
    assert route == "route='contour'"
