"""Certificates, their forms and their log over HTTP and from the command line, with a real server, a real worker and two tenants."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from tests.app.access_harness import made, shown
from tests.app.certificates_harness import finished_run
from tests.app.jobs_harness import ADMIN_KEY, environment, serving, settings, stream, submit, working
from tests.selection import thinned
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.errors import SigningKeyRevoked
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.notes import NoteKey
from zetadp.app.certificates.log.revocation_list import Reason
from zetadp.app.certificates.log.revocations import revoke
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, rotate
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.cli import app
from zetadp.app.cli.certify import save_artifacts, save_evidence
from zetadp.app.client import Client
from zetadp.app.jobs.workspaces import FolderWorkspace
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import completion


@dataclass(frozen=True)
class Service:
    """A service with a worker; ``certificates``: of two jobs, between which the running processes' signing key was rotated."""

    of: Settings
    client: httpx2.Client
    jobs: tuple[str, str]
    certificates: tuple[str, str]

    @property
    def address(self) -> str:
        return str(self.client.base_url).rstrip("/")


def finished(client: httpx2.Client) -> tuple[str, str]:
    job_id = submit(client)
    assert list(stream(client, job_id))[-1].data["state"] == "succeeded"
    return job_id, str(client.get(f"/v1/jobs/{job_id}").json()["certificate"])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    of = settings(tmp_path_factory.mktemp("service"))
    with serving(of) as client, working(of):
        first = finished(client)
        rotate(of)
        second = finished(client)
        yield Service(of, client, (first[0], second[0]), (first[1], second[1]))


