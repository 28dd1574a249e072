r"""Signatures of witnesses on a log's head (C2SP tlog-cosignature, Ed25519): somebody else saw that the log only grew up to it.

A witness signs one head of each size, and only what continues the last one it signed. Of n witnesses of which k are asked for, two
different histories can both be signed by k only if 2k - n witnesses sign both: so k is more than half.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.app.certificates.log.checkpoint import ORIGIN
from zetadp.app.certificates.log.notes import COSIGNATURE, MOST_SIGNATURES, Note, NoteKey, NoteRefused, NoteSignature

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


class WitnessesUnreadable(Exception):
    """The file of witnesses holds something else."""


@final
@dataclass(frozen=True)
class Asked:
    """A witness: where it answers, and the key that it signs with."""

    address: str
    key: NoteKey


def witnesses_in(path: Path | None) -> list[Asked]:
    """The witnesses in a file of lines with an address and a key. Raises WitnessesUnreadable."""
    if path is None:
        return []
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
        asked = [Asked(address.rstrip("/"), NoteKey.read(key)) for address, key in lines]
        _check_witnesses([one.key for one in asked])
    except (OSError, ValueError, NoteRefused) as error:
        raise WitnessesUnreadable(f"{path}: expected lines with a witness's address and its key: {error}") from error
    return asked


def _check_witnesses(keys: list[NoteKey]) -> None:
    """Raises ValueError unless each may count for one."""
    strangers = [key.name for key in keys if key.kind != COSIGNATURE]
    if strangers:
        raise ValueError(f"the key of {strangers[0]} is a log's, not a witness's")
    named_like_logs = [key.name for key in keys if key.name.startswith(ORIGIN)]
    if named_like_logs:  # of a head's signatures the log's own is known by its name, of which there may be one
        raise ValueError(f"the witness {named_like_logs[0]} is named like a log of certificates")
    if len({key.raw for key in keys}) != len(keys):
        raise ValueError("two lines have the same key")
    if len(keys) >= MOST_SIGNATURES:
        raise ValueError(f"there are at most {MOST_SIGNATURES - 1} witnesses, got {len(keys)}")


def signatures(checkpoint: str) -> int:
    """How many a checkpoint has."""
    return len(Note.read(checkpoint).signatures)
