"""A TPM's quote in a certificate: what it has to be about, and that nothing else passes; by a software TPM where swtpm is installed."""

from __future__ import annotations

import base64
import hashlib
import shutil
import struct
import subprocess
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import ValidationError

from tests.app.announced_harness import Announcing
from tests.app.certificates_harness import ABSENT, details, lied
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.facts.tpm import TpmQuote, qualifying_data
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.issuing.tpm import TpmSilent, quoted
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.signing.tpm_quotes import PUBLIC_AREA, Quote, QuoteRefused
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import completion

CODE, HEAD = "0" * 64, "zetadp-log/x\n1\nAAAA\n"
RECORDED = TpmQuote(
    head="9fa3ff2482a4180ec491d01b885cd18de50a20d33ef91ee97debda6e2497f54f",
    key="C6FjxC24gF4d5hdyZr5VZ4t0XngH8hpyxwMh4MEmzzEimnv0yW0g8XjXAxuPi9/TysAYBiGVbdijAFSJx+hL9w==",
    registers=base64.b64encode(bytes(96)).decode(),
    attested=(
        "/1RDR4AYACIAC/nfgry3+XBDGIHG2Y0/KdPQIrqzGQIdIRuZoD7deEjFACA6ugvIqdlX6DISDWF5Mzcb5k+d9BfTS4ZFcYw8qMtZKwAAAAAAAARaaJlUWCma7mAB"
        "PrvZS+mGMEgAAAABAAsDkQAAACAuqauRmNFjgAdADNLDvvHMdFuGS3YBGg4bxSGArGRS1A=="
    ),
    signature="v+ctczrt8JNFOIL/St0Wwe+fXk7e+yefpkDYtm8va5NMAWIFjmvrTqhQaaLi3w8kfCoW5eh8mq33xCkD83vIWg==",
)
"""By swtpm 0.7.1 and tpm2-tools 5.4, over CODE and HEAD."""
PARTS = ("key", "registers", "attested", "signature")


def parts_of(quote: TpmQuote) -> Quote:
    return Quote(*(base64.b64decode(getattr(quote, name)) for name in PARTS))


def written(quote: Quote, head: str) -> dict[str, str]:
    return {"head": head} | {name: base64.b64encode(getattr(quote, name)).decode() for name in PARTS}


def made_up(key: EllipticCurvePrivateKey, qualifying: bytes, registers: bytes = bytes(96), kind: int = 0x8018) -> Quote:
    """A quote by whoever has a key, without any TPM."""
    numbers = key.public_key().public_numbers()
    x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
    name = b"\x00\x0b" + hashlib.sha256(PUBLIC_AREA + b"\x00\x20" + x + b"\x00\x20" + y).digest()
    signer = b"\x00\x0b" + hashlib.sha256(bytes.fromhex("40000001") + name).digest()
    selected = bytes.fromhex("00000001000b03910000")
    digest = hashlib.sha256(registers).digest()
    sized = [struct.pack(">H", len(part)) + part for part in (signer, qualifying, digest)]
    attested = struct.pack(">IH", 0xFF544347, kind) + sized[0] + sized[1] + bytes(25) + selected + sized[2]
    r, s = decode_dss_signature(key.sign(attested, ECDSA(SHA256())))
    return Quote(x + y, registers, attested, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


@pytest.fixture(scope="module")
def right(house: Announcing, unprotected: CertificateInput) -> tuple[bytes, Proofs]:
    """A certificate whose quote, by a key that is in no TPM, is about its own code and head."""
    job_id, announced = house.began()
    with house.database.reading() as session:
        head = sha256_of(head_of(session, house.settings, announced.head_size).text.encode())
    quote = made_up(generate_private_key(SECP256R1()), qualifying_data(sha256_of(code_manifest()), head))
    given = replace(unprotected, tpm=TpmQuote.model_validate(written(quote, head)))
    envelope, certificate_id = house.ended(job_id, announced, given)
    return envelope, house.proofs(certificate_id)


def verified(house: Announcing, envelope: bytes, proofs: Proofs) -> VerificationReport:
    return verify(envelope, jwks(house.settings), None, house.evidence(proofs))


# The quote itself


def test_a_recorded_quote_of_a_tpm_holds() -> None:
    parts_of(RECORDED).check(qualifying_data(CODE, RECORDED.head))
    assert RECORDED.head == sha256_of(HEAD.encode())


@pytest.mark.parametrize("part", PARTS)
def test_no_byte_of_a_quote_can_be_changed(part: str) -> None:
    honest, qualifying = parts_of(RECORDED), qualifying_data(CODE, RECORDED.head)
    content = getattr(honest, part)
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(QuoteRefused):
            replace(honest, **{part: changed}).check(qualifying)
    for changed in (content[:-1], content + b"\0", b""):
        with pytest.raises(QuoteRefused):
            replace(honest, **{part: changed}).check(qualifying)


@pytest.mark.parametrize(("code", "head"), [("1" * 64, RECORDED.head), (CODE, "1" * 64)])
def test_a_quote_about_another_code_or_head_is_refused(code: str, head: str) -> None:
    with pytest.raises(QuoteRefused, match="it is about another code's digest or another head of the log"):
        parts_of(RECORDED).check(qualifying_data(code, head))


def test_what_a_tpm_signs_of_another_kind_is_no_quote() -> None:
    other = made_up(generate_private_key(SECP256R1()), b"q", kind=0x8017)
    with pytest.raises(QuoteRefused, match="what is signed isn't a quote"):
        other.check(b"q")


def test_text_that_is_not_the_one_base64_of_its_bytes_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"tpm\.key must be base64"):
        TpmQuote.model_validate(dict(RECORDED) | {"key": RECORDED.key[:-3] + "R=="})


