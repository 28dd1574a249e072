r"""Signatures of witnesses on a log's head (C2SP tlog-cosignature, Ed25519): somebody else saw that the log only grew up to it.

A witness signs one head of each size, and only what continues the last one it signed. Of n witnesses of which k are asked for, two
different histories can both be signed by k only if 2k - n witnesses sign both: so k is more than half.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.app.certificates.log.notes import COSIGNATURE, Note, NoteKey, NoteRefused, NoteSignature

_TIME = struct.Struct(">Q")
LATEST = 253_402_300_799
"""Seconds since 1970 at the end of the year 9999."""


@final
@dataclass(frozen=True)
class Cosignature:
    """A witness's signature that holds, and the time at which it was given, by the witness's clock."""

    witness: NoteKey
    time: datetime


def cosign(name: str, private: Ed25519PrivateKey, text: str, seconds: int) -> NoteSignature:
    """A witness's signature on a head's text, at a time since 1970."""
    key = witness_key(name, private)
    return NoteSignature(name, key.id, _TIME.pack(seconds) + private.sign(_signed(text, seconds)))


def witness_key(name: str, private: Ed25519PrivateKey) -> NoteKey:
    """The key that verifies what this one signs under this name."""
    return NoteKey(name, COSIGNATURE, private.public_key().public_bytes_raw())


def cosignatures_on(note: Note, witnesses: Sequence[NoteKey]) -> list[Cosignature]:
    r"""Those of these witnesses that signed the note, each once.

    Raises:
      NoteRefused: a signature says that it is by one of them, and isn't.
    """
    found: dict[bytes, Cosignature] = {}
    for signature in note.signatures:
        witness = next((one for one in witnesses if (one.name, one.id) == (signature.name, signature.key_id)), None)
        if witness is None:
            continue
        if len(signature.signature) != _TIME.size + 64:
            raise NoteRefused(f"has a signature by {witness.name} that isn't a witness's")
        (seconds,) = _TIME.unpack(signature.signature[: _TIME.size])
        if seconds > LATEST or not witness.has_signed(signature.signature[_TIME.size :], _signed(note.text, seconds)):
            raise NoteRefused(f"has a signature under the name of the witness {witness.name} that isn't its own, or was changed since")
        found.setdefault(witness.raw, Cosignature(witness, datetime.fromtimestamp(seconds, UTC)))
    return list(found.values())


def _signed(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()
