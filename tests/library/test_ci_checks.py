"""The GitHub Action and the pre-commit hook: each passes a repository of valid certificates, and none with a tampered one or no keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.library.certificates import issued, keys, settings
from zetadp.app.certificates.signing.keys import PublicKeySet

__all__ = ["issued", "keys", "settings"]  # fixtures

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
INSTALL, VERIFY = ACTION["runs"]["steps"]


@pytest.fixture
def project(issued: Callable[[str], Path], keys: PublicKeySet, tmp_path: Path) -> Path:
    """A repository of somebody who keeps two certificates, one of them with its model."""
    folder = tmp_path / "project"
    shutil.copytree(issued("plain"), folder / "models" / "plain")
    (folder / "release").mkdir()
    shutil.copy(issued("plain") / "certificate.json", folder / "release" / "another.json")
    (folder / "keys-i-trust.json").write_text(keys.model_dump_json())
    return folder


def stepped(step: dict[str, Any], project: Path, runner: Path, checkout: Path = ROOT, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Runs a step of the action as GitHub's runner does: a bash that ends at the first error, inputs put in where they are named."""
    given = {name: described.get("default", "") for name, described in ACTION["inputs"].items()} | inputs
    variables = dict(step.get("env", {}))
    for name, value in given.items():
        variables = {key: text.replace(f"${{{{ inputs.{name} }}}}", value) for key, text in variables.items()}
    script = runner / "step.sh"
    script.write_text(step["run"])
    environment = {**os.environ, **variables, "RUNNER_TEMP": str(runner), "GITHUB_ACTION_PATH": str(checkout)}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner on which zetadp is what is tested here."""
    programs = tmp_path / "runner" / "zetadp" / "bin"
    programs.mkdir(parents=True)
    (programs / "zetadp").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m zetadp "$@"\n')
    (programs / "zetadp").chmod(0o700)
    return tmp_path / "runner"


def tamper(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_action_names_the_tampered_certificate_beside_a_valid_one(project: Path, runner: Path) -> None:
    tamper(project / "release" / "another.json")
    done = stepped(VERIFY, project, runner, keys="keys-i-trust.json", certificates="models\n\nrelease/another.json\n")
    assert done.returncode == 1
    assert done.stderr == "release/another.json: the certificate is NOT valid\n"
    assert "certificate: models/plain/certificate.json\nkeys: keys-i-trust.json" in done.stdout


def test_the_action_runs_no_action_of_others_and_keeps_inputs_out_of_its_scripts() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "uses" not in step
        assert "${{" not in step["run"]


@pytest.mark.slow
def test_the_action_installs_itself_and_passes_valid_certificates_and_no_changed_model(project: Path, tmp_path: Path) -> None:
    runner, checkout = tmp_path / "runner", tmp_path / "checkout"
    runner.mkdir()
    # A copy, as GitHub makes one: a build leaves files behind. What was changed and isn't committed yet belongs to it.
    archive = subprocess.run(["git", "stash", "create"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() or "HEAD"
    packed = subprocess.run(["git", "archive", archive], cwd=ROOT, capture_output=True, check=True).stdout
    checkout.mkdir()
    subprocess.run(["tar", "-x"], cwd=checkout, input=packed, check=True)
    installed = stepped(INSTALL, project, runner, checkout, python=sys.executable)
    assert installed.returncode == 0, installed.stderr
    certificates = "models\nrelease/another.json"
    valid = stepped(VERIFY, project, runner, keys="keys-i-trust.json", certificates=certificates)
    assert (valid.returncode, valid.stderr) == (0, "")
    assert valid.stdout.count("verdict: valid.") == 2
    without_keys = stepped(VERIFY, project, runner, certificates=certificates)
    assert without_keys.returncode == 2
    tamper(project / "models" / "plain" / "model.safetensors")
    changed = stepped(VERIFY, project, runner, keys="keys-i-trust.json", certificates=certificates)
    assert changed.returncode == 1
    assert "FAIL file model.safetensors" in changed.stdout


@pytest.mark.slow
def test_the_hook_passes_valid_certificates_and_no_changed_model_or_certificate(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("pre_commit", reason="pre-commit isn't installed: pip install pre-commit")
    git = ["git", "-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "certificates"]):
        subprocess.run([*git, *command], cwd=project, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PRE_COMMIT_HOME": str(tmp_path / "kept")}

    def tried() -> subprocess.CompletedProcess[str]:
        subprocess.run([*git, "add", "."], cwd=project, check=True)
        command = [sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), "zetadp-verify", "--verbose"]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)

    valid = tried()
    assert valid.returncode == 0, valid.stdout + valid.stderr
    assert "verdict: valid." in valid.stdout
    model, certificate = (project / "models" / "plain" / name for name in ("model.safetensors", "certificate.json"))
    for file in (model, certificate):
        tamper(file)
        changed = tried()
        assert changed.returncode == 1
        assert "models/plain/certificate.json: the certificate is NOT valid" in changed.stdout
        tamper(file)  # the same bit again
    (project / "keys-i-trust.json").unlink()
    assert "keys-i-trust.json: No such file or directory" in tried().stdout