# In a certificate


def test_a_quote_is_checked_and_its_words_claim_nothing_of_a_tpm(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    # Whoever has a key makes such a quote: so the words must not say that a TPM signed.
    report = verified(house, *right)
    said = details(report, "tpm_quote", Status.PASSED)
    assert report.verdict == "valid"
    assert "the head that its plan is under" in said
    for words in (said, describe(read(right[0]))):
        assert "nobody vouched for that key" in words
        assert "not that the key is in a TPM, what software the machine ran, or that this code did" in words


def test_a_certificate_with_a_quote_and_its_proofs_has_at_most_6_kb(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    evidence = house.evidence(right[1])
    assert evidence.proofs is not None
    assert len(right[0]) + len(evidence.proofs) <= 6000


def test_without_proofs_it_is_said_that_the_head_is_not_proved(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    report = verify(right[0], jwks(house.settings), None, Evidence())
    assert "that its plan is under it isn't proved" in details(report, "tpm_quote", Status.PASSED)


def test_a_quote_about_another_head_than_its_plans_is_refused(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    quote = made_up(generate_private_key(SECP256R1()), qualifying_data(sha256_of(code_manifest()), "1" * 64))
    report = verified(house, lied(right[0], house.settings, {"tpm": written(quote, "1" * 64)}), right[1])
    assert "the head that it names isn't the one that the plan is under" in details(report, "tpm_quote")
    assert report.verdict == "invalid"


def test_a_quote_of_another_certificate_is_refused(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    report = verified(house, lied(right[0], house.settings, {"tpm": RECORDED.model_dump()}), right[1])
    assert details(report, "tpm_quote")


def test_a_quote_without_a_logged_plan_is_refused(house: Announcing, right: tuple[bytes, Proofs]) -> None:
    report = verified(house, lied(right[0], house.settings, {"announced": ABSENT}), right[1])
    assert "the plan wasn't logged" in details(report, "tpm_quote")


def test_a_tpm_that_is_not_there_gives_no_quote_and_ends_no_job(house: Announcing, tmp_path: Path) -> None:
    _, announced = house.began()
    attempts: Attempts = house.attempts  # pyright: ignore[reportAssignmentType]
    silent = Settings(data_dir=house.settings.data_dir, tpm=str(tmp_path / "no-tpm"))
    nothing = completion.Machine(None, None)
    assert completion.machine_said(attempts, silent, announced) == nothing
    assert completion.machine_said(attempts, house.settings, announced) == nothing
    assert completion.machine_said(attempts, silent, None) == nothing
    with pytest.raises(TpmSilent, match="tpm2_createprimary"):
        quoted(str(tmp_path / "no-tpm"), CODE, HEAD)


@pytest.mark.parametrize(("known", "proved", "accepted"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_policy_asks_for_a_quote_by_a_key_that_its_reader_knows(
    house: Announcing, right: tuple[bytes, Proofs], known: bool, proved: bool, accepted: bool
) -> None:
    quote = read(right[0]).tpm
    assert quote is not None
    asked = {"tpm_keys": (parts_of(quote).key_name if known else "0" * 64,)}
    limits = {"largest_epsilon": "100", "largest_delta": "0.1"}
    policy = Policy.model_validate({"name": "test", "unit": ("record",), "adjacency": ("add_remove",)} | limits | asked)
    report = verify(right[0], jwks(house.settings), None, house.evidence(right[1]) if proved else Evidence(), policy)
    assert report.policy is not None
    assert next(rule.is_met for rule in report.policy.rules if rule.name == "tpm_keys") == accepted


# A software TPM

needs_swtpm = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("swtpm", "tpm2_quote", "tpm2_createprimary", "tpm2_flushcontext")),
    reason="a software TPM needs the Debian packages swtpm, swtpm-tools and tpm2-tools",
)


@pytest.fixture(scope="module")
def tpm(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """How a software TPM is reached that was made just now."""
    folder = tmp_path_factory.mktemp("tpm")
    at = folder / "s"
    places = (f"dir={folder}", "--server", f"type=unixio,path={at}", "--ctrl", f"type=unixio,path={at}.ctrl")
    command = ("swtpm", "socket", "--tpm2", "--tpmstate", *places, "--flags", "not-need-init,startup-clear")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30.0
    while not at.exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    yield f"swtpm:path={at}"
    process.terminate()
    process.wait(30)


def asked(tpm: str, code: str, head: str) -> TpmQuote:
    """Nobody manages the keys that it has loaded, as /dev/tpmrm0 does."""
    subprocess.run(("tpm2_flushcontext", "-Q", "-T", tpm, "-t"), check=True, capture_output=True, timeout=60)
    return quoted(tpm, code, head)


@needs_swtpm
def test_a_tpm_quotes_with_the_same_key_every_time(tpm: str) -> None:
    first, second = asked(tpm, CODE, HEAD), asked(tpm, CODE, f"{HEAD} ")
    assert first.key == second.key
    assert first.attested != second.attested
    parts_of(second).check(qualifying_data(CODE, second.head))
    with pytest.raises(QuoteRefused, match="another code's digest or another head"):
        parts_of(second).check(qualifying_data(CODE, first.head))


@needs_swtpm
def test_a_worker_has_its_tpm_quote_the_head_that_the_plan_is_under(house: Announcing, unprotected: CertificateInput, tpm: str) -> None:
    job_id, announced = house.began()
    subprocess.run(("tpm2_flushcontext", "-Q", "-T", tpm, "-t"), check=True, capture_output=True, timeout=60)
    attempts: Attempts = house.attempts  # pyright: ignore[reportAssignmentType]
    found = completion.machine_said(attempts, Settings(data_dir=house.settings.data_dir, tpm=tpm), announced).quote
    assert found is not None
    envelope, certificate_id = house.ended(job_id, announced, replace(unprotected, tpm=found))
    report = verified(house, envelope, house.proofs(certificate_id))
    assert report.verdict == "valid"
    assert parts_of(found).key_name in details(report, "tpm_quote", Status.PASSED)


@needs_swtpm
def test_registers_are_those_that_the_tpm_holds(tpm: str) -> None:
    before = asked(tpm, CODE, HEAD)
    subprocess.run(("tpm2_pcrextend", "-T", tpm, f"7:sha256={'ab' * 32}"), check=True, capture_output=True, timeout=60)
    after = asked(tpm, CODE, HEAD)
    extended = hashlib.sha256(bytes(32) + bytes.fromhex("ab" * 32)).digest()
    assert parts_of(before).registers == bytes(96)
    assert parts_of(after).registers == bytes(64) + extended
