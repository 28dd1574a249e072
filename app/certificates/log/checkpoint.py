r"""Signed heads of the log, as checkpoints in a signed note (C2SP tlog-checkpoint and signed-note), which witnesses of logs read.

The text is the log's name, its size and its root, one line each; an empty line; and one signature line with the name and, in base64, four
bytes that hint at the key and the 64 of an Ed25519 signature over the text. The log's name is ``zetadp-log/`` and the thumbprint of the
service's first key: unique without a setting, and it never changes. The keys are those of the certificates: what they sign there begins
with ``DSSEv1`` or ``eyJ``, so that no text is ever both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Annotated, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field, StringConstraints

from zetadp.app.certificates.facts.statement import Sha256
from zetadp.app.certificates.signing.keys import PublicKey, PublicKeySet, SigningKey
from zetadp.mechanisms.base import Value

ORIGIN = "zetadp-log/"
LARGEST_LOG = 2**62
LONGEST_CHECKPOINT = 1000
"""Characters; ours have about 300."""

Origin = Annotated[str, StringConstraints(strict=True, pattern=r"^zetadp-log/[A-Za-z0-9_-]{43}$")]
LogSize = Annotated[int, Field(strict=True, ge=0, le=LARGEST_LOG)]
CheckpointText = Annotated[str, StringConstraints(strict=True, max_length=LONGEST_CHECKPOINT)]

_LINES = re.compile(r"(zetadp-log/[A-Za-z0-9_-]{43})\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n\n\u2014 (\S+) ([A-Za-z0-9+/]{91}=)\n")
_ED25519 = b"\x01"


@final
class LogHead(Value):
    """The log at one moment: its name, how many certificates it holds, and the root over them."""

    origin: Origin
    size: LogSize
    root: Sha256

    @property
    def text(self) -> str:
        """The signed text."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(bytes.fromhex(self.root)).decode()}\n"


@final
class CheckpointRefused(Exception):
    """The checkpoint can't be read, or isn't signed by a trusted key."""


def origin_of(first_key: PublicKey) -> str:
    """The name of the log of the service whose first key this is."""
    return f"{ORIGIN}{first_key.kid}"


def sign_checkpoint(head: LogHead, key: SigningKey) -> str:
    """The head, signed."""
    signature = base64.b64encode(_hint(head.origin, key.public) + key.private.sign(head.text.encode())).decode()
    return f"{head.text}\n\u2014 {head.origin} {signature}\n"


def open_checkpoint(text: str, keys: PublicKeySet) -> tuple[LogHead, PublicKey]:
    r"""The head and the key that signed it.

    Raises:
      CheckpointRefused: it isn't laid out as ours are, or no key of these signed it.
    """
    found = _LINES.fullmatch(text)
    if found is None:
        raise CheckpointRefused("isn't a checkpoint of one log with one signature, laid out as issued")
    origin, size, root, name, signature = found.groups()
    if name != origin:
        raise CheckpointRefused("is signed under a name that isn't the log's")
    if int(size) > LARGEST_LOG:
        raise CheckpointRefused(f"a log has at most {LARGEST_LOG} entries, got {size}")
    head = LogHead(origin=origin, size=int(size), root=_canonical(root).hex())
    raw = _canonical(signature)
    for key in keys.keys:
        if raw[:4] == _hint(origin, key) and _is_signed(key, raw[4:], head.text.encode()):
            return head, key
    raise CheckpointRefused(f"isn't signed by one of the {len(keys.keys)} trusted keys, or was changed since")


def _canonical(text: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CheckpointRefused("has base64 that can't be read") from error
    if base64.b64encode(content).decode() != text:
        raise CheckpointRefused("has base64 with bits beyond its last byte")
    return content


def _hint(name: str, key: PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + key.raw).digest()[:4]


def _is_signed(key: PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, content)
    except InvalidSignature:
        return False
    return True
