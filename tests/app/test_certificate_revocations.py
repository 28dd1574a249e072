"""Revoked signing keys: who signs next, what still stands, and what a list of revoked keys is worth."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import details, run_of
from tests.selection import thinned
from zetadp.app.certificates.errors import KeyAlreadyRevoked, SigningKeyNotFound, SigningKeyRevoked
from zetadp.app.certificates.facts.report import VerificationReport
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.log.evidence import Evidence, Signed
from zetadp.app.certificates.log.journal import size_of
from zetadp.app.certificates.log.merkle_proofs import encode
from zetadp.app.certificates.log.revocation_list import Reason, RevocationsRefused, read_revocations
from zetadp.app.certificates.log.revocations import revocations, revoke, signed_revocations
from zetadp.app.certificates.log.service import own_evidence, proofs_of
from zetadp.app.certificates.log.storing import store_certificate
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.jws import REVOCATIONS_CONTENT, REVOCATIONS_TYPE, sign
from zetadp.app.certificates.signing.keys import SigningKey, jwks, rotate, signing_key, signing_key_of
from zetadp.app.certificates.verification.opening import open_certificate
from zetadp.app.certificates.verification.verify import read_statement, verify
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobRow


class House:
    """A service's keys, log and database, without its processes."""

    def __init__(self, folder: Path, run: CertificateInput) -> None:
        self.settings = Settings(data_dir=folder)
        self.database = Database(self.settings)
        self.database.migrate()
        self._run, self._jobs = run, 0

    def signed(self) -> tuple[str, bytes]:
        """A job and its certificate, which isn't stored yet."""
        self._jobs += 1
        job_id = f"job-{self._jobs}"
        return job_id, issue_certificate(replace(self._run, job_id=job_id), self.settings)

    def stored(self, job_id: str, envelope: bytes) -> str:
        with self.database.writing() as session:
            session.add(JobRow(id=job_id, state="succeeded", created=now(), document={}))
            session.flush()
            return store_certificate(session, self.settings, job_id, envelope, now())

    def revoke(self, key: SigningKey, reason: Reason) -> None:
        with self.database.writing() as session:
            revoke(session, self.settings, key.public.kid, reason)

    def proof(self, certificate_id: str, size: int | None = None) -> bytes:
        with self.database.reading() as session:
            return encode(proofs_of(session, self.settings, certificate_id, size))

    def verified(self, envelope: bytes, proof: bytes | None = None, listed: bytes | None = None) -> VerificationReport:
        return verify(envelope, jwks(self.settings), None, Evidence(proof, listed or signed_revocations(self.settings)))


@pytest.fixture
def house(tmp_path: Path, run: CertificateInput) -> Generator[House]:
    made = House(tmp_path, run)
    yield made
    made.database.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    """Of a training without protection: it has a certificate like any other, and no figures that take a second to recompute."""
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


def test_after_a_revocation_the_newest_key_that_is_left_signs(house: House) -> None:
    first = signing_key(house.settings)
    second = rotate(house.settings)
    house.revoke(signing_key(house.settings), Reason.CEASED)
    assert signing_key(house.settings).public == first.public
    assert jwks(house.settings).keys == (second, first.public)


def test_revoking_the_last_key_makes_a_new_one_first(house: House) -> None:
    first = signing_key(house.settings)
    house.revoke(first, Reason.CEASED)
    assert signing_key(house.settings).public != first.public
    assert len(jwks(house.settings).keys) == 2


def test_a_revocation_stands(house: House) -> None:
    key = signing_key(house.settings)
    house.revoke(key, Reason.CEASED)
    with pytest.raises(KeyAlreadyRevoked, match=r"is already revoked \(ceased\)"):
        house.revoke(key, Reason.SUPERSEDED)


