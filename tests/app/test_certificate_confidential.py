"""A confidential machine's report beside a certificate: a recorded one of AMD SEV-SNP, and others by keys of the tests' own.

No test runs on such a machine. What the kernel does when it is asked is played by ``Kernel``, by the published interface.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.app.announced_harness import Announcing
from tests.app.certificates_harness import ABSENT, details, forged, lied
from tests.app.confidential_harness import Certified, Certifying, Kernel, asked, is_met, policy_of, verified
from tests.app.forked import run_command
from tests.app.machine_harness import CHAIN, DEBUGGING, MEASURED, MIGRATION, POLICY, RECORDED, Machine, revoking
from zetadp.app.certificates.facts.confidential import REPORT_FILE, SnpFacts
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing import confidential
from zetadp.app.certificates.issuing.confidential import MachineSilent, machine_report
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.workspaces import FolderWorkspace
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import completion


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine.made()


# In a certificate


@pytest.fixture(scope="module")
def certify(house: Announcing, unprotected: CertificateInput, tmp_path_factory: pytest.TempPathFactory) -> Certifying:
    return Certifying(house, unprotected, tmp_path_factory.mktemp("report"), "sev_guest")


@pytest.fixture(scope="module")
def right(certify: Certifying, machine: Machine) -> Certified:
    return certify(machine.report)


def by(*machines: Machine, **more: object) -> Policy:
    return policy_of({"keys": tuple(one.pem for one in machines)} | more)


def test_a_report_by_a_known_chip_passes_and_its_words_say_what_it_does_not_show(
    house: Announcing, right: Certified, machine: Machine
) -> None:
    report = verified(house, right, by(machine, measurements=(MEASURED.hex(),)))
    said = details(report, "machine_report", Status.PASSED)
    assert report.verdict == "valid"
    assert is_met(report)
    assert f"chip {machine.chip.hex()[:16]}..." in said
    assert "dates weren't looked at; no list of revoked certificates was given" in said
    for words in (said, describe(read(right.envelope))):
        assert "it doesn't show that this code ran" in words
        assert MEASURED.hex() in words


def test_without_the_chips_certificates_nothing_has_passed(house: Announcing, right: Certified) -> None:
    report = verified(house, right)
    assert report.verdict == "valid"
    assert "anybody can write such a report" in details(report, "machine_report", Status.NOT_CHECKED)


def test_without_file_or_proofs_nothing_has_passed(house: Announcing, right: Certified, machine: Machine) -> None:
    policy, keys = by(machine), jwks(house.settings)
    without_file = verify(right.envelope, keys, None, house.evidence(right.proofs), policy)
    without_proofs = verify(right.envelope, keys, None, Evidence(machine_report=right.content), policy)
    assert f"{REPORT_FILE} wasn't given" in details(without_file, "machine_report", Status.NOT_CHECKED)
    assert "isn't proved" in details(without_proofs, "machine_report", Status.NOT_CHECKED)
    assert not is_met(without_file)
    assert not is_met(without_proofs)


def test_a_report_of_another_chip_is_not_checked_and_meets_no_policy(house: Announcing, right: Certified, machine: Machine) -> None:
    others = Machine.made(chip=b"\xcd" * 64), Machine.made(tcb=bytes([4, *machine.tcb[1:]]))
    report = verified(house, right, by(*others))
    assert "none of the certificates given is for the firmware and the chip" in details(report, "machine_report", Status.NOT_CHECKED)
    assert not is_met(report)
    assert is_met(verified(house, right, by(*others, machine)))


def test_a_report_that_the_chips_key_did_not_sign_is_refused(house: Announcing, right: Certified) -> None:
    report = verified(house, right, by(Machine.made()))  # of the same number
    assert "its signature doesn't hold" in details(report, "machine_report")
    assert report.verdict == "invalid"


def test_a_report_on_another_head_is_refused(house: Announcing, certify: Certifying, machine: Machine) -> None:
    report = verified(house, certify(machine.report, head="1" * 64), by(machine))
    assert "about another code's digest or another head" in details(report, "machine_report")


def test_another_file_than_the_one_named_is_refused(house: Announcing, right: Certified, machine: Machine) -> None:
    for content in (machine.signed(right.content), RECORDED, b""):
        report = verified(house, replace(right, content=content), by(machine))
        assert "the certificate names another one" in details(report, "machine_report")


@pytest.mark.parametrize(
    "lie", [{"measurement": "0" * 96}, {"debugging": True}, {"migration": True}], ids=["measurement", "debugging", "migration"]
)
def test_a_certificate_that_says_otherwise_than_the_report_is_refused(
    house: Announcing, right: Certified, machine: Machine, lie: dict[str, object]
) -> None:
    facts = read(right.envelope).confidential
    assert facts is not None
    envelope = lied(right.envelope, house.settings, {"confidential": facts.model_dump() | lie})
    assert "the certificate states another" in details(verified(house, right, by(machine), envelope), "machine_report")


def test_a_report_without_its_file_or_a_logged_plan_is_refused(house: Announcing, right: Certified, machine: Machine) -> None:
    unlogged = lied(right.envelope, house.settings, {"announced": ABSENT})
    assert "the plan wasn't logged" in details(verified(house, right, by(machine), unlogged), "machine_report")

    def without_file(statement: dict[str, Any]) -> None:
        statement["subject"] = [subject for subject in statement["subject"] if subject["name"] != REPORT_FILE]

    unnamed = forged(right.envelope, house.settings, without_file)
    assert "doesn't name the file" in details(verified(house, right, by(machine), unnamed), "machine_report")


@pytest.mark.parametrize(("bit", "words"), [(DEBUGGING, "it is not confidential"), (MIGRATION, "may move it to another machine")])
def test_debugging_and_migration_are_said_and_meet_no_policy(
    house: Announcing, certify: Certifying, machine: Machine, bit: int, words: str
) -> None:
    open_guest = certify(lambda chosen: machine.report(chosen, policy=POLICY | bit))
    report = verified(house, open_guest, by(machine))
    assert words in details(report, "machine_report", Status.PASSED)
    assert words in details(verified(house, open_guest), "machine_report", Status.NOT_CHECKED)
    assert words in describe(read(open_guest.envelope))
    assert not is_met(report)


def test_a_policy_that_names_measurements_refuses_others(house: Announcing, right: Certified, machine: Machine) -> None:
    assert not is_met(verified(house, right, by(machine, measurements=("0" * 96,))))


def test_a_policy_for_intels_guests_alone_accepts_no_report_of_amds(house: Announcing, right: Certified) -> None:
    report = verified(house, right, policy_of({"tdx": {}}))
    details(report, "machine_report", Status.NOT_CHECKED)
    assert not is_met(report)


def test_a_policys_lists_of_revoked_certificates_count(house: Announcing, right: Certified, machine: Machine) -> None:
    fine, bad = revoking("ARK", machine.root, 7), revoking("ARK", machine.root, 1)
    report = verified(house, right, by(machine, revocations=(fine,)))
    assert "1 of the 2 certificates below the maker's root were looked up" in details(report, "machine_report", Status.PASSED)
    assert is_met(report)
    report = verified(house, right, by(machine, revocations=(bad,)))
    assert "its maker revoked a certificate" in details(report, "machine_report")
    assert report.verdict == "invalid"


def test_a_policy_with_other_certificates_cannot_be_written() -> None:
    with pytest.raises(ValidationError, match="three certificates are needed"):
        by(replace(Machine.made(), pem=CHAIN[: CHAIN.index("END")] + "END CERTIFICATE-----\n"))


def test_a_certificate_that_names_a_report_and_its_proofs_has_at_most_6_kb(house: Announcing, right: Certified) -> None:
    evidence = house.evidence(right.proofs)
    assert evidence.proofs is not None
    assert len(right.envelope) + len(evidence.proofs) <= 6000


def test_the_command_finds_the_report_beside_the_certificate(house: Announcing, right: Certified, machine: Machine, tmp_path: Path) -> None:
    evidence = house.evidence(right.proofs)
    assert evidence.proofs is not None
    files = {"certificate.json": right.envelope, "proofs.json": evidence.proofs, REPORT_FILE: right.content}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "policy.yaml").write_text(by(machine).model_dump_json())
    keys = tmp_path / "jwks.json"
    keys.write_text(jwks(house.settings).model_dump_json(exclude_none=True))
    command = ("verify", str(tmp_path / "certificate.json"), "--keys", str(keys))
    done = run_command(*command, "--policy", str(tmp_path / "policy.yaml"))
    assert "ok   machine_report: somebody in a guest asked with the code's digest" in done.stdout
    assert "-    machine_report: no certificate of a machine's key was given" in run_command(*command).stdout
    (tmp_path / REPORT_FILE).write_bytes(RECORDED)
    done = run_command(*command)
    assert "FAIL machine_report: the machine's report doesn't hold: the certificate names another one" in done.stdout
    assert done.returncode == 1


# The machine, asked


@pytest.fixture
def kernel(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel("sev_guest", machine.report)
    monkeypatch.setattr(confidential, "_asking", made.asking)
    return made


@pytest.mark.usefixtures("kernel")
def test_a_worker_asks_about_its_code_and_the_head_that_the_plan_is_under(
    house: Announcing, unprotected: CertificateInput, machine: Machine, tmp_path: Path
) -> None:
    job_id, announced = house.began()
    attempts: Attempts = house.attempts  # pyright: ignore[reportAssignmentType]
    settings = Settings(data_dir=house.settings.data_dir, confidential=tmp_path)
    found = completion.machine_said(attempts, settings, announced).confidential
    assert found is not None
    (tmp_path / REPORT_FILE).write_bytes(found[1])
    given = replace(unprotected, confidential=found[0], artifacts={**unprotected.artifacts, REPORT_FILE: tmp_path / REPORT_FILE})
    envelope, certificate_id = house.ended(job_id, announced, given)
    report = verified(house, Certified(envelope, house.proofs(certificate_id), found[1]), by(machine))
    assert report.verdict == "valid"
    assert is_met(report)


def test_a_machine_that_is_not_confidential_gives_no_report_and_ends_no_job(house: Announcing, tmp_path: Path) -> None:
    assert asked(house, tmp_path / "absent") == asked(house, None) == completion.Machine(None, None)
    with pytest.raises(MachineSilent, match="no report can be had"):
        machine_report(tmp_path, "0" * 64, "head\n")  # a plain folder, in which nobody answers


def test_a_finished_training_names_the_report_among_its_files(
    unprotected: CertificateInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SnpFacts(kind="amd_sev_snp", measurement="0" * 96, debugging=False, migration=False)
    signed: list[tuple[object, ...]] = []

    class Fenced:
        def succeed(self, *_given: object) -> None: ...

    def certificate(*given: object) -> bytes:
        signed.append(given)
        return b""

    monkeypatch.setattr(completion, "_report", lambda _workdir: unprotected.report)
    monkeypatch.setattr(completion, "_certificate", certificate)
    said = completion.Machine(None, (facts, RECORDED))
    monkeypatch.setattr(completion, "machine_said", lambda *_given: said)
    place = FolderWorkspace(tmp_path / "work", 1)
    (folder := place.folder / completion.ARTIFACTS).mkdir()
    (folder / REPORT_FILE).write_bytes(b"of an attempt before")
    given: Any = (None, unprotected, Fenced(), place, Settings(data_dir=tmp_path), None)
    completion.complete_training(*given)
    ((_, _, _, trained, *_, machine),) = signed
    assert (folder / REPORT_FILE).read_bytes() == RECORDED
    assert (trained, machine) == ({REPORT_FILE: folder / REPORT_FILE}, said)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("provider", "arm_cca_guest", "one of 'arm_cca_guest'"),
        ("provider", "tdx_guest", "its form is version 2; 4 and 5 are read"),
        ("generation", "2", "somebody else asked in the same place"),
        ("answer", lambda _: RECORDED, "about another code's digest"),
        ("answer", lambda _: b"", "a report has 1184 bytes, this has 0"),
    ],
    ids=["provider", "kind", "generation", "other", "empty"],
)
def test_what_a_machine_gives_is_checked_before_it_is_signed(
    kernel: Kernel, tmp_path: Path, field: str, value: object, reason: str
) -> None:
    setattr(kernel, field, value)
    with pytest.raises(MachineSilent, match=reason):
        machine_report(tmp_path, "0" * 64, "head\n")
