r"""Certificates of federations over a network: who is trusted, what each site stated, and what contradicts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.certificate_kinds import FEDERATED, SITES
from tests.app.certificates_harness import finished_run, forged, site_key, statement_of
from tests.selection import thinned
from zetadp.app.certificates.errors import CertificateRefused
from zetadp.app.certificates.facts.report import Check, Status
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.verification.consistency import check_plan
from zetadp.app.certificates.verification.site_statements import check_site_statements
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.trainer.sites.keys import public_text
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import RunReport


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    return finished_run(tmp_path_factory.mktemp("sites"), **(FEDERATED | SITES))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(data_dir=tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def envelope(run: CertificateInput, settings: Settings) -> bytes:
    return issue_certificate(run, settings)


def _read(envelope: bytes) -> Statement:
    return Statement.model_validate_json(Envelope.model_validate_json(envelope).content)


def test_trust_is_stated_as_it_is(envelope: bytes) -> None:
    reading = Reading(_read(envelope).predicate)
    assert reading.trust.startswith("Nobody is trusted with a site's data but the site")
    assert "simulated" not in reading.trust
    assert any("nobody else saw its data, samples or noise" in one for one in reading.assumptions)


def test_with_secure_sums_trust_is_in_enough_honest_sites_and_in_the_masks(tmp_path: Path, settings: Settings) -> None:
    secure = {"aggregation": {"kind": "secure", "dropouts": 0, "colluding": 1}}
    reading = Reading(_read(issue_certificate(finished_run(tmp_path, **(FEDERATED | SITES | secure)), settings)).predicate)
    assert "as long as at least 1 of any 2 of the 2 nodes are honest: each one samples, clips and adds its share" in reading.trust
    assert "can't break X25519, Ed25519, SHA-256, AES-256 or ChaCha20-Poly1305" in reading.trust
    assert "whole noise" not in reading.trust
    assert any(one.startswith("the keys that each site's operator entered for the other sites are") for one in reading.assumptions)
    assert any(line.startswith("  In a round each site sent") and " bits under masks, in " in line for line in reading.done())


def test_each_site_is_named_with_what_it_stated(envelope: bytes) -> None:
    line = next(line for line in Reading(_read(envelope).predicate).done() if line.startswith("Sites: "))
    north, south = _read(envelope).predicate.run.sites
    assert f"north, key {north.key}: 0 of 40 answers counted; what its ledger charged isn't known; " in line
    last = f"by its last statement, {south.statement}, it had charged 13 rounds, and may have charged more since"
    assert (
        f"south, key {south.key}: 12 of 40 answers counted, 1 more didn't count, whose integers took 10000 bytes a round; {last}." in line
    )
    assert "statements.jsonl" in {subject.name for subject in _read(envelope).subject}


def test_sites_that_the_spec_doesnt_name_or_no_statements_are_not_certified(run: CertificateInput, settings: Settings) -> None:
    fewer = RunReport.model_validate(dict(run.report) | {"sites": run.report.sites[:1]})
    with pytest.raises(CertificateRefused, match="the sites"):
        issue_certificate(replace(run, report=fewer), settings)
    for lie in ({"arrived": 13, "uncounted": 0}, {"charged": 12}):
        north, south = run.report.sites
        told = RunReport.model_validate(dict(run.report) | {"sites": (north, SiteRecord.model_validate(dict(south) | lie))})
        with pytest.raises(CertificateRefused, match="what the sites' statements say"):
            issue_certificate(replace(run, report=told), settings)
    without = {name: path for name, path in run.artifacts.items() if name != "statements.jsonl"}
    with pytest.raises(CertificateRefused, match="a file of statements"):
        issue_certificate(replace(run, artifacts=without), settings)


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "more arrived than were charged": ({"arrived": 13}, "south has 14 statements and 13 rounds charged, of 40"),
    "more charged than there were": ({"charged": 41}, "south has 13 statements and 41 rounds charged, of 40"),
    "arrived without a statement": ({"statement": None}, "south has 13 statements and 13 rounds charged, of 40"),
    "one name twice": ({"name": "north"}, "a name or a key is stated twice"),
    "one key twice": ({"key": public_text(site_key("north"))}, "a name or a key is stated twice"),
}


@pytest.mark.parametrize("lie", thinned(LIES, every=3))
def test_what_contradicts_itself_is_found(envelope: bytes, settings: Settings, lie: str) -> None:
    changes, problem = LIES[lie]

    def change(statement: dict[str, Any]) -> None:
        site = statement["predicate"]["run"]["sites"][1]
        site.update(changes)
        if site["statement"] is None:
            del site["statement"]

    found = check_plan(_read(forged(envelope, settings, change)).predicate).detail
    assert problem in found


def test_what_the_sites_agreed_to_is_this_run(run: CertificateInput, settings: Settings, envelope: bytes) -> None:
    signed = run.report.proposal
    assert signed is not None
    assert isinstance(run.spec, FederatedZetaDpSgd)
    assert isinstance(run.plan, ExecutionPlan)
    assert signed == Proposal.of(run.spec, run.plan).signed
    assert f"only for proposal {signed.digest}" in "\n".join(Reading(_read(envelope).predicate).done())
    for lie in ({"digest": "0" * 64}, {"code": "0" * 64}, {"network": "0" * 64}):
        other = RunReport.model_validate(dict(run.report) | {"proposal": SignedProposal.model_validate(dict(signed) | lie)})
        with pytest.raises(CertificateRefused, match="what the sites agreed to"):
            issue_certificate(replace(run, report=other), settings)


def test_verification_reads_the_statements_beside_a_certificate(run: CertificateInput, envelope: bytes, tmp_path: Path) -> None:
    certificate = _read(envelope).predicate

    def check(content: bytes | None) -> Check:
        if content is not None:
            (tmp_path / "statements.jsonl").write_bytes(content)
        (found,) = check_site_statements(certificate, tmp_path)
        return found

    assert check(None).status is Status.NOT_CHECKED
    genuine = run.artifacts["statements.jsonl"].read_bytes()
    assert check(genuine).status is Status.PASSED
    lines = genuine.splitlines(keepends=True)
    assert check(b"".join(lines[:-1])).status is Status.FAILED
    assert check(genuine.replace(b'"counts": false', b'"counts": true')).status is Status.FAILED
    assert "signed by a site" in check(genuine.replace(b'\\"charged\\":3', b'\\"charged\\":2')).detail


def test_nobody_tested_what_only_sites_saw(envelope: bytes, settings: Settings) -> None:
    assert "noise_numbers" not in statement_of(envelope)["predicate"]["run"]

    def change(statement: dict[str, Any]) -> None:
        statement["predicate"]["run"]["noise_numbers"] = 1000

    found = check_plan(_read(forged(envelope, settings, change)).predicate).detail
    assert "never where the certificate is from" in found
