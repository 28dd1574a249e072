r"""Time stamps on the log's heads (RFC 3161): somebody else says that a head existed at a time.

What is stamped is the head's signed text, by its SHA-256. A stamp is an authority's whole answer, without the authority's certificates:
whoever checks one has them from elsewhere, in one PEM file: the certificate that signs, its root, and those between.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, final

from zetadp.app.certificates.signing.digests import sha256_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from rfc3161_client import TimeStampResponse, Verifier

CONTENT_TYPE = "application/timestamp-query"
_UNREADABLE = "isn't an authority's answer (RFC 3161)"


class StampRefused(ValueError):
    """It isn't a time stamp on this text by that authority."""


@final
@dataclass(frozen=True)
class Stamp:
    """A time stamp that was checked: when, and by whom (the subject of the certificate that signed)."""

    time: datetime
    authority: str


def stamp_request(text: str) -> tuple[bytes, int]:
    """The question for an authority, DER, and the number that its answer has to repeat."""
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    builder = TimestampRequestBuilder().data(text.encode()).hash_algorithm(HashAlgorithm.SHA256)
    asked = builder.nonce(nonce=True).cert_request(cert_request=False).build()
    assert asked.nonce is not None
    return asked.as_bytes(), asked.nonce


def accept_answer(answer: bytes, text: str, nonce: int) -> str:
    r"""An authority's answer as it is kept. It says that it is about this text and this question.

    Nobody's signature on it is checked here, since a service knows no authority's certificates: whoever answered may have made it up.

    Raises:
      StampRefused: it isn't such an answer.
    """
    response = _decoded(answer)
    try:
        stated = response.tst_info if response.status == 0 else None
    except (ValueError, LookupError) as error:  # such as a granted answer without a stamp in it
        raise StampRefused(_UNREADABLE) from error
    if stated is None:
        raise StampRefused("the authority didn't grant a time stamp")
    if stated.nonce != nonce:
        raise StampRefused("isn't an answer to this question")
    if stated.message_imprint.message.hex() != sha256_of(text.encode()):
        raise StampRefused("is about another text")
    _signer(response)
    return base64.b64encode(answer).decode()


def of_different_signers(stamps: Sequence[str]) -> list[str]:
    """The first stamp of each signer, as far as the stamps say who signed them; those that don't say it are left out."""
    found: dict[object, str] = {}
    for stamp in stamps:
        with suppress(StampRefused):
            found.setdefault(_signer(_read(stamp)), stamp)
    return list(found.values())


def check_stamp(stamp: str, text: str, authorities: Sequence[str]) -> Stamp:
    r"""The stamp, if one of these authorities gave it on this text.

    Args:
      stamp: an answer in base64.
      authorities: PEM texts, one for each.
    Raises:
      StampRefused: none of them did.
    """
    from rfc3161_client import VerificationError

    response, reason = _read(stamp), "no authority is trusted"
    for pem in authorities:
        signing, others = _certificates(pem)
        try:
            _verifier(signing, others).verify_message(response, text.encode())
            return Stamp(response.tst_info.gen_time, signing.subject.rfc4514_string())
        except (VerificationError, ValueError, LookupError, AssertionError) as error:
            reason = " ".join(str(error).split())[:200] or "its signature doesn't hold"
    raise StampRefused(f"isn't by a trusted authority, or not about this head: {reason}")


def check_authority(pem: str) -> None:
    """Raises StampRefused unless the PEM text has one certificate that stamps times, and a root."""
    _certificates(pem)


def _signer(response: TimeStampResponse) -> tuple[object, int]:
    """Issuer and number of the certificate that signed it by its own word. Raises StampRefused."""
    try:
        signers = [(one.issuer, one.serial_number) for one in response.signed_data.signer_infos]
    except (ValueError, LookupError) as error:
        raise StampRefused(_UNREADABLE) from error
    if len(signers) != 1:
        raise StampRefused(f"has {len(signers)} signers, not one")
    return signers[0]


def _read(stamp: str) -> TimeStampResponse:
    try:
        return _decoded(base64.b64decode(stamp, validate=True))
    except binascii.Error as error:
        raise StampRefused(_UNREADABLE) from error


def _decoded(answer: bytes) -> TimeStampResponse:
    from rfc3161_client import decode_timestamp_response

    try:
        return decode_timestamp_response(answer)
    except (ValueError, LookupError) as error:
        raise StampRefused(_UNREADABLE) from error


