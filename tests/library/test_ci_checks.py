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


@pytest.mark.slow
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what is here, also what isn't committed yet: building leaves files behind, and hooks come from commits."""
    archive = _git(ROOT, "stash", "create").decode().strip() or "HEAD"
    folder = tmp_path / "checkout"
    folder.mkdir()
    subprocess.run(["tar", "-x"], cwd=folder, input=_git(ROOT, "archive", archive), check=True)
    _commit(folder)
    return folder


def _git(folder: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True).stdout


def _commit(folder: Path) -> None:
    _git(folder, "init", "--quiet")
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=tests", "-c", "user.email=tests@example.org", "commit", "--quiet", "--message", "everything")


@pytest.mark.slow
def test_the_action_installs_itself_and_passes_valid_certificates_and_no_changed_model(
    project: Path, checkout: Path, tmp_path: Path
) -> None:
    runner = tmp_path / "runner"
    runner.mkdir()
    installed = stepped(INSTALL, project, runner, checkout, python=sys.executable)
    assert installed.returncode == 0, installed.stderr
    certificates = "models\nrelease/another.json"
    valid = stepped(VERIFY, project, runner, keys="keys-i-trust.json", certificates=certificates)
    assert (valid.returncode, valid.stderr) == (0, "")
    assert valid.stdout.count("verdict: valid.") == 2
    assert stepped(VERIFY, project, runner, certificates=certificates).returncode == 2  # no keys
    tamper(project / "models" / "plain" / "model.safetensors")
    changed = stepped(VERIFY, project, runner, keys="keys-i-trust.json", certificates=certificates)
    assert changed.returncode == 1
    assert "FAIL file model.safetensors" in changed.stdout


@pytest.mark.slow
def test_the_hook_passes_valid_certificates_and_no_changed_model_or_certificate(project: Path, checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("pre_commit", reason="pre-commit isn't installed: pip install pre-commit")
    revision = _git(checkout, "rev-parse", "HEAD").decode().strip()
    hooks = {"repos": [{"repo": str(checkout), "rev": revision, "hooks": [{"id": "zetadp-verify", "verbose": True}]}]}
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(hooks))
    _commit(project)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PRE_COMMIT_HOME": str(tmp_path / "kept")}

    def run_hooks() -> subprocess.CompletedProcess[str]:
        _git(project, "add", ".")
        command = [sys.executable, "-m", "pre_commit", "run"]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)

    valid = run_hooks()
    assert valid.returncode == 0, valid.stdout + valid.stderr
    assert "verdict: valid." in valid.stdout
    for name in ("model.safetensors", "certificate.json"):
        tamper(project / "models" / "plain" / name)
        changed = run_hooks()
        assert changed.returncode == 1
        assert "models/plain/certificate.json: the certificate is NOT valid" in changed.stdout
        tamper(project / "models" / "plain" / name)  # the same bit again
    (project / "keys-i-trust.json").unlink()
    assert "keys-i-trust.json: No such file or directory" in run_hooks().stdout
