r"""Compact JWS (RFC 7515) of two kinds: certificates, and the list of revoked keys. Only Ed25519 (RFC 9864), one header, one spelling.

The header has exactly four fields, and nothing in it is ever followed or trusted. ``alg`` is compared, not used to choose; ``kid`` only
picks among the keys that the reader trusts; a key in the header (``jwk``, ``jku``, ``x5c``) and ``crit`` are refused like all other fields.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self, final

from pydantic import StringConstraints, ValidationError

from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES
from zetadp.app.certificates.signing.keys import KeyText, PublicKey, SigningKey
from zetadp.mechanisms.base import Value

if TYPE_CHECKING:
    from joserfc import jws

MEDIA_TYPE = "application/jose"
ALGORITHM = "Ed25519"

CERTIFICATE_TYPE = "zetadp-certificate+jws"
CERTIFICATE_CONTENT = "vnd.in-toto+json"
REVOCATIONS_TYPE = "zetadp-revocations+jws"
REVOCATIONS_CONTENT = "json"

_PARTS = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{86})\n?")
_NAME = r"^[a-z0-9.+-]{1,100}$"


@final
class Header(Value):
    r"""The protected header.

    Attributes:
      cty: what the payload is, and ``typ`` what the whole is: media types without ``application/``.
      kid: the RFC 7638 thumbprint of the key.
    """

    alg: Literal["Ed25519"]
    cty: Annotated[str, StringConstraints(strict=True, pattern=_NAME)]
    kid: KeyText
    typ: Annotated[str, StringConstraints(strict=True, pattern=_NAME)]


class JwsUnreadable(ValueError):
    """It isn't a JWS as this service makes them."""


@final
@dataclass(frozen=True)
class CompactJws:
    """A JWS that has been read; nothing says yet that its signature holds."""

    header: Header
    content: bytes
    text: str

    @classmethod
    def read(cls, text: bytes, kind: str, content_type: str) -> Self:
        """Raises JwsUnreadable for anything that isn't laid out as by ``sign`` (a missing final newline is accepted)."""
        if len(text) > MAXIMUM_BYTES:
            raise JwsUnreadable(f"must be at most {MAXIMUM_BYTES} bytes, got {len(text)}")
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise JwsUnreadable("isn't a compact JWS with an Ed25519 signature")
        protected, content, _ = (_decoded(part) for part in parts.groups())
        try:
            header = Header.model_validate_json(protected)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(str(part) for part in problem["loc"])
            raise JwsUnreadable(f"header {place}: {problem['msg'][:200]}") from error
        if canonical_json(header) != protected:
            raise JwsUnreadable("the header isn't laid out as issued: reformatted or changed since")
        if (header.typ, header.cty) != (kind, content_type):
            raise JwsUnreadable(f"must have typ {kind!r} and cty {content_type!r}, got {header.typ!r} and {header.cty!r}")
        return cls(header, content, text.decode().removesuffix("\n"))

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether this key signed header and content."""
        from joserfc import jws
        from joserfc.errors import JoseError

        try:
            jws.deserialize_compact(self.text, key.jwk, registry=_registry())
        except JoseError:
            return False
        return True


def sign(payload: bytes, kind: str, content_type: str, key: SigningKey) -> bytes:
    """The compact JWS, ending in a newline. The same bytes every time: Ed25519 has no randomness."""
    from joserfc import jws
    from joserfc.jwk import OKPKey

    header = Header(alg=ALGORITHM, cty=content_type, kid=key.public.kid, typ=kind)
    # The library writes a header in the order that it is given, and ours is that of the canonical form.
    fields = dict(sorted(header.model_dump().items()))
    return jws.serialize_compact(fields, payload, OKPKey.import_key(key.private), registry=_registry()).encode() + b"\n"


def _registry() -> jws.JWSRegistry:
    from joserfc import jws

    registry = jws.JWSRegistry(algorithms=[ALGORITHM])
    registry.max_payload_length = MAXIMUM_BYTES
    return registry


def _decoded(part: bytes) -> bytes:
    try:
        content = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error as error:
        raise JwsUnreadable("has base64url that can't be read") from error
    if base64.urlsafe_b64encode(content).rstrip(b"=") != part:
        raise JwsUnreadable("has base64url with bits beyond its last byte")
    return content
