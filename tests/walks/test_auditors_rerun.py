"""A training whose plan is logged, witnessed and stamped, and an auditor with its opened noise key who repeats it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.app.announced_harness import Authority
from tests.app.jobs_harness import ADMIN_KEY, environment, serving, settings, stream, submit, wait_until, working
from tests.app.witness_harness import serving as witnessing
from zetadp.app.certificates.log.checkpoint import log_key, origin_of
from zetadp.app.certificates.log.witness import Witness
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.cli import app
from zetadp.app.cli.certify import save_artifacts, save_evidence
from zetadp.app.client import Client
from zetadp.app.kit.settings import Settings

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

POLICY = """name: what an auditor asks
unit: [record]
adjacency: [add_remove]
largest_epsilon: 3
largest_delta: 1e-5
exact_release: required
noise_test: required
plan_logged: required
checks: [log, revocation, file model.safetensors, file releases.txt]
"""


@dataclass(frozen=True)
class Audited:
    """A service that trained once, what it gave out, the opened key, and a reader's policy."""

    of: Settings
    folder: Path
    key: Path
    policy: Path


def run(of: Settings, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments], env=environment(of))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Generator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    clock = Authority(folder / "clock")
    keys = jwks(settings(folder / "data"))
    witnesses: list[Witness] = []
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
        (folder / name / "logs").write_text(log_key(origin_of(keys.keys[0]), keys.keys[0]).text)
        witnesses.append(Witness(folder / name, f"witness-{name}.example.org", folder / name / "logs"))
    with ExitStack() as stack:
        lines = [f"{stack.enter_context(witnessing(witness))} {witness.key.text}" for witness in witnesses]
        (folder / "witnesses").write_text("\n".join(lines))
        asked = {
            "time_stamps": stack.enter_context(clock.serving()),
            "witnesses": folder / "witnesses",
            "least_witnesses": 2,
            "least_time_stamps": 1,
            "keep_noise_keys": True,
        }
        of = settings(folder / "data").model_copy(update=asked)
        client = stack.enter_context(serving(of))
        stack.enter_context(working(of, child="real"))
        job_id = submit(client, steps=6)
        assert list(stream(client, job_id))[-1].data["state"] == "succeeded"
        with Client(str(client.base_url).rstrip("/"), ADMIN_KEY) as own:
            certificate_id = str(client.get(f"/v1/jobs/{job_id}").json()["certificate"])
            # Three on each head: they sign the second one after the job's end.
            wait_until(lambda: own.proofs(certificate_id).count(b"witness-") == 6)
            save_artifacts(own, job_id, folder / "result")
            save_evidence(own, certificate_id, folder / "result")
        run(of, "noise-key", job_id, "-o", str(folder / "opened"))
        named = "\n".join(f"    - {witness.key.text}" for witness in witnesses)
        pem = "\n".join(f"      {line}" for line in clock.pem.splitlines())
        others = f"witnesses:\n  least: 2\n  keys:\n{named}\ntime_stamps:\n  least: 1\n  authorities:\n    - |\n{pem}\n"
        (folder / "policy.yaml").write_text(POLICY + others)
        yield Audited(of, folder / "result", folder / "opened", folder / "policy.yaml")


def test_the_certificate_meets_a_policy_that_asks_for_everything(audited: Audited) -> None:
    trusted = ("--keys", str(audited.folder / "jwks.json"))
    told = run(audited.of, "verify", str(audited.folder / "certificate.json"), *trusted, "--policy", str(audited.policy)).output
    assert "policy 'what an auditor asks': accepted" in told


def test_the_auditor_repeats_every_release_and_the_model(audited: Audited) -> None:
    command = ["rerun", str(audited.folder), "--noise-key", str(audited.key), "--keys", str(audited.folder / "jwks.json")]
    told = run(audited.of, *command, "--policy", str(audited.policy)).output
    assert "6 of 6 releases are the same, bit for bit" in told
    assert "the model is the one that follows from them" in told
    assert "1 of the job's 1 starts left something in the record" in told
    assert "its randomness follows from the signature on the plan's head by CN=clock" in told


def test_without_a_policy_the_rerun_shows_no_time(audited: Audited) -> None:
    told = run(audited.of, "rerun", str(audited.folder), "--noise-key", str(audited.key)).output
    assert "6 of 6 releases are the same, bit for bit" in told
    assert "nothing shows when the run began" in told
    assert "no policy names authorities or witnesses that are trusted" in told


def test_the_opened_key_is_for_nobody_else_to_read_and_says_what_it_does(audited: Audited, tmp_path: Path) -> None:
    assert audited.key.stat().st_mode & 0o077 == 0
    assert "no noise key was kept" in run(audited.of, "noise-key", "another", "-o", str(tmp_path / "key"), code=4).output


def test_another_key_or_a_changed_record_repeats_nothing(audited: Audited, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("00" * 32)
    told = run(audited.of, "rerun", str(audited.folder), "--noise-key", str(tmp_path / "key"), code=1).output
    assert "isn't the noise key that the plan is committed to" in told
    releases = audited.folder / "releases.txt"
    before = releases.read_text()
    releases.write_text(before.replace("release 0 3 ", "release 0 3 0"))
    try:
        told = run(audited.of, "rerun", str(audited.folder), "--noise-key", str(audited.key), code=1).output
    finally:
        releases.write_text(before)
    assert "the certificate isn't valid" in told
