r"""The forms of a signed certificate, distinguished by content: a DSSE envelope, or a compact JWS over the same statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from pydantic import ValidationError

from zetadp.app.certificates.errors import SigningKeyNotFound
from zetadp.app.certificates.facts.report import Check, failed
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES, Envelope, encode
from zetadp.app.certificates.signing.jws import CERTIFICATE_CONTENT, CERTIFICATE_TYPE, CompactJws, JwsUnreadable, sign
from zetadp.app.certificates.signing.keys import PublicKey, signing_key_of

if TYPE_CHECKING:
    from zetadp.app.kit.settings import Settings


@final
class CertificateUnreadable(Exception):
    """The envelope or what it signs can't be read; ``check`` says which and why."""

    def __init__(self, check: Check) -> None:
        self.check = check
        super().__init__(check.detail)


@final
@dataclass(frozen=True)
class Signature:
    """One signature of a certificate: the key that it names, and whether a key's signature it is."""

    key_id: str
    is_by: Callable[[PublicKey], bool]


@final
@dataclass(frozen=True)
class Opened:
    r"""A certificate whose form has been read; its signatures aren't checked yet.

    Attributes:
      form: what it is, in words.
      content: the statement's bytes, which are what is signed.
      signatures: at least one, by different keys.
    """

    form: str
    content: bytes
    signatures: tuple[Signature, ...]

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The keys that it names."""
        return tuple(signature.key_id for signature in self.signatures)


def open_certificate(text: bytes) -> Opened:
    """The form of a certificate. Raises CertificateUnreadable for anything that isn't laid out as issued."""
    if len(text) > MAXIMUM_BYTES:
        raise CertificateUnreadable(failed("envelope", f"must be at most {MAXIMUM_BYTES} bytes, got {len(text)}"))
    # A JWS's first part is a JSON object in base64url, so it begins with these letters; nothing else that is signed does.
    return _open_jws(text) if text.startswith(b"eyJ") else _open_dsse(text)


def jws_of(envelope: Envelope, settings: Settings) -> bytes:
    r"""The compact JWS over a stored envelope's statement, by the key that signed the envelope, revoked or not: no other vouches for it.

    Raises:
      SigningKeyNotFound: this service no longer has that key.
      SigningKeyUnusable: its file can't be read as one.
    """
    key_id = envelope.signatures[0].keyid
    key = signing_key_of(settings, key_id)
    if key is None:
        raise SigningKeyNotFound(key_id)
    return sign(envelope.content, CERTIFICATE_TYPE, CERTIFICATE_CONTENT, key)


def _open_dsse(text: bytes) -> Opened:
    try:
        envelope = Envelope.model_validate_json(text)
        content = envelope.content
    except ValidationError as error:
        raise CertificateUnreadable(failed("envelope", f"isn't a DSSE envelope of a certificate: {first_error(error)}")) from error
    except ValueError as error:
        raise CertificateUnreadable(failed("envelope", str(error))) from error
    if text.removesuffix(b"\n") != encode(envelope).removesuffix(b"\n"):
        reason = "the bytes aren't laid out as issued (compact JSON, one final newline): reformatted or changed since"
        raise CertificateUnreadable(failed("envelope", reason))
    if not envelope.signatures:
        raise CertificateUnreadable(failed("signature", "there is no signature"))
    if len({signature.keyid for signature in envelope.signatures}) != len(envelope.signatures):
        raise CertificateUnreadable(failed("signature", "one key signed twice"))
    signatures = tuple(Signature(one.keyid, _dsse_check(envelope, index)) for index, one in enumerate(envelope.signatures))
    return Opened("a DSSE envelope, laid out as issued", content, signatures)


def _dsse_check(envelope: Envelope, index: int) -> Callable[[PublicKey], bool]:
    return lambda key: envelope.is_signed_by(key, envelope.signatures[index])


def _open_jws(text: bytes) -> Opened:
    try:
        signed = CompactJws.read(text, CERTIFICATE_TYPE, CERTIFICATE_CONTENT)
    except JwsUnreadable as error:
        raise CertificateUnreadable(failed("envelope", f"the JWS {error}")) from error
    return Opened("a compact JWS, laid out as issued", signed.content, (Signature(signed.header.kid, signed.is_signed_by),))


def first_error(error: ValidationError) -> str:
    """At most 20 problems, with place and what was expected; never the value itself, which may be anything."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines: list[str] = []
    for problem in problems[:20]:
        place = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{place + ': ' if place else ''}{problem['msg'][:300]}")
    more = f" (and {len(problems) - 20} more)" if len(problems) > 20 else ""
    return "; ".join(lines) + more
