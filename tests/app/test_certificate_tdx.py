"""An Intel TDX guest's quote beside a certificate, by keys of the tests' own under a root that stands in for Intel's."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import ValidationError

from tests.app.announced_harness import Announcing
from tests.app.certificates_harness import details, forged, lied
from tests.app.confidential_harness import Certified, Certifying, Kernel, asked, is_met, policy_of, verified
from tests.app.machine_harness import Machine, revoking
from tests.app.tdx_harness import ATTRIBUTES, MIGRATABLE, MRSEAM, MRTD, RECORDED, RTMRS, TdxMachine, trusted
from zetadp.app.certificates.facts.confidential import REPORT_FILE, TdxFacts
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.issuing import confidential
from zetadp.app.certificates.issuing.confidential import MachineSilent, machine_report
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.worker import completion

SAID = {"mrtd": MRTD.hex(), "mrseam": MRSEAM.hex(), "attributes": ATTRIBUTES.hex()}
SAID |= {f"rtmr{number}": value.hex() for number, value in enumerate(RTMRS)}


@pytest.fixture(scope="module")
def machine() -> Generator[TdxMachine]:
    made = TdxMachine.made()
    with trusted(made):
        yield made


@pytest.fixture(scope="module")
def certify(house: Announcing, unprotected: CertificateInput, tmp_path_factory: pytest.TempPathFactory) -> Certifying:
    return Certifying(house, unprotected, tmp_path_factory.mktemp("report"), "tdx_guest")


@pytest.fixture(scope="module")
def right(certify: Certifying, machine: TdxMachine) -> Certified:
    return certify(machine.report)


def test_a_quote_up_to_intels_root_passes_and_its_words_say_what_it_does_not_show(house: Announcing, right: Certified) -> None:
    report = verified(house, right, policy_of({"tdx": {}}))
    said = details(report, "machine_report", Status.PASSED)
    assert report.verdict == "valid"
    assert is_met(report)
    assert "(TCB), weren't looked at; no list of revoked certificates was given" in said
    text = describe(read(right.envelope))
    for words in (said, text):
        assert "it doesn't show that this code ran" in words
        assert MRTD.hex() in words
    assert len(text.splitlines()) <= 40
    assert details(verified(house, right), "machine_report", Status.PASSED) == said


def test_a_certificate_states_what_the_quote_says(right: Certified) -> None:
    facts = read(right.envelope).confidential
    assert isinstance(facts, TdxFacts)
    assert facts.model_dump() == {"kind": "intel_tdx"} | SAID


def test_a_certificate_with_a_quotes_measurements_and_its_proofs_has_at_most_6_kb(house: Announcing, right: Certified) -> None:
    evidence = house.evidence(right.proofs)
    assert evidence.proofs is not None
    assert len(right.envelope) + len(evidence.proofs) <= 6000


def test_without_file_or_proofs_nothing_has_passed(house: Announcing, right: Certified) -> None:
    policy, keys = policy_of({"tdx": {}}), jwks(house.settings)
    without_file = verify(right.envelope, keys, None, house.evidence(right.proofs), policy)
    without_proofs = verify(right.envelope, keys, None, Evidence(machine_report=right.content), policy)
    assert f"{REPORT_FILE} wasn't given" in details(without_file, "machine_report", Status.NOT_CHECKED)
    assert "isn't proved" in details(without_proofs, "machine_report", Status.NOT_CHECKED)
    assert not is_met(without_file)
    assert not is_met(without_proofs)


def test_a_quote_up_to_another_root_is_refused(house: Announcing, certify: Certifying) -> None:
    report = verified(house, certify(TdxMachine.made().report), policy_of({"tdx": {}}))
    assert "isn't of Intel's root key" in details(report, "machine_report")
    assert report.verdict == "invalid"
    assert report.policy is not None
    assert not report.policy.accepted


def test_a_quote_on_another_head_is_refused(house: Announcing, certify: Certifying, machine: TdxMachine) -> None:
    report = verified(house, certify(machine.report, head="1" * 64))
    assert "about another code's digest or another head" in details(report, "machine_report")


def test_another_file_than_the_one_named_is_refused(house: Announcing, right: Certified) -> None:
    for content in (RECORDED, right.content + b"\0", b""):
        report = verified(house, replace(right, content=content))
        assert "the certificate names another one" in details(report, "machine_report")


@pytest.mark.parametrize("field", sorted(SAID))
def test_a_certificate_that_says_otherwise_than_the_quote_is_refused(house: Announcing, right: Certified, field: str) -> None:
    lie = {"kind": "intel_tdx"} | SAID | {field: "0" * len(SAID[field])}
    envelope = lied(right.envelope, house.settings, {"confidential": lie})
    assert "the certificate states another" in details(verified(house, right, envelope=envelope), "machine_report")


def naming(content: bytes, envelope: bytes, house: Announcing) -> bytes:
    """The same certificate with another report among its files."""

    def change(statement: dict[str, Any]) -> None:
        next(one for one in statement["subject"] if one["name"] == REPORT_FILE)["digest"] = {"sha256": sha256_of(content)}

    return forged(envelope, house.settings, change)


def test_a_quote_of_a_guest_with_debugging_is_refused_whatever_the_certificate_says(
    house: Announcing, right: Certified, machine: TdxMachine
) -> None:
    open_guest = machine.report(qualifying_data("0" * 64, "0" * 64), attributes=b"\1" + ATTRIBUTES[1:])
    report = verified(house, replace(right, content=open_guest), envelope=naming(open_guest, right.envelope, house))
    assert "it is not confidential" in details(report, "machine_report")


def test_a_report_of_amds_that_is_called_a_quote_is_refused(house: Announcing, right: Certified) -> None:
    snp = Machine.made().report(b"chosen")
    report = verified(house, replace(right, content=snp), envelope=naming(snp, right.envelope, house))
    assert "its form is version 2; 4 and 5 are read" in details(report, "machine_report")


# By policies


@pytest.mark.parametrize("field", sorted(SAID))
def test_a_policy_names_measurements_and_refuses_others(house: Announcing, right: Certified, field: str) -> None:
    other = "0" * len(SAID[field])
    assert is_met(verified(house, right, policy_of({"tdx": {field: (other, SAID[field])}})))
    refused = verified(house, right, policy_of({"tdx": {field: (other,)}}))
    assert refused.verdict == "valid"
    assert not is_met(refused)
    assert refused.policy is not None
    assert f"with the {field} that are named" in next(rule.required for rule in refused.policy.rules if rule.name == "machines")


def test_a_policy_names_several_measurements_at_once(house: Announcing, right: Certified) -> None:
    named: dict[str, object] = {field: (value,) for field, value in SAID.items()}
    assert is_met(verified(house, right, policy_of({"tdx": named})))
    assert not is_met(verified(house, right, policy_of({"tdx": named | {"rtmr3": ("0" * 96,)}})))


def test_a_policy_with_keys_of_amds_alone_accepts_no_quote(house: Announcing, right: Certified) -> None:
    amd = (Machine.made().pem,)
    assert not is_met(verified(house, right, policy_of({"keys": amd})))
    assert is_met(verified(house, right, policy_of({"keys": amd, "tdx": {}})))


def test_migration_is_said_and_meets_no_policy(house: Announcing, certify: Certifying, machine: TdxMachine) -> None:
    open_guest = certify(lambda chosen: machine.report(chosen, attributes=MIGRATABLE))
    report = verified(house, open_guest, policy_of({"tdx": {}}))
    assert "may move it to another machine" in details(report, "machine_report", Status.PASSED)
    assert "may move it to another machine" in describe(read(open_guest.envelope))
    assert not is_met(report)


def test_a_policy_names_machines_and_others_meet_it_not(house: Announcing, right: Certified) -> None:
    report = verified(house, right, policy_of({"tdx": {"pck": ("2", "1")}}))
    assert is_met(report)
    assert report.policy is not None
    assert "on one of 2 machines" in next(rule.required for rule in report.policy.rules if rule.name == "machines")
    report = verified(house, right, policy_of({"tdx": {"pck": ("2",)}}))
    assert "by another of Intel's machines than those that are named" in details(report, "machine_report", Status.NOT_CHECKED)
    assert report.verdict == "valid"
    assert not is_met(report)


def test_a_policys_lists_of_revoked_certificates_count(house: Announcing, right: Certified, machine: TdxMachine) -> None:
    fine, bad = revoking("Platform CA", machine.between, 7), revoking("Platform CA", machine.between, 1)
    report = verified(house, right, policy_of({"tdx": {}, "revocations": (fine,)}))
    assert "1 of the 2 certificates below the maker's root were looked up" in details(report, "machine_report", Status.PASSED)
    assert is_met(report)
    report = verified(house, right, policy_of({"tdx": {}, "revocations": (fine, bad)}))
    assert "its maker revoked a certificate" in details(report, "machine_report")
    assert report.verdict == "invalid"


@pytest.mark.parametrize(
    ("machines", "reason"),
    [
        ({}, "keys of AMD's machines, or what is asked of Intel's"),
        ({"tdx": {"mrtd": ("0" * 95,)}}, "mrtd"),
        ({"tdx": {"attributes": ("01" + "0" * 14,)}}, "attributes"),
        ({"tdx": {"mrsigner": ()}}, "mrsigner"),
        ({"tdx": {"pck": ("01",)}}, "pck"),
        ({"tdx": {}, "revocations": ("text",)}, "a list of revoked certificates can't be read"),
    ],
    ids=["neither", "short", "debugging", "unknown", "zero before", "no list"],
)
def test_a_policy_that_asks_for_what_cannot_be_is_refused(machines: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        policy_of(machines)


# The machine, asked


@pytest.fixture
def kernel(machine: TdxMachine, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel("tdx_guest", machine.report)
    monkeypatch.setattr(confidential, "_asking", made.asking)
    return made


@pytest.mark.usefixtures("kernel")
def test_a_worker_in_such_a_guest_gets_a_quote(house: Announcing, tmp_path: Path) -> None:
    found = asked(house, tmp_path).confidential
    assert found is not None
    assert found[0].model_dump() == {"kind": "intel_tdx"} | SAID


def test_a_quote_padded_by_the_kernel_is_the_same(kernel: Kernel, machine: TdxMachine, house: Announcing, tmp_path: Path) -> None:
    kernel.answer = lambda chosen: machine.report(chosen).ljust(8192, b"\0")
    found = asked(house, tmp_path).confidential
    assert found is not None
    assert found[0].model_dump() == {"kind": "intel_tdx"} | SAID


def test_a_guest_with_debugging_gets_none(kernel: Kernel, machine: TdxMachine, tmp_path: Path) -> None:
    kernel.answer = lambda chosen: machine.report(chosen, attributes=b"\1" + ATTRIBUTES[1:])
    with pytest.raises(MachineSilent, match="it is not confidential"):
        machine_report(tmp_path, "0" * 64, "head\n")


def test_a_kernel_that_never_answers_is_given_up(
    kernel: Kernel, house: Announcing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Event()

    def never(_chosen: bytes) -> bytes:
        ended.wait(60)
        return b""

    kernel.answer = never
    monkeypatch.setattr(confidential, "ANSWER_SECONDS", 0.1)
    try:
        assert asked(house, tmp_path) == completion.Machine(None, None)
        (again := tmp_path / "again").mkdir()
        with pytest.raises(MachineSilent, match=r"there was no answer in .* for 0.1 seconds"):
            machine_report(again, "0" * 64, "head\n")
    finally:
        ended.set()
