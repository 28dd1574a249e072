"""Certificates as compact JWS: the same statement, one header, and nothing in it that is believed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from shutil import copytree

import pytest
from fastapi.testclient import TestClient
from joserfc import jws
from joserfc.jwk import OKPKey

from tests.app.certificates_harness import details
from tests.selection import thinned
from zetadp.app.certificates.errors import SigningKeyNotFound
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.jws import CERTIFICATE_CONTENT, CERTIFICATE_TYPE, CompactJws, JwsUnreadable, sign
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, rotate, signing_key
from zetadp.app.certificates.verification.opening import jws_of, open_certificate
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

SEED = 20260102


@pytest.fixture(scope="module")
def text(envelope: bytes, settings: Settings) -> bytes:
    return jws_of(Envelope.model_validate_json(envelope), settings)


def encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def header_of(text: bytes) -> dict[str, object]:
    first = text.split(b".")[0]
    return json.loads(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))


def resigned(text: bytes, settings: Settings, header: dict[str, object]) -> bytes:
    """The same payload under another header, with a signature of the service's own key that holds."""
    protected = encoded(json.dumps(header, separators=(",", ":"), sort_keys=True).encode()) + b"." + text.split(b".")[1]
    return protected + b"." + encoded(signing_key(settings).private.sign(protected)) + b"\n"


def test_the_jws_signs_the_statement_of_the_envelope(text: bytes, envelope: bytes) -> None:
    assert open_certificate(text).content == open_certificate(envelope).content


def test_the_header_has_these_fields_and_no_others(text: bytes, keys: PublicKeySet) -> None:
    expected = {"alg": "Ed25519", "cty": "vnd.in-toto+json", "kid": keys.keys[0].kid, "typ": "zetadp-certificate+jws"}
    assert header_of(text) == expected


def test_any_jose_library_verifies_it(text: bytes, keys: PublicKeySet) -> None:
    public = OKPKey.import_key(keys.keys[0].model_dump())
    registry = jws.JWSRegistry(algorithms=["Ed25519"])
    assert jws.deserialize_compact(text.strip().decode(), public, registry=registry).payload == open_certificate(text).content