def test_a_superseded_key_may_still_turn_out_to_be_compromised_and_never_back(house: House) -> None:
    key = signing_key(house.settings)
    house.revoke(key, Reason.SUPERSEDED)
    house.revoke(key, Reason.COMPROMISED)
    found = revocations(house.settings).find(key.public.kid)
    assert found is not None
    assert found.reason is Reason.COMPROMISED
    with pytest.raises(KeyAlreadyRevoked):
        house.revoke(key, Reason.COMPROMISED)


def test_an_unknown_key_cannot_be_revoked(house: House) -> None:
    with pytest.raises(SigningKeyNotFound), house.database.writing() as session:
        revoke(session, house.settings, "a" * 43, Reason.CEASED)


def test_a_certificate_whose_key_was_revoked_meanwhile_is_not_stored(house: House) -> None:
    job_id, envelope = house.signed()
    house.revoke(signing_key(house.settings), Reason.SUPERSEDED)
    with pytest.raises(SigningKeyRevoked):
        house.stored(job_id, envelope)
    with house.database.reading() as session:
        assert size_of(session) == 0
    assert house.verified(*house.signed()[1:]).verdict == "valid"


def test_without_a_list_the_report_says_that_nobody_looked(house: House) -> None:
    _, envelope = house.signed()
    report = verify(envelope, jwks(house.settings), None)
    assert report.verdict == "valid"
    assert "revocation, log" in report.meaning


def test_what_was_logged_before_its_key_was_superseded_stands_with_its_proof(house: House) -> None:
    job_id, envelope = house.signed()
    certificate_id = house.stored(job_id, envelope)
    house.revoke(signing_key(house.settings), Reason.SUPERSEDED)
    house.stored(*house.signed())
    report = house.verified(envelope, house.proof(certificate_id, 1))
    assert report.verdict == "valid"
    assert [check.detail.endswith("it is in the log as it was then") for check in report.checks if check.name == "revocation"] == [True]


def test_without_a_proof_it_is_revoked(house: House) -> None:
    job_id, envelope = house.signed()
    house.stored(job_id, envelope)
    house.revoke(signing_key(house.settings), Reason.SUPERSEDED)
    report = house.verified(envelope)
    assert report.verdict == "revoked"
    assert "isn't proved to be from before: that takes a proof of inclusion in the log of 1" in details(report, "revocation")


def test_a_proof_of_the_log_as_it_is_now_does_not_show_that_it_is_from_before(house: House) -> None:
    job_id, envelope = house.signed()
    certificate_id = house.stored(job_id, envelope)
    house.revoke(signing_key(house.settings), Reason.SUPERSEDED)
    house.stored(*house.signed())
    assert house.verified(envelope, house.proof(certificate_id)).verdict == "revoked"


def test_what_a_key_signs_after_its_end_is_revoked_whatever_proof_comes_with_it(house: House, tmp_path: Path) -> None:
    # A thief of a superseded key: they sign a certificate, a log of their own of the same size that holds it, and its head.
    house.stored(*house.signed())
    job_id, envelope = house.signed()
    key = signing_key(house.settings)
    house.revoke(key, Reason.SUPERSEDED)
    thief = Database(Settings(data_dir=tmp_path / "thief"))
    thief.migrate()
    (tmp_path / "thief" / "keys").mkdir(mode=0o700)
    stolen = house.settings.data_dir / "keys" / "0001.pem"
    copy = tmp_path / "thief" / "keys" / "0001.pem"
    copy.write_bytes(stolen.read_bytes())
    copy.chmod(0o600)
    with thief.writing() as session:
        session.add(JobRow(id=job_id, state="succeeded", created=now(), document={}))
        session.flush()
        certificate_id = store_certificate(session, Settings(data_dir=tmp_path / "thief"), job_id, envelope, now())
    with thief.reading() as session:
        proof = encode(proofs_of(session, Settings(data_dir=tmp_path / "thief"), certificate_id))
    thief.close()
    report = house.verified(envelope, proof)
    assert report.verdict != "valid"
    assert "get a new proof" in details(report, "log")


