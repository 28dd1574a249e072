"""``zetadp train``: a program of the caller's, run with its progress, its results and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from zetadp.app.cli import app  # noqa: E402
from zetadp.mechanisms.numerics.rounding import fixed_up  # noqa: E402

PROGRAM = """
import os, signal, sys
from functools import partial
import torch, zetadp
from torch import nn

print("arguments", sys.argv[1:])
torch.manual_seed(0)
signals, labels = torch.randn(100, 6), torch.randint(0, 2, (100,))


def watch(progress):
    if "stop" in sys.argv and progress.step < 30:
        os.kill(os.getpid(), signal.SIGINT)


zetadp.train(
    nn.Linear(6, 2), nn.CrossEntropyLoss(), (signals, labels), noise_multiplier=1.0, delta=1e-5, unit="record", clipping_bound=1.0,
    expected_batch_size=10, steps=30, optimizer=partial(torch.optim.SGD, lr=0.1), folder="run", callback=watch)
"""
Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The exit code of ``zetadp train``, in this process, which has torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZETADP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def train(program: str, *arguments: str, options: tuple[str, ...] = ()) -> int:
        Path("program.py").write_text(program)
        return int(app(["train", *options, "program.py", *arguments], standalone_mode=False))

    return train


def test_stdout_is_one_object_and_the_programs_own_prints_go_to_stderr(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(PROGRAM, "--json", "3", options=("--json",)) == 0
    out, err = capfd.readouterr()
    [training] = json.loads(out)["trainings"]
    epsilon = training.pop("epsilon")
    assert 1.0 < epsilon < 20.0
    assert training == {
        "folder": "run",
        "certificate": "run/certificate.json",
        "delta": 1e-5,
        "steps": 30,
        "steps_released": 30,
        "stopped_early": False,
    }
    assert Path("run/certificate.json").exists()
    assert "arguments ['--json', '3']" in err  # what comes after the file is the program's
    assert f"step 30/30  epsilon {fixed_up(epsilon, 4)} at delta 1e-05 spent" in err


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(PROGRAM, "stop") == 130
    out, err = capfd.readouterr()
    assert "which is in the checkpoint in run. To go on: zetadp train program.py stop" in err
    assert out == "arguments ['stop']\n"
    assert not Path("run/certificate.json").exists()
    assert run(PROGRAM) == 0
    out, err = capfd.readouterr()
    assert "continued from the checkpoint at step" in err
    assert "run/certificate.json: epsilon" in out


ENDS = {
    "refused": (
        PROGRAM.replace("expected_batch_size=10", "expected_batch_size=101"),
        2,
        "program.py:17: expected_batch_size must be <= the",
    ),
    "out of range": (PROGRAM.replace("delta=1e-5", "delta=2.0"), 2, "program.py:17: delta must be < 1, got 2.0"),
    "fails": ("def f():\n    raise ValueError('mine')\nf()", 1, "ValueError: mine"),
    "isn't Python": ("print('", 1, "SyntaxError"),
    "exits": ("raise SystemExit(7)", 7, ""),
    "says why": ("raise SystemExit('no data here')", 1, "no data here"),
    "trains nothing": ("print(1)", 0, "ended without a certificate"),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_exit_code_is_the_programs_own_and_errors_show_its_lines_alone(name: str, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    program, code, words = ENDS[name]
    assert run(program) == code
    err = capfd.readouterr().err
    assert words in err
    assert "runpy" not in err
    assert "cli/local/train.py" not in err


def test_a_file_that_isnt_there_is_named(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert app(["train", "nowhere.py"], standalone_mode=False) == 2
    assert "nowhere.py: no such file" in capfd.readouterr().err


@pytest.mark.slow
def test_a_real_ctrl_c_ends_a_real_command(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("steps=30", "steps=20000"))
    environment = os.environ | {"ZETADP_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "zetadp", "train", "program.py"]
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=file)
    deadline = time.monotonic() + 120.0
    while "/20000" not in errors.read_text():
        assert process.poll() is None, errors.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "To go on: zetadp train program.py" in errors.read_text()
