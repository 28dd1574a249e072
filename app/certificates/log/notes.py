r"""Signed notes (C2SP signed-note): a text, an empty line, and a line for each signature. What log, witnesses and checkpoints share.

A signature line has the signer's name and, in base64, four bytes that name the key and the signature. A key is written as
``name+hash+key``: its name, the same four bytes in hexadecimal, and in base64 a byte for the kind of key and the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Self, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ED25519, COSIGNATURE = 1, 4
"""Kinds of keys: a log's, whose signature is over the text; a witness's, whose signature is over the text and a time."""
MOST_SIGNATURES = 32

_LINE = re.compile("\u2014 ([^\\s+]{1,200}) ([A-Za-z0-9+/]{8,4000}={0,2})\n")
_KEY = re.compile(r"([^\s+]{1,200})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})")


class NoteRefused(Exception):
    """It isn't a signed note, or not one that can be read."""


@final
@dataclass(frozen=True)
class NoteSignature:
    """One line: who signed, by name and key, and the signature."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """The line, with its end."""
        return f"\u2014 {self.name} {base64.b64encode(self.key_id + self.signature).decode()}\n"


@final
@dataclass(frozen=True)
class Note:
    """A note that was read; nobody has checked its signatures. ``text`` ends with a newline."""

    text: str
    signatures: tuple[NoteSignature, ...]

    @classmethod
    def read(cls, note: str) -> Self:
        """Raises NoteRefused for anything but a text and 1 to MOST_SIGNATURES lines of signatures after an empty line."""
        text, gap, lines = note.rpartition("\n\n")
        found = _LINE.findall(lines)
        if not gap or not found or len(found) > MOST_SIGNATURES:
            raise NoteRefused(f"isn't a text with 1 to {MOST_SIGNATURES} signatures after an empty line")
        signatures = tuple(signature_of(name, encoded) for name, encoded in found)
        if "".join(one.line for one in signatures) != lines:
            raise NoteRefused("has lines among its signatures that aren't laid out as such")
        return cls(f"{text}\n", signatures)


@final
@dataclass(frozen=True)
class NoteKey:
    """A public key that signs notes: Ed25519, of one of the two kinds."""

    name: str
    kind: int
    raw: bytes

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises NoteRefused unless it is a name, its hash and a key that belong together."""
        found = _KEY.fullmatch(text)
        if found is None:
            raise NoteRefused(f"isn't a key of the form name+hash+key: {text[:100]!a}")
        name, hash_, encoded = found.groups()
        content = from_base64(encoded)
        key = cls(name, content[0], content[1:])
        if content[0] not in (ED25519, COSIGNATURE) or key.id.hex() != hash_:
            raise NoteRefused(f"is a key of another kind, or its hash isn't its own: {text[:100]!a}")
        return key

    @property
    def id(self) -> bytes:
        """The four bytes by which a signature names its key."""
        return key_id(self.name, self.kind, self.raw)

    @property
    def text(self) -> str:
        """The key in one word."""
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(bytes([self.kind]) + self.raw).decode()}"

    def has_signed(self, signature: bytes, content: bytes) -> bool:
        """Whether this key's owner signed these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, content)
        except (InvalidSignature, ValueError):
            return False
        return True


def key_id(name: str, kind: int, raw: bytes) -> bytes:
    """Of any key."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + raw).digest()[:4]


def signature_of(name: str, encoded: str) -> NoteSignature:
    """Of a line's two parts. Raises NoteRefused."""
    content = from_base64(encoded)
    return NoteSignature(name, content[:4], content[4:])


def from_base64(text: str) -> bytes:
    """Raises NoteRefused unless it is the one text of these bytes."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NoteRefused("has base64 that can't be read") from error
    if base64.b64encode(content).decode() != text:
        raise NoteRefused("has base64 with bits beyond its last byte")
    return content