def test_nothing_that_a_compromised_key_signed_stands_whatever_the_log_says(house: House) -> None:
    job_id, envelope = house.signed()
    certificate_id = house.stored(job_id, envelope)
    house.revoke(signing_key(house.settings), Reason.COMPROMISED)
    report = house.verified(envelope, house.proof(certificate_id, 1))
    assert report.verdict == "revoked"
    assert "don't trust anything that it signed, before that or after" in details(report, "revocation")


def test_the_service_finds_the_proof_for_what_is_from_before_by_itself(house: House) -> None:
    job_id, envelope = house.signed()
    house.stored(job_id, envelope)
    _, late = house.signed()
    house.revoke(signing_key(house.settings), Reason.SUPERSEDED)
    house.stored(*house.signed())
    verdicts = {}
    for name, text in (("before", envelope), ("late", late)):
        opened = open_certificate(text)
        with house.database.reading() as session:
            evidence = own_evidence(session, house.settings, Signed(opened.content, read_statement(text), opened.key_ids))
        verdicts[name] = verify(text, jwks(house.settings), None, evidence).verdict
    assert verdicts == {"before": "valid", "late": "revoked"}


# The list


def test_the_list_names_the_key_the_reason_and_the_log(house: House) -> None:
    house.stored(*house.signed())
    key = signing_key(house.settings)
    house.revoke(key, Reason.CEASED)
    found = read_revocations(signed_revocations(house.settings), jwks(house.settings)).find(key.public.kid)
    assert found is not None
    assert (found.reason, found.log_size) == (Reason.CEASED, 1)


def test_a_list_signed_by_a_key_that_it_revokes_is_refused(house: House) -> None:
    key = signing_key(house.settings)
    house.revoke(key, Reason.COMPROMISED)
    own = sign(canonical_json(revocations(house.settings)), REVOCATIONS_TYPE, REVOCATIONS_CONTENT, key)
    with pytest.raises(RevocationsRefused, match="which it revokes itself"):
        read_revocations(own, jwks(house.settings))


def test_a_list_of_a_stranger_is_refused(house: House, tmp_path: Path) -> None:
    with pytest.raises(RevocationsRefused, match="isn't among the 1 trusted"):
        read_revocations(signed_revocations(Settings(data_dir=tmp_path / "stranger")), jwks(house.settings))


@pytest.mark.parametrize("listed", thinned([b"", b"eyJ", b"{}", b"\xff", b"eyJhIjoxfQ.e30." + b"A" * 86], every=3))
def test_a_list_that_cannot_be_read_is_never_taken_for_an_empty_one(house: House, listed: bytes) -> None:
    _, envelope = house.signed()
    report = verify(envelope, jwks(house.settings), None, Evidence(None, listed))
    assert report.verdict == "invalid"
    assert details(report, "revocations").startswith("the list of revoked keys")


def test_every_changed_byte_of_a_list_is_noticed(house: House) -> None:
    house.revoke(signing_key(house.settings), Reason.CEASED)
    listed, keys = signed_revocations(house.settings), jwks(house.settings)
    for place in range(len(listed) - 1):
        with pytest.raises(RevocationsRefused):
            read_revocations(listed[:place] + bytes([listed[place] ^ 1]) + listed[place + 1 :], keys)


def test_a_list_with_more_in_it_is_refused(house: House) -> None:
    content = json.loads(canonical_json(revocations(house.settings))) | {"more": 1}
    listed = sign(json.dumps(content, sort_keys=True).encode(), REVOCATIONS_TYPE, REVOCATIONS_CONTENT, signing_key(house.settings))
    with pytest.raises(RevocationsRefused, match="isn't one that this version reads"):
        read_revocations(listed, jwks(house.settings))


def test_the_private_half_of_a_revoked_key_stays_where_it_is_for_its_jws(house: House) -> None:
    key = signing_key(house.settings)
    house.revoke(key, Reason.SUPERSEDED)
    found = signing_key_of(house.settings, key.public.kid)
    assert found is not None
    assert found.public == key.public
    assert "private" not in repr(found)
