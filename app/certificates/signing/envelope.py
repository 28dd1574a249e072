r"""A DSSE envelope: a payload, its type and signatures over both (https://github.com/secure-systems-lab/dsse, version 1.0.2)."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field, StringConstraints

from zetadp.app.certificates.signing.keys import KeyText, PublicKey
from zetadp.mechanisms.base import Value

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner  # pyright: ignore[reportPrivateImportUsage]

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"

MAXIMUM_BYTES = 4 * 1024 * 1024
"""The largest envelope that is read; a real one has about 10 kB."""

_Base64 = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]*={0,2}$")]


@final
class EnvelopeSignature(Value):
    """One signature: 64 bytes of Ed25519 in base64, by the key with this RFC 7638 thumbprint."""

    keyid: KeyText
    sig: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]{85}[AQgw]==$")]


@final
class Envelope(Value):
    """The envelope as JSON holds it; at most 16 signatures."""

    payload: Annotated[_Base64, Field(max_length=MAXIMUM_BYTES)]
    payload_type: Annotated[Literal["application/vnd.in-toto+json"], Field(alias="payloadType")]
    signatures: Annotated[tuple[EnvelopeSignature, ...], Field(max_length=16)]

    @property
    def content(self) -> bytes:
        """The signed payload. Raises ValueError if its base64 isn't the canonical text of these bytes."""
        try:
            content = base64.b64decode(self.payload, validate=True)
        except binascii.Error as error:
            raise ValueError(f"the payload isn't base64: {error}") from error
        if base64.b64encode(content).decode() != self.payload:
            raise ValueError("the payload's base64 has bits beyond its last byte")
        return content

    def is_signed_by(self, key: PublicKey, signature: EnvelopeSignature) -> bool:
        """Whether this signature over payload and type is by this key. Raises ValueError as ``content`` does."""
        signed = _signed_bytes(self.payload_type, self.content)
        return signature.keyid == key.kid and key.has_signed(base64.b64decode(signature.sig), signed)


def sign(payload: bytes, signer: CryptoSigner) -> bytes:
    """The envelope around ``payload`` as JSON bytes, in the one layout that ``encode`` gives."""
    from securesystemslib import dsse

    envelope = dsse.Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return encode(Envelope.model_validate(envelope.to_dict()))


def encode(envelope: Envelope) -> bytes:
    """The one layout of an envelope: compact JSON in the standard's order, and a newline."""
    return json.dumps(envelope.model_dump(mode="json", by_alias=True), separators=(",", ":")).encode() + b"\n"


def _signed_bytes(kind: str, content: bytes) -> bytes:
    # DSSE's pre-authentication encoding; `sign` leaves it to the library, which takes longer to import than to verify.
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(content), content)
