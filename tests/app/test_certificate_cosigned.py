"""What a certificate shows by witnesses that signed the heads of its log, which answer over HTTP."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.app.announced_harness import Announcing
from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import details, run_of
from tests.app.witness_harness import Sly, serving
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import log_key, origin_of
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs, encode
from zetadp.app.certificates.log.notes import Note
from zetadp.app.certificates.log.tiles import read_entries
from zetadp.app.certificates.log.witness import Witness
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.cli import certify
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.announcing import NotAnnounced
from zetadp.app.worker.witnessing import kept_and_witnessed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def witnesses(tmp_path_factory: pytest.TempPathFactory) -> list[Witness]:
    folder = tmp_path_factory.mktemp("witnesses")
    for number in range(3):
        (folder / str(number)).mkdir()
        (folder / str(number) / "logs").write_text("")
    return [Witness(folder / str(number), f"w{number}.example.org", folder / str(number) / "logs") for number in range(3)]


@pytest.fixture(scope="module")
def house(run: CertificateInput, witnesses: list[Witness], tmp_path_factory: pytest.TempPathFactory) -> Generator[Announcing]:
    folder = tmp_path_factory.mktemp("house")
    with ExitStack() as stack:
        lines = [f"{stack.enter_context(serving(witness))} {witness.key.text}" for witness in witnesses]
        (folder / "witnesses").write_text("\n".join(lines))
        house = Announcing(Settings(data_dir=folder, witnesses=folder / "witnesses", least_witnesses=2), run)
        known = jwks(house.settings)
        for witness in witnesses:
            witness._logs.write_text(log_key(origin_of(known.keys[-1]), known.keys[0]).text)
        yield house
        house.database.close()


@pytest.fixture(scope="module")
def certified(house: Announcing) -> tuple[bytes, Proofs]:
    house.began()
    envelope, certificate_id = house.ended(*house.began())
    kept_and_witnessed(house.settings, house.database)
    house.began()
    return envelope, house.proofs(certificate_id)


def demand(witnesses: list[Witness], least: int = 2, **more: object) -> Policy:
    fields = {"name": "a", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "1", "largest_delta": "0.1"}
    return Policy.model_validate(fields | {"witnesses": {"least": least, "keys": tuple(one.key.text for one in witnesses)}} | more)


def test_heads_of_plan_and_certificate_are_signed_by_the_witnesses(
    house: Announcing, certified: tuple[bytes, Proofs], witnesses: list[Witness]
) -> None:
    envelope, proofs = certified
    report = verify(envelope, jwks(house.settings), None, house.evidence(proofs), demand(witnesses, 3))
    assert report.verdict == "valid"
    told = details(report, "witnesses", Status.PASSED)
    for name, proof in (("the certificate", proofs.certificate), ("its plan", proofs.plan or "")):
        lines = Note.read(InclusionProof.read(proof).checkpoint).signatures[1:]
        time = datetime.fromtimestamp(max(int.from_bytes(one.signature[:8], "big") for one in lines), UTC)
        assert f"3 of 3 signed the head that {name} is under, 3 of them by {time:%Y-%m-%d %H:%M:%S} UTC" in told
    assert told.endswith(" UTC, by their own clocks (at least 3 asked for)")


def test_until_the_witnesses_were_asked_proofs_say_so(house: Announcing, witnesses: list[Witness]) -> None:
    envelope, certificate_id = house.ended(*house.began())
    early = house.proofs(certificate_id)
    assert early.pending == "witnesses"
    report = verify(envelope, jwks(house.settings), None, house.evidence(early), demand(witnesses))
    assert report.verdict == "valid"
    assert "no witness had been asked about the certificate yet: get them again" in details(report, "witnesses", Status.NOT_CHECKED)
    assert report.policy is not None
    assert any(rule.startswith("witnesses") for rule in report.policy.failing)
    # That nobody was asked about the certificate yet excuses nothing of its plan's head.
    assert early.plan is not None
    first, *others = [line for line in early.plan.splitlines() if line.startswith("\N{EM DASH} ")]
    unwitnessed = "".join(line for line in early.plan.splitlines(keepends=True) if line.rstrip("\n") not in others)
    assert others
    assert first in unwitnessed
    bare = Proofs(certificate=early.certificate, plan=unwitnessed, pending="witnesses")
    assert verify(envelope, jwks(house.settings), None, house.evidence(bare), demand(witnesses)).verdict == "invalid"
    kept_and_witnessed(house.settings, house.database)
    later = house.proofs(certificate_id)
    assert later.pending is None
    assert verify(envelope, jwks(house.settings), None, house.evidence(later), demand(witnesses)).verdict == "valid"


@pytest.mark.slow
def test_the_command_waits_until_the_witnesses_were_asked(
    certified: tuple[bytes, Proofs], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(certify, "_WITNESS_PAUSE_SECONDS", 0.0)
    proofs = certified[1]
    early = encode(Proofs(certificate=proofs.certificate, plan=proofs.plan, pending="witnesses"))
    answers = [early, early, encode(proofs)]

    class Client:
        def proofs(self, _certificate_id: str, _size: int | None) -> bytes:
            return answers.pop(0) if len(answers) > 1 else answers[0]

    client: Any = Client()
    assert certify._proofs_once_witnessed(client, "c", None) == encode(proofs)
    answers[:] = [early]
    monkeypatch.setattr(certify, "_WITNESS_SECONDS", 0.0)
    assert certify._proofs_once_witnessed(client, "c", None) == early
    assert "no witness has been asked yet" in capsys.readouterr().err


def test_what_too_few_signed_is_refused(house: Announcing, certified: tuple[bytes, Proofs], witnesses: list[Witness]) -> None:
    envelope, proofs = certified
    one_left = "\n".join([*proofs.certificate.split("\n")[:-3], ""])  # without the last two lines of signatures
    given = Proofs(certificate=one_left, plan=proofs.plan)
    report = verify(envelope, jwks(house.settings), None, house.evidence(given), demand(witnesses))
    assert "1 of 3 witnesses signed the head that the certificate is under, 2 are asked for" in details(report, "witnesses")
    without_plan = Proofs(certificate=proofs.certificate)
    report = verify(envelope, jwks(house.settings), None, house.evidence(without_plan), demand(witnesses))
    assert details(report, "witnesses") == "the proof of its plan is missing"


def test_a_second_history_by_the_services_own_keys_is_refused(
    house: Announcing, run: CertificateInput, certified: tuple[bytes, Proofs], witnesses: list[Witness], tmp_path: Path
) -> None:
    # The operator keeps a second database with the same keys, and shows its log to one reader. The witnesses won't sign it.
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "keys" / "0001.pem").write_bytes((house.settings.data_dir / "keys" / "0001.pem").read_bytes())
    (tmp_path / "keys" / "0001.pem").chmod(0o600)
    second = Announcing(Settings(data_dir=tmp_path, witnesses=house.settings.witnesses), run)
    envelope, certificate_id = second.ended(*second.began())
    assert kept_and_witnessed(second.settings, second.database).count == 0
    report = verify(envelope, jwks(second.settings), None, second.evidence(second.proofs(certificate_id)), demand(witnesses))
    second.database.close()
    assert report.verdict == "invalid"
    assert details(report, "log") == details(report, "plan_logged") == ""  # for its reader all else is in order
    assert "0 of 3 witnesses signed the head that its plan is under" in details(report, "witnesses")


def test_without_enough_witnesses_nothing_begins(house: Announcing, run: CertificateInput, tmp_path: Path) -> None:
    lonely = Announcing(Settings(data_dir=tmp_path / "lonely", witnesses=house.settings.witnesses, least_witnesses=2), run)
    with pytest.raises(NotAnnounced, match="no witnesses signed the log with its plan, and at least 2 must"):
        lonely.began()
    (tmp_path / "witnesses").write_text("no witness")
    broken = Announcing(Settings(data_dir=tmp_path, witnesses=tmp_path / "witnesses"), run)
    with pytest.raises(NotAnnounced, match="expected lines with a witness's address and its key"):
        broken.began()
    lonely.database.close()
    broken.database.close()


def test_a_signature_on_another_text_than_the_head_is_not_kept(run: CertificateInput, tmp_path: Path) -> None:
    sly = Sly()
    with serving(sly) as address:
        (tmp_path / "witnesses").write_text(f"{address} {sly.key.text}")
        house = Announcing(Settings(data_dir=tmp_path, witnesses=tmp_path / "witnesses"), run)
        house.began()
        signed = kept_and_witnessed(house.settings, house.database)
        house.database.close()
    assert (signed.count, "sly" in signed.checkpoint) == (0, False)


def test_without_a_policy_nobodys_signatures_are_taken_for_witnesses(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    report = verify(certified[0], jwks(house.settings), None, house.evidence(certified[1]))
    assert "no witness of logs is trusted" in details(report, "witnesses", Status.NOT_CHECKED)


def test_the_services_own_log_adds_up(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    assert InclusionProof.read(certified[1].certificate).leaf_index >= 2
    with house.database.reading() as session:
        found = read_entries([journal.content_of(session, number) for number in range(journal.size_of(session))])
    assert found.problems == ()
    assert sum(found.uncertified.values()) == found.plans - found.certificates > 0