@pytest.fixture(scope="module")
def served(text: bytes, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The key set as a service with these keys serves it, after one more was added."""
    later = Settings(data_dir=tmp_path_factory.mktemp("later"))
    copytree(settings.data_dir / "keys", later.data_dir / "keys")
    rotate(later)
    with TestClient(create_app(later), base_url="http://localhost") as client:
        keys = client.get("/.well-known/jwks.json").text
    assert len(json.loads(keys)["keys"]) >= 2
    return keys


def changed(text: bytes) -> str:
    """The JWS with one bit of its content changed."""
    protected, content, signature = text.strip().decode().split(".")
    return ".".join((protected, content[:-2] + ("A" if content[-2] != "A" else "E") + content[-1], signature))


def test_pyjwt_reads_every_key_and_verifies_it(text: bytes, served: str) -> None:
    library = pytest.importorskip("jwt", reason="PyJWT isn't installed")
    keys = library.PyJWKSet.from_json(served)
    assert [key.key_id for key in keys.keys] == [key["kid"] for key in json.loads(served)["keys"]]
    # PyJWT 2.15 knows this algorithm by its older name only.
    verifier = library.PyJWS()
    verifier.register_algorithm("Ed25519", library.algorithms.OKPAlgorithm())
    key = keys[library.get_unverified_header(text.strip().decode())["kid"]].key
    assert verifier.decode(text.strip().decode(), key, algorithms=["Ed25519"]) == open_certificate(text).content
    for broken, under in ((changed(text), key), (text.strip().decode(), keys.keys[0].key)):
        with pytest.raises(library.InvalidSignatureError):
            verifier.decode(broken, under, algorithms=["Ed25519"])


def test_jwcrypto_reads_every_key_and_verifies_it(text: bytes, served: str) -> None:
    jwk, theirs = (pytest.importorskip(f"jwcrypto.{name}", reason="jwcrypto isn't installed") for name in ("jwk", "jws"))
    keys = jwk.JWKSet.from_json(served)
    names = [key["kid"] for key in json.loads(served)["keys"]]
    assert {key["kid"] for key in keys["keys"]} == set(names)

    def opened(token: str, name: str) -> bytes:
        found = theirs.JWS()
        found.deserialize(token)
        found.verify(keys.get_key(name))
        return found.payload

    own = str(header_of(text)["kid"])
    assert opened(text.strip().decode(), own) == open_certificate(text).content
    for broken, under in ((changed(text), own), (text.strip().decode(), names[0])):
        with pytest.raises(theirs.InvalidJWSSignature):
            opened(broken, under)


def test_it_verifies_like_the_envelope(text: bytes, keys: PublicKeySet) -> None:
    report = verify(text, keys, None)
    assert (report.verdict, report.checks[0].detail) == ("valid", "a compact JWS, laid out as issued")


def test_a_final_newline_is_forgiven(text: bytes) -> None:
    assert open_certificate(text.removesuffix(b"\n")).content == open_certificate(text).content


def test_the_same_certificate_gives_the_same_jws(text: bytes, envelope: bytes, settings: Settings) -> None:
    assert jws_of(Envelope.model_validate_json(envelope), settings) == text


def test_no_other_key_signs_for_one_that_is_gone(envelope: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(SigningKeyNotFound):
        jws_of(Envelope.model_validate_json(envelope), Settings(data_dir=tmp_path_factory.mktemp("another")))


def test_alg_none_without_a_signature_is_refused(text: bytes, keys: PublicKeySet) -> None:
    header = encoded(json.dumps(header_of(text) | {"alg": "none"}, separators=(",", ":")).encode())
    for unsigned in (header + b"." + text.split(b".")[1] + b".", header + b"." + text.split(b".")[1] + b"." + b"A" * 86):
        assert verify(unsigned, keys, None).verdict == "invalid"


def test_the_public_key_is_never_taken_for_a_secret(text: bytes, keys: PublicKeySet) -> None:
    signed = encoded(json.dumps(header_of(text) | {"alg": "HS512"}, separators=(",", ":"), sort_keys=True).encode())
    signed += b"." + text.split(b".")[1]
    forged = signed + b"." + encoded(hmac.digest(keys.keys[0].raw, signed, hashlib.sha512))
    assert verify(forged, keys, None).verdict == "invalid"


@pytest.mark.parametrize(
    "change",
    thinned(
        [
            {"alg": "none"},
            {"alg": "HS256"},
            {"alg": "EdDSA"},
            {"alg": "ed25519"},
            {"typ": "JWT"},
            {"typ": "zetadp-revocations+jws"},
            {"cty": "json"},
            {"crit": ["exp"], "exp": 1},
            {"b64": False, "crit": ["b64"]},
            {"jwk": {"kty": "OKP"}},
            {"jku": "https://example.org/keys"},
            {"x5c": []},
            {"kid": "short"},
            {"zip": "DEF"},
        ],
        every=4,
    ),
    ids=str,
)
def test_any_other_header_is_refused_whoever_signed_it(
    text: bytes, settings: Settings, keys: PublicKeySet, change: dict[str, object]
) -> None:
    report = verify(resigned(text, settings, header_of(text) | change), keys, None)
    assert report.verdict == "invalid"
    assert [check.name for check in report.checks] == ["envelope"]


def test_a_header_laid_out_otherwise_is_refused(text: bytes, settings: Settings, keys: PublicKeySet) -> None:
    fields = header_of(text)
    protected = encoded(json.dumps(fields).encode()) + b"." + text.split(b".")[1]
    spaced = protected + b"." + encoded(signing_key(settings).private.sign(protected))
    assert "the header isn't laid out as issued" in details(verify(spaced, keys, None), "envelope")


def test_a_header_that_names_a_field_twice_is_refused(text: bytes, settings: Settings, keys: PublicKeySet) -> None:
    doubled = json.dumps(header_of(text), separators=(",", ":"), sort_keys=True).replace("{", '{"alg":"none",', 1).encode()
    protected = encoded(doubled) + b"." + text.split(b".")[1]
    signed = protected + b"." + encoded(signing_key(settings).private.sign(protected))
    assert verify(signed, keys, None).verdict == "invalid"


@pytest.mark.parametrize("added", thinned([b"=", b" ", b"\n\n", b".", b"\x00", b"\xc3\xa9"], every=3))
def test_what_is_added_at_the_end_is_refused(text: bytes, keys: PublicKeySet, added: bytes) -> None:
    assert verify(text.removesuffix(b"\n") + added, keys, None).verdict == "invalid"


def test_bits_beyond_the_last_byte_are_refused(text: bytes, keys: PublicKeySet) -> None:
    # 64 bytes leave 4 bits of the last of 86 characters unused: 16 texts decode to one signature.
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = text[-2]
    other = bytes([alphabet[alphabet.index(last) ^ 1]])
    assert "bits beyond its last byte" in details(verify(text[:-2] + other, keys, None), "envelope")


def test_a_payload_of_unknown_fields_is_refused(text: bytes, settings: Settings, keys: PublicKeySet) -> None:
    statement = json.loads(open_certificate(text).content) | {"more": 1}
    content = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    report = verify(sign(content, CERTIFICATE_TYPE, CERTIFICATE_CONTENT, signing_key(settings)), keys, None)
    assert "more: Extra inputs are not permitted" in details(report, "statement")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_payload_laid_out_otherwise_is_refused(text: bytes, settings: Settings, keys: PublicKeySet, indent: int | None) -> None:
    content = json.dumps(json.loads(open_certificate(text).content), sort_keys=indent is not None, indent=indent).encode()
    report = verify(sign(content, CERTIFICATE_TYPE, CERTIFICATE_CONTENT, signing_key(settings)), keys, None)
    assert "isn't laid out as issued" in details(report, "statement")


def test_a_signed_list_of_revoked_keys_is_no_certificate(settings: Settings, keys: PublicKeySet) -> None:
    assert "must have typ 'zetadp-certificate+jws'" in details(verify(signed_revocations(settings), keys, None), "envelope")


def test_a_large_payload_is_signed_and_read(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    # The library stops at 128000 bytes unless it is told otherwise, and certificates of comparisons are longer.
    content = b'"' + b"x" * 1_000_000 + b'"'
    signed = sign(content, CERTIFICATE_TYPE, CERTIFICATE_CONTENT, signing_key(settings))
    opened = CompactJws.read(signed, CERTIFICATE_TYPE, CERTIFICATE_CONTENT)
    assert opened.content == content
    assert opened.is_signed_by(jwks(settings).keys[0])
    assert not opened.is_signed_by(jwks(Settings(data_dir=tmp_path_factory.mktemp("another"))).keys[0])


def test_a_jws_that_is_too_large_is_refused() -> None:
    with pytest.raises(JwsUnreadable, match="must be at most 4194304 bytes"):
        CompactJws.read(b"eyJ" + b"a" * 4_194_304, CERTIFICATE_TYPE, CERTIFICATE_CONTENT)


@pytest.mark.parametrize("form", thinned(["dsse", "jws"], every=2))
def test_no_changed_byte_goes_unnoticed(text: bytes, envelope: bytes, keys: PublicKeySet, form: str) -> None:
    original = envelope if form == "dsse" else text
    assert verify(original, keys, None).verdict == "valid"
    chosen = random.Random(SEED)
    for _ in range(200):
        place, value = chosen.randrange(len(original) - 1), chosen.randrange(1, 256)
        changed = original[:place] + bytes([original[place] ^ value]) + original[place + 1 :]
        assert verify(changed, keys, None).verdict == "invalid", (place, value)