def _certificates(pem: str) -> tuple[Certificate, list[Certificate]]:
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext, SSLError

    from cryptography.x509 import DuplicateExtension, ExtendedKeyUsage, InvalidVersion, load_pem_x509_certificates
    from cryptography.x509.oid import ExtendedKeyUsageOID

    def stamps(certificate: Certificate) -> bool:
        uses = [one.value for one in certificate.extensions if isinstance(one.value, ExtendedKeyUsage)]
        return any(ExtendedKeyUsageOID.TIME_STAMPING in use for use in uses)

    try:
        found = load_pem_x509_certificates(pem.encode())
        # Two libraries read it later on. What the second can't read would end the process there, so it is asked here.
        SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
        signing = [certificate for certificate in found if stamps(certificate)]
        others = [certificate for certificate in found if not stamps(certificate)]
        is_rooted = any(certificate.issuer == certificate.subject for certificate in others)
    except (ValueError, LookupError, InvalidVersion, DuplicateExtension, SSLError) as error:
        raise StampRefused("the authority's certificates can't be read as PEM") from error
    if len(signing) != 1 or not is_rooted:
        raise StampRefused("an authority has one certificate that stamps times, and a root")
    return signing[0], others


def _verifier(signing: Certificate, others: list[Certificate]) -> Verifier:
    from rfc3161_client import VerifierBuilder

    builder = VerifierBuilder().tsa_certificate(signing)
    for certificate in others:
        is_root = certificate.issuer == certificate.subject
        builder = builder.add_root_certificate(certificate) if is_root else builder.add_intermediate_certificate(certificate)
    return builder.build()


_SEQUENCE, _SET, _OCTETS, _EXPLICIT, _INTEGER = 0x30, 0x31, 0x04, 0xA0, 0x02
"""Tags of DER."""


def signature_in(stamp: str) -> bytes:
    r"""What is the signer's own of the one signature in an answer, unchecked and without what an answer may say around it.

    Its bytes; of an ECDSA signature (r, s) r alone: everybody can write (r, -s) for it, and both hold. r follows from a secret number of
    the signer's, as s does, so nobody else knows it before.

    Args:
      stamp: an answer in base64.
    Raises:
      StampRefused: it isn't an answer with one signature.
    """
    from rfc3161_client import decode_timestamp_response

    try:
        # DER: the decoder takes nothing else. CMS: ContentInfo, SignedData, SignerInfos, SignerInfo, signature (RFC 5652, 5).
        token = decode_timestamp_response(base64.b64decode(stamp, validate=True)).time_stamp_token()
        ((_, content),) = [part for part in _parts(_inside(token, _SEQUENCE)) if part[0] == _EXPLICIT]
        infos = [part for part in _parts(_inside(content, _SEQUENCE)) if part[0] == _SET][-1]
        ((_, info),) = _parts(infos[1])
        ((_, signature),) = [part for part in _parts(info) if part[0] == _OCTETS]
    except (ValueError, IndexError) as error:
        raise StampRefused("isn't an authority's answer (RFC 3161) with one signature") from error
    return _without_s(signature)


def _without_s(signature: bytes) -> bytes:
    """Of two numbers in DER (ECDSA, DSA) the first, in the bytes that it needs; anything else as it is.

    By its form, since the algorithm's name beside it isn't signed. Of another kind's signatures one in 2^24 or fewer looks so.
    """
    try:
        (_, r), (_, _) = numbers = _parts(_inside(signature, _SEQUENCE))
    except (ValueError, IndexError):
        return signature
    return r.lstrip(b"\0") if all(tag == _INTEGER for tag, _ in numbers) else signature


def _inside(element: bytes, tag: int) -> bytes:
    """The contents of the one element. Raises ValueError."""
    ((found, content),) = _parts(element)
    if found != tag:
        raise ValueError(f"tag {found} instead of {tag}")
    return content


def _parts(content: bytes) -> list[tuple[int, bytes]]:
    """The elements one after the other, each with its tag. Raises ValueError or IndexError."""
    found: list[tuple[int, bytes]] = []
    place = 0
    while place < len(content):
        tag, size, begin = content[place], content[place + 1], place + 2
        if size >= 0x80:
            count = size - 0x80
            size, begin = int.from_bytes(content[begin : begin + count], "big"), begin + count
        if begin + size > len(content):
            raise ValueError("an element that isn't whole")
        found.append((tag, content[begin : begin + size]))
        place = begin + size
    return found
