r"""A rehearsal: one command, which starts everything and leaves nothing running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.trainer.federation_by_hand import FLOWER
from tests.trainer.federation_harness import MadeUp
from zetadp.app.cli.console import Exit
from zetadp.app.cli.federation import register, rehearsal
from zetadp.trainer.sites.agreements import ledger_of
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.report import SitesStanding

DIGITS = FederatedZetaDpSgd.example().data.model_dump_json()
UPLOADED = json.dumps({"kind": "uploaded", "data_set": "0" * 32})
REHEARSE = [sys.executable, "-m", "zetadp", "federation", "rehearse"]
PATIENCE_SECONDS = 120.0
over_flower = pytest.mark.skipif(
    not (FLOWER / "bin" / "flower-superlink").exists(), reason="Flower isn't installed: make build/flower/.installed"
)


def running() -> str:
    """The command lines of all processes, whole however long they are."""
    return subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@over_flower
def test_sites_answer_every_round_and_charge_their_own_ledgers(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(FederatedZetaDpSgd.example().model_dump_json())
    options = ["--sites", "2", "--rounds", "5", "--output", str(tmp_path / "all"), "--flower", str(FLOWER)]
    found = subprocess.run([*REHEARSE, str(tmp_path / "spec.json"), *options], capture_output=True, text=True, check=True)
    assert "round 5 of 5: all sites answered" in found.stdout
    assert "would be epsilon 8 at delta 1e-05 for each record (add_remove) of each site\nhere one user has all keys" in found.stdout
    proposal = Proposal.model_validate_json((tmp_path / "all" / "proposal.json").read_bytes())
    for name in ("site-1", "site-2"):
        assert f"{name}: 5 of 5 rounds counted, 5 charged" in found.stdout
        assert ledger_of(read_settings(SiteSettings, tmp_path / "all" / f"{name}.yaml")).charged(proposal.digest) == 5
    assert str(tmp_path / "all") not in running()


@pytest.mark.slow
@over_flower
def test_a_killed_rehearsal_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(FederatedZetaDpSgd.example().model_dump_json())
    options = ["--sites", "2", "--output", str(tmp_path / "all"), "--flower", str(FLOWER)]
    with subprocess.Popen([*REHEARSE, str(tmp_path / "spec.json"), *options], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        next(line for line in killed.stdout if line.startswith("round 1 of "))
        assert str(tmp_path / "all") in running()
        killed.kill()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := str(tmp_path / "all") in running()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not found


def test_only_federated_recipes_are_rehearsed_and_no_folder_is_written_over(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    refused = CliRunner().invoke(app, ["federation", "rehearse", "digits", "--output", str(tmp_path / "new")])
    assert refused.exit_code == 2
    assert "recipe must be one of federated_zeta_dp_sgd, got 'zeta_dp_sgd'" in refused.output
    assert not (tmp_path / "new").exists()
    (tmp_path / "own.json").write_text(FederatedZetaDpSgd.example().model_dump_json().replace(DIGITS, UPLOADED))
    own = CliRunner().invoke(app, ["federation", "rehearse", str(tmp_path / "own.json"), "--output", str(tmp_path / "new")])
    assert "data must be a public data set: a rehearsal protects nobody, got 'uploaded'" in own.output
    there = CliRunner().invoke(app, ["federation", "rehearse", "phase_mnist_federated", "--output", str(tmp_path)])
    assert there.exit_code == 2
    assert "output must be a folder that isn't there yet" in there.output
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]


def test_a_stray_line_of_the_coordinator_ends_its_process_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, number = tmp_path / "program", tmp_path / "number"
    program.write_text(f"#!/bin/sh\necho $$ > {number}\necho stray line\nexec sleep 1000\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(typer.Exit) as ended:
        rehearsal._coordinate(tmp_path, MadeUp(tmp_path).proposal, {})
    assert ended.value.exit_code == Exit.FAILED
    assert capsys.readouterr().err == "the coordinator's process wrote what is no event: stray line\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


STANDING = SitesStanding(round=1, rounds=2, sites=()).model_dump_json()


def coordinated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seconds: float) -> None:
    """Runs a coordinator of these lines, and beside it a site whose process ends after so many seconds."""
    proposal, program = MadeUp(tmp_path).proposal, tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    with monkeypatch.context() as patched, subprocess.Popen(["sh", "-c", f"sleep {seconds}; exit 3"]) as site:
        patched.setattr(sys, "executable", str(program))
        rehearsal._coordinate(tmp_path, proposal, {"site-2": site})


def test_a_site_whose_process_ends_while_all_are_waited_for_ends_the_rehearsal_at_once_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with pytest.raises(typer.Exit) as ended:
        coordinated(tmp_path, monkeypatch, "exec sleep 1000", 0.1)
    assert ended.value.exit_code == Exit.FAILED
    told = f"the run failed: the process of site-2 ended with status 3; {tmp_path / 'sites.log'} says why\n"
    assert capsys.readouterr().err == told
    assert time.monotonic() - began < 60.0


def test_a_site_whose_process_ends_later_is_named_and_the_rounds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinated(tmp_path, monkeypatch, f"echo '{STANDING}'\nsleep 3\necho '{STANDING}'", 1.5)
    first, told, second = capsys.readouterr().out.splitlines()
    assert first == second == "round 1 of 2: all sites answered"
    assert told == f"the process of site-2 ended with status 3; {tmp_path / 'sites.log'} says why"


def test_a_rehearsal_that_no_spec_allows_says_which_field_is_wrong(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "spec.json").write_text(FederatedZetaDpSgd.example().model_dump_json())
    options = ["--rounds", str(10**12), "--flower", str(tmp_path), "--output", str(tmp_path / "new")]
    refused = CliRunner().invoke(app, ["federation", "rehearse", str(tmp_path / "spec.json"), *options])
    assert refused.exit_code == Exit.USAGE
    assert "the data can't be dealt so: steps" in refused.output
    assert not (tmp_path / "new").exists()