@pytest.fixture(scope="module")
def folder(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``certificate JOB`` saves of the first job, and a kept head."""
    kept = tmp_path_factory.mktemp("kept")
    with Client(service.address, ADMIN_KEY) as client:
        save_artifacts(client, service.jobs[0], kept)
        save_evidence(client, service.certificates[0], kept)
        (kept / "head.json").write_bytes(client.log_head())
    return kept


def run(service: Service, *arguments: str, code: int = 0) -> Result:
    variables = environment(service.of) | {"ZETADP_ADDRESS": service.address, "ZETADP_KEY": ADMIN_KEY}
    result = CliRunner().invoke(app, [*arguments], env=variables)
    assert result.exit_code == code, result.output
    return result


# Over HTTP


def test_a_running_service_and_worker_sign_with_a_rotated_key(service: Service) -> None:
    newest, oldest = jwks(service.of).keys
    named = [json.loads(service.client.get(f"/v1/certificates/{one}").content)["signatures"][0]["keyid"] for one in service.certificates]
    assert named == [oldest.kid, newest.kid]
    assert PublicKeySet.model_validate_json(service.client.get("/.well-known/jwks.json").content) == jwks(service.of)


def test_every_job_that_succeeds_has_an_entry(service: Service) -> None:
    keys = jwks(service.of)
    for number, certificate_id in ((2, service.certificates[0]), (4, service.certificates[1])):
        envelope = service.client.get(f"/v1/certificates/{certificate_id}").content
        proof = service.client.get(f"/v1/certificates/{certificate_id}/proofs").content
        report = verify(envelope, keys, None, Evidence(proof, service.client.get("/.well-known/zetadp-revocations.jws").content))
        assert report.verdict == "valid"
        assert [check.detail.startswith(f"entry {number} of 4 in") for check in report.checks if check.name == "log"] == [True]


@pytest.mark.parametrize(
    ("form", "accept", "media_type"),
    thinned(
        [
            (None, None, "application/vnd.dsse.envelope.v1+json"),
            (None, "application/json", "application/vnd.dsse.envelope.v1+json"),
            (None, "application/jose", "application/jose"),
            ("jws", "text/html", "application/jose"),
            (None, "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/html; charset=utf-8"),
            ("html", None, "text/html; charset=utf-8"),
            ("pdf", None, "application/pdf"),
            (None, "application/pdf", "application/pdf"),
        ],
        every=2,
    ),
)
def test_the_form_is_the_one_asked_for(service: Service, form: str | None, accept: str | None, media_type: str) -> None:
    query = {} if form is None else {"form": form}
    headers = {} if accept is None else {"accept": accept}
    answer = service.client.get(f"/v1/certificates/{service.certificates[0]}", params=query, headers=headers)
    assert (answer.status_code, answer.headers["content-type"], answer.headers["vary"]) == (200, media_type, "Accept")


def test_the_page_comes_with_a_policy_that_allows_no_script(service: Service) -> None:
    answer = service.client.get(f"/v1/certificates/{service.certificates[0]}", params={"form": "html"})
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "Privacy guarantee: epsilon" in answer.text


@pytest.mark.parametrize("path", thinned(["", "?form=jws", "?form=html", "?form=pdf", "/proofs", "/proofs?size=1"], every=3))
def test_another_tenant_is_told_that_there_is_no_such_certificate(service: Service, path: str) -> None:
    other = shown(made(service.of, "another", Scope.SUBMIT))
    one, none = (service.client.get(f"/v1/certificates/{name}{path}", headers=other) for name in (service.certificates[0], "0" * 32))
    assert (one.status_code, none.status_code) == (404, 404)
    assert one.json()["title"] == none.json()["title"]


@pytest.mark.parametrize(
    "path", thinned(["/v1/log", "/v1/log/consistency?first=1", "/.well-known/zetadp-revocations.jws", "/v1/certificates/schema"], every=3)
)
def test_what_readers_need_is_for_everybody_and_names_nobody(service: Service, path: str) -> None:
    answer = httpx2.get(service.address + path)
    assert answer.status_code == 200
    assert not [name for name in (*service.jobs, *service.certificates) if name in answer.text]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/v1/log?size=99", "size must be at most 4, the number of entries, got 99"),
        ("/v1/log/consistency?first=99", "first must be at most 4, the second size, got 99"),
        ("/v1/log/consistency?first=1&second=99", "second must be at most 4, the number of entries, got 99"),
        ("/v1/certificates/{}/proofs?size=0", "size must be from 2, where the certificate is in the log, to 4, got 0"),
        ("/v1/log?size=-1", "size: must be >= 0, got '-1'"),
        ("/v1/log/consistency", "first: this field is required, got nothing"),
    ],
)
def test_a_size_that_the_log_never_had_is_named(service: Service, path: str, problem: str) -> None:
    answer = service.client.get(path.format(service.certificates[0]))
    assert (answer.status_code, answer.json()["detail"]) == (422, problem)


def test_the_service_verifies_either_form_and_knows_its_own_log(service: Service) -> None:
    for form in ("dsse", "jws"):
        signed = service.client.get(f"/v1/certificates/{service.certificates[1]}", params={"form": form}).content
        report = service.client.post("/v1/certificates/verify", content=signed).json()
        assert report["verdict"] == "valid"
        assert {check["name"]: check["status"] for check in report["checks"]}["log"] == "passed"


# From the command line


def test_what_is_saved_verifies_offline_in_either_form(service: Service, folder: Path) -> None:
    for name in ("certificate.json", "certificate.jws"):
        told = run(service, "verify", str(folder / name)).stdout
        assert "verdict: valid" in told
        assert "ok   log: entry 2 of 4 in zetadp-log/" in told
        assert "isn't revoked, as of" in told


def test_a_proof_of_another_certificate_is_refused(service: Service, folder: Path, tmp_path: Path) -> None:
    with Client(service.address, ADMIN_KEY) as client:
        (tmp_path / "other.json").write_bytes(client.proofs(service.certificates[1]))
    told = run(service, "verify", str(folder / "certificate.json"), "--proofs", str(tmp_path / "other.json"), code=1).output
    assert "FAIL log: the proof of inclusion doesn't hold: this isn't entry 4: the proof leads to root" in told


def test_pages_are_written_offline(service: Service, folder: Path, tmp_path: Path) -> None:
    for name, start in (("x.html", b"<!doctype html>"), ("x.pdf", b"%PDF")):
        run(service, "certificate-page", str(folder / "certificate.jws"), "-o", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "must end in .html or .pdf" in run(service, "certificate-page", str(folder / "certificate.json"), "-o", "x.doc", code=2).output


def test_a_kept_head_shows_that_the_log_only_grew(service: Service, folder: Path, tmp_path: Path) -> None:
    assert "4 entries, root" in run(service, "log", "head", "-o", str(tmp_path / "head.json")).stdout
    told = run(service, "log", "check", "--since", str(folder / "head.json"), "-o", str(tmp_path / "new.json")).stdout
    assert "the log only grew: 4 entries then, 4 now" in told
    run(service, "log", "check", "--since", str(tmp_path / "new.json"), "--keys", str(folder / "jwks.json"))


def test_all_of_the_log_can_be_read_and_adds_up(service: Service) -> None:
    assert "2 plans of 1 data sets, 2 certificates\n0 certificates are of plans that weren't" in run(service, "log", "read").stdout
    newest, oldest = (NoteKey.read(line) for line in run(service, "log", "keys").stdout.splitlines() if line.startswith("zetadp-log/"))
    assert (newest.raw, oldest.raw) == tuple(key.raw for key in jwks(service.of).keys)
    assert newest.name == oldest.name == f"zetadp-log/{jwks(service.of).keys[1].kid}"


def test_whose_keys_the_log_was_read_with_is_said(service: Service, folder: Path, tmp_path: Path) -> None:
    assert "keys: of the service itself" in run(service, "log", "read").stdout
    assert f"keys: {folder / 'jwks.json'}" in run(service, "log", "read", "--keys", str(folder / "jwks.json")).stdout.replace("\n", "")
    (tmp_path / "jwks.json").write_text(jwks(service.of.model_copy(update={"data_dir": tmp_path})).model_dump_json(exclude_none=True))
    told = run(service, "log", "read", "--keys", str(tmp_path / "jwks.json"), code=1).output
    assert "isn't signed by a trusted key (1 key given)" in told


def test_without_witnesses_nobody_signs_the_head(service: Service) -> None:
    assert "0 witnesses signed the head of 4 entries\n" in run(service, "log", "cosign").stdout


@pytest.mark.parametrize(
    "content", thinned([b"\xff", b"{", b"[]", b"{}", b'{"predicate": null}', b'{"predicate": {"announced": {"entry": "x"}}}'], every=3)
)
def test_a_statement_that_nobody_can_read_is_invalid_and_no_fault_of_the_service(service: Service, content: bytes) -> None:
    envelope = service.client.get(f"/v1/certificates/{service.certificates[0]}", params={"form": "dsse"}).json()
    forged = envelope | {"payload": base64.b64encode(content).decode()}
    found = service.client.post("/v1/certificates/verify", content=json.dumps(forged, separators=(",", ":")))
    assert (found.status_code, found.json()["verdict"]) == (200, "invalid")


def test_a_head_that_was_changed_is_refused(service: Service, folder: Path, tmp_path: Path) -> None:
    kept = json.loads((folder / "head.json").read_text())
    kept["checkpoint"] = kept["checkpoint"].replace("\n4\n", "\n3\n")
    (tmp_path / "head.json").write_text(json.dumps(kept, separators=(",", ":"), ensure_ascii=False))
    told = run(service, "log", "check", "--since", str(tmp_path / "head.json"), "--keys", str(folder / "jwks.json"), code=1).output
    assert "isn't signed by a trusted key (2 keys given)" in told


def test_a_log_that_lost_entries_is_found_out(service: Service, folder: Path, tmp_path: Path) -> None:
    # The same service with a database from before: its keys are the same, its log is shorter.
    of = settings(tmp_path / "restored")
    of.data_dir.mkdir()
    (service.of.data_dir / "keys").rename(of.data_dir / "keys")
    try:
        with serving(of) as client:
            variables = {"ZETADP_ADDRESS": str(client.base_url).rstrip("/")}
            found = CliRunner().invoke(app, ["log", "check", "--since", str(folder / "head.json")], env=variables)
    finally:
        (of.data_dir / "keys").rename(service.of.data_dir / "keys")
    assert found.exit_code == 1
    assert "the log has 0 entries, and had 4: entries were removed" in found.output


@pytest.mark.slow
def test_revoking_from_the_command_line_reaches_the_running_service(tmp_path: Path) -> None:
    of = settings(tmp_path)
    with serving(of) as client:
        service = Service(of, client, ("", ""), ("", ""))
        key = jwks(of).keys[0].kid
        told = run(service, "certificate-keys", "revoke", key, "--reason", "superseded").stdout
        assert told == f"key {key} is revoked as superseded: what is among the log's first 0 entries stays valid\n"
        fresh = jwks(of).keys[0].kid
        listed = run(service, "certificate-keys", "list").stdout.splitlines()
        assert listed[0] == f"{fresh}  signs"
        assert listed[1].startswith(f"{key}  revoked ")
        assert fresh in run(service, "certificate-keys", "list", "--json").stdout
        rotated = run(service, "certificate-keys", "rotate").stdout
        assert jwks(of).keys[0].kid in rotated
        assert "is already revoked" in run(service, "certificate-keys", "revoke", key, "--reason", "ceased", code=1).output
        for unknown in ("x" * 43, "-a" + "x" * 41, "--" + "x" * 41):
            assert "there is no signing key" in run(service, "certificate-keys", "revoke", unknown, "--reason", "ceased", code=4).output
        deeds = [entry["action"] for entry in client.get("/v1/audit-log").json()["entries"]]
        assert deeds[:2] == ["certificate-keys rotate", "certificate-keys revoke"]
        assert client.get("/.well-known/jwks.json").json() == json.loads(jwks(of).model_dump_json())


# A key that is revoked between signing and storing


@pytest.mark.slow
def test_a_certificate_is_signed_again_if_its_key_is_revoked_before_it_is_stored(
    run_of_few_steps: CertificateInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Settings(data_dir=tmp_path)
    database = Database(of)
    database.migrate()
    tried: list[str] = []
    signed = iter(["first", "second"])

    class Attempts:
        def succeed(self, *_given: object) -> None:
            tried.append("stored")
            if len(tried) == 1:
                with database.writing() as session:
                    revoke(session, of, jwks(of).keys[0].kid, Reason.CEASED)
                raise SigningKeyRevoked("first")

    monkeypatch.setattr(completion, "_report", lambda _workdir: run_of_few_steps.report)
    monkeypatch.setattr(completion, "_certificate", lambda *_given: next(signed).encode())

    class Attempt:
        job_id = "job-1"

    place = FolderWorkspace(tmp_path / "work", 1)
    (place.folder / completion.ARTIFACTS).mkdir()
    completion.complete_training(Attempt(), run_of_few_steps, Attempts(), place, of, None)
    assert tried == ["stored", "stored"]
    assert list(signed) == []
    database.close()


@pytest.fixture
def run_of_few_steps(tmp_path: Path) -> CertificateInput:
    return finished_run(tmp_path / "files")
