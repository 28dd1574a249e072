r"""The calculators on the command line, beyond what test_cli.py asks of every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.calculators_harness import TRAINING, release
from tests.app.forked import run_command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events")
    (path / "release.json").write_text(json.dumps(release()))
    (path / "training.json").write_text(json.dumps(TRAINING))
    return path


def test_a_delta_that_no_float_holds_is_answered(folder: Path) -> None:
    done = run_command("profile", str(folder / "release.json"), "--delta", "1e-400", "--json")
    entry = json.loads(done.stdout)["epsilon"][0]
    assert (entry["delta"], round(entry["upper"], 5)) == ("1e-400", 43.22191)


def test_infinite_epsilon_and_attackers_are_answered(folder: Path) -> None:
    text = run_command("profile", str(folder / "release.json"), "--epsilon", "inf", "--prior", "0.5", "--advantage").stdout
    assert "delta(inf) <= 0.0" in text
    assert "advantage of any attacker <= 0.38292492" in text
    assert "with prior 0.5 an attacker is right with probability <= 0.69146246" in text


@pytest.mark.parametrize("delta", ["0", "x", "-1e-5", "1e-9999999"])
def test_what_is_no_delta_is_refused_by_its_name(folder: Path, delta: str) -> None:
    done = run_command("profile", str(folder / "release.json"), f"--delta={delta}")
    assert (done.returncode, done.stderr.startswith("deltas[0]: must be ")) == (2, True), done.stderr


def test_clipping_is_calibrated_to_a_trade_off_point(folder: Path) -> None:
    arguments = ("--trade-off", "0.01", "0.9", "--parameter", "clipping_bound", "--json")
    answer = json.loads(run_command("calibrate", str(folder / "release.json"), *arguments).stdout)
    assert answer["parameter"]["kind"] == "clipping_bound"
    assert answer["event"]["mechanism"]["sensitivity"]["l2"] == answer["value"]
    assert answer["guarantee"]["trade_off"]["beta"] >= 0.9


def test_the_part_that_may_change_is_named_by_a_pointer(folder: Path) -> None:
    arguments = ("--epsilon", "1", "--delta", "1e-5")
    done = run_command("calibrate", str(folder / "training.json"), *arguments, "--at", "/events/0")
    assert (done.returncode, "parameter.at must be a JSON pointer to a part of the event" in done.stderr) == (2, True)
