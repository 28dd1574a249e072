"""Verification of envelopes that are broken, re-signed or no envelopes at all: invalid with a reason, never an exception."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.app.certificates_harness import details, forged, signed, statement_of
from tests.selection import thinned
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES, sign
from zetadp.app.certificates.signing.keys import PublicKey, PublicKeySet, jwks, signer
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings


def _repacked(envelope: bytes, **changes: object) -> bytes:
    return json.dumps({**json.loads(envelope), **changes}, separators=(",", ":")).encode() + b"\n"


# Signatures


def test_one_changed_character_of_the_payload_breaks_the_signature(envelope: bytes, keys: PublicKeySet) -> None:
    outer = json.loads(envelope)
    content = base64.b64decode(outer["payload"]).replace(b'"attempts":2', b'"attempts":1')
    report = verify(_repacked(envelope, payload=base64.b64encode(content).decode()), keys, None)
    assert "never signed it" in details(report, "signature")


def test_nothing_is_computed_before_the_signature_holds(envelope: bytes, keys: PublicKeySet) -> None:
    outer = json.loads(envelope)
    report = verify(_repacked(envelope, payload=base64.b64encode(b"{}").decode(), signatures=outer["signatures"]), keys, None)
    assert [check.name for check in report.checks] == ["envelope", "signature", "statement"]


def test_an_unknown_key_is_refused(envelope: bytes, tmp_path: Path) -> None:
    report = verify(envelope, jwks(Settings(data_dir=tmp_path)), None)
    assert "by a key that isn't among the 1 trusted" in details(report, "signature")


def test_no_key_at_all_verifies_nothing(envelope: bytes) -> None:
    assert "isn't among the 0 trusted" in details(verify(envelope, PublicKeySet(keys=()), None), "signature")


def test_no_signature_is_refused(envelope: bytes, keys: PublicKeySet) -> None:
    assert details(verify(_repacked(envelope, signatures=[]), keys, None), "signature") == "there is no signature"


def test_one_bad_signature_beside_a_good_one_is_refused(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    other = jwks(Settings(data_dir=tmp_path)).keys[0]
    good = json.loads(envelope)["signatures"][0]
    report = verify(_repacked(envelope, signatures=[good, {**good, "keyid": other.kid}]), PublicKeySet(keys=(*keys.keys, other)), None)
    assert report.verdict == "invalid"
    assert "never signed it" in details(report, "signature")


def test_one_signature_by_a_stranger_beside_a_good_one_is_refused(envelope: bytes, keys: PublicKeySet, tmp_path: Path) -> None:
    good = json.loads(envelope)["signatures"][0]
    stranger = jwks(Settings(data_dir=tmp_path)).keys[0].kid
    report = verify(_repacked(envelope, signatures=[good, {**good, "keyid": stranger}]), keys, None)
    assert report.verdict == "invalid"
    assert "isn't among the 1 trusted" in details(report, "signature")


def test_one_key_signing_twice_is_refused(envelope: bytes, keys: PublicKeySet) -> None:
    good = json.loads(envelope)["signatures"][0]
    assert details(verify(_repacked(envelope, signatures=[good, good]), keys, None), "signature") == "one key signed twice"


def test_a_signature_over_another_type_does_not_hold(envelope: bytes, keys: PublicKeySet) -> None:
    report = verify(_repacked(envelope, payloadType="text/plain"), keys, None)
    assert "payloadType: Input should be 'application/vnd.in-toto+json'" in details(report, "envelope")


def test_a_raw_signature_without_the_encoding_of_dsse_does_not_hold(envelope: bytes, tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    raw = base64.urlsafe_b64encode(private.public_key().public_bytes_raw()).decode().rstrip("=")
    members = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": raw}, separators=(",", ":")).encode()
    kid = base64.urlsafe_b64encode(hashlib.sha256(members).digest()).decode().rstrip("=")
    content = base64.b64decode(json.loads(envelope)["payload"])
    signature = {"keyid": kid, "sig": base64.b64encode(private.sign(content)).decode()}
    report = verify(_repacked(envelope, signatures=[signature]), PublicKeySet(keys=(PublicKey(x=raw, kid=kid),)), None)
    assert "never signed it" in details(report, "signature")


# Anything else


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    "text",
    thinned(
        [
            b"",
            b"\n",
            b"hello",
            b"null",
            b"[]",
            b"{}",
            b"NaN",
            b"\xff\xfe",
            b"\x00" * 100,
            DEEP,
            b'{"payload":' + DEEP + b"}",
            b'{"payload":1,"payloadType":"application/vnd.in-toto+json","signatures":[]}',
            b'{"payload":"%%%","payloadType":"application/vnd.in-toto+json","signatures":[]}',
            b'{"payload":"A","payloadType":"application/vnd.in-toto+json","signatures":[]}',
            b'{"payload":"AB==","payloadType":"application/vnd.in-toto+json","signatures":[]}',
            b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":{"a":1}}',
            b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"x","sig":"y"}]}',
            b" " * (MAXIMUM_BYTES + 1),
        ],
        every=4,
    ),
    ids=range(18),
)
def test_what_is_no_envelope_is_invalid(text: bytes, keys: PublicKeySet) -> None:
    report = verify(text, keys, None)
    assert report.verdict == "invalid"
    assert report.checks[0].name == "envelope"
    assert report.checks[0].detail


def test_a_payload_with_bits_beyond_its_last_byte_is_invalid(keys: PublicKeySet) -> None:
    text = b'{"payload":"AB==","payloadType":"application/vnd.in-toto+json","signatures":[]}'
    assert details(verify(text, keys, None), "envelope") == "the payload's base64 has bits beyond its last byte"


def test_a_reformatted_envelope_is_invalid_and_told_why(envelope: bytes, keys: PublicKeySet) -> None:
    text = json.dumps(json.loads(envelope), indent=2).encode()
    assert "reformatted or changed since" in details(verify(text, keys, None), "envelope")


@pytest.mark.parametrize("content", thinned(["a string", 1, None, [], {}, {"_type": "https://in-toto.io/Statement/v1"}], every=3))
def test_signed_nonsense_is_invalid(content: object, settings: Settings, keys: PublicKeySet) -> None:
    assert details(verify(signed(content, settings), keys, None), "statement")


def test_a_signed_statement_nested_without_end_is_invalid(settings: Settings, keys: PublicKeySet) -> None:
    assert details(verify(sign(DEEP, signer(settings)), keys, None), "statement")


def test_a_signed_plan_nested_ten_thousand_deep_is_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    plan = rfc8785.dumps(statement_of(envelope)["predicate"]["plan"])
    content = base64.b64decode(json.loads(envelope)["payload"])
    deep = b'{"kind":"comparison","parts":[{"plan":' * 10_000 + plan + b"}]}" * 10_000
    assert plan in content
    assert details(verify(sign(content.replace(plan, deep), signer(settings)), keys, None), "statement")


def test_a_signed_statement_that_names_a_key_twice_is_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    content = base64.b64decode(json.loads(envelope)["payload"]).replace(b'{"_type"', b'{"_type":"x","_type"')
    assert "names a key twice" in details(verify(sign(content, signer(settings)), keys, None), "statement")


def test_two_subjects_of_one_name_are_invalid(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    twice = forged(envelope, settings, lambda statement: statement["subject"].append(statement["subject"][0]))  # pyright: ignore
    assert details(verify(twice, keys, None), "statement") == "two subjects have the same name"


def test_a_subject_that_climbs_out_of_the_folder_is_refused(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    climbing = forged(envelope, settings, lambda statement: statement["subject"][0].update(name="../secret"))  # pyright: ignore
    assert "subject.0.name: String should match pattern" in details(verify(climbing, keys, None), "statement")


@hypothesis_settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_makes_it_invalid_with_a_reason(data: st.DataObject, envelope: bytes, keys: PublicKeySet) -> None:
    position = data.draw(st.integers(0, len(envelope) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != envelope[position]))
    report = verify(envelope[:position] + bytes([byte]) + envelope[position + 1 :], keys, None)
    assert report.verdict == "invalid"
    assert all(check.detail for check in report.checks)


def test_every_byte_outside_the_payload_matters(envelope: bytes, keys: PublicKeySet) -> None:
    start = envelope.index(b'","payloadType"')
    positions = [*range(12), *range(start, len(envelope))]
    still_valid = [
        p for p in positions if verify(envelope[:p] + bytes([envelope[p] ^ 1]) + envelope[p + 1 :], keys, None).verdict == "valid"
    ]
    assert still_valid == []


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.binary(max_size=200))
def test_arbitrary_bytes_are_invalid(text: bytes) -> None:
    assert verify(text, PublicKeySet(keys=()), None).verdict == "invalid"
