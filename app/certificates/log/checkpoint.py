r"""Signed heads of the log, as checkpoints in a signed note (C2SP tlog-checkpoint and signed-note), which witnesses of logs read.

The text is the log's name, its size and its root, one line each; an empty line; and the signatures: the service's own, and those of
witnesses (``cosignatures``). The log's name is ``zetadp-log/`` and the thumbprint of the service's first key: unique without a setting, and
it never changes. The keys are those of the certificates: what they sign there begins with ``DSSEv1`` or ``eyJ``, so that no text is ever
both.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Annotated, final

from pydantic import Field, StringConstraints

from zetadp.app.certificates.facts.phrases import so_many
from zetadp.app.certificates.facts.statement import Sha256
from zetadp.app.certificates.log.notes import ED25519, Note, NoteKey, NoteRefused, NoteSignature, from_base64
from zetadp.app.certificates.signing.keys import PublicKey, PublicKeySet, SigningKey
from zetadp.mechanisms.base import Value

ORIGIN = "zetadp-log/"
LARGEST_LOG = 2**62
LONGEST_CHECKPOINT = 8000
"""Characters; ours have about 300, and 130 for each witness."""

Origin = Annotated[str, StringConstraints(strict=True, pattern=r"^zetadp-log/[A-Za-z0-9_-]{43}$")]
LogSize = Annotated[int, Field(strict=True, ge=0, le=LARGEST_LOG)]
CheckpointText = Annotated[str, StringConstraints(strict=True, max_length=LONGEST_CHECKPOINT)]

_HEAD = re.compile(r"([^\s+]{1,200})\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n")
_OURS = re.compile(r"zetadp-log/[A-Za-z0-9_-]{43}")


@final
class LogHead(Value):
    """The log at one moment: its name, how many entries it holds, and the root over them."""

    origin: Origin
    size: LogSize
    root: Sha256

    @property
    def text(self) -> str:
        """The signed text."""
        return head_text(self.origin, self.size, bytes.fromhex(self.root))


@final
@dataclass(frozen=True)
class ReadHead:
    """The three lines of any log's checkpoint."""

    origin: str
    size: int
    root: bytes


@final
class CheckpointRefused(Exception):
    """The checkpoint can't be read, or isn't signed by a trusted key."""


def head_text(origin: str, size: int, root: bytes) -> str:
    """What is signed of a head."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"


def origin_of(first_key: PublicKey) -> str:
    """The name of the log of the service whose first key this is."""
    return f"{ORIGIN}{first_key.kid}"


def log_key(origin: str, key: PublicKey) -> NoteKey:
    """A key of the service as a key of its log."""
    return NoteKey(origin, ED25519, key.raw)


def sign_checkpoint(head: LogHead, key: SigningKey) -> str:
    """The head, signed."""
    signature = NoteSignature(head.origin, log_key(head.origin, key.public).id, key.private.sign(head.text.encode()))
    return f"{head.text}\n{signature.line}"


def read_head(note: Note) -> ReadHead:
    """The head that a note of any log states. Raises NoteRefused."""
    found = _HEAD.fullmatch(note.text)
    if found is None:
        raise NoteRefused("isn't a log's name, size and root, one line each")
    origin, size, root = found.groups()
    if int(size) > LARGEST_LOG:
        raise NoteRefused(f"states more than {LARGEST_LOG} entries")
    return ReadHead(origin, int(size), from_base64(root))


def open_checkpoint(text: str, keys: PublicKeySet) -> tuple[LogHead, PublicKey]:
    r"""The head and the key of the service that signed it. Other signatures, which are witnesses', aren't looked at.

    Raises:
      CheckpointRefused: it isn't laid out as ours are, or no key of these signed it.
    """
    try:
        note = Note.read(text)
        head = read_head(note)
    except NoteRefused as refused:
        raise CheckpointRefused(str(refused)) from refused
    if _OURS.fullmatch(head.origin) is None:
        raise CheckpointRefused("is of a log that isn't one of certificates")
    own = [one for one in note.signatures if one.name == head.origin]
    if len(own) != 1:
        raise CheckpointRefused("must have exactly one signature under the log's name")
    for key in keys.keys:
        known = log_key(head.origin, key)
        if own[0].key_id == known.id and known.has_signed(own[0].signature, note.text.encode()):
            return LogHead(origin=head.origin, size=head.size, root=head.root.hex()), key
    raise CheckpointRefused(f"isn't signed by a trusted key ({so_many(len(keys.keys), 'key', 'keys')} given), or was changed since")
