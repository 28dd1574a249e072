r"""Ed25519 keys of sites and of coordinators: a PEM file that only its owner reads, and a public key of 64 hexadecimal digits."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from pydantic import StringConstraints

from zetadp.mechanisms.errors import InvalidParameter

SIGNATURE_BYTES = 64

PublicKeyText = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
"""The 32 bytes of an Ed25519 public key in hexadecimal."""


def public_text(key: Ed25519PrivateKey) -> str:
    """The public half, as text."""
    return key.public_key().public_bytes_raw().hex()


def make_key(path: Path) -> Ed25519PrivateKey:
    """A new key in a new file. Raises FileExistsError if there is one: its statements would no longer be anybody's."""
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    return key


def load_key(path: Path) -> Ed25519PrivateKey:
    r"""The key in a file.

    Raises:
      InvalidParameter: the file isn't an Ed25519 key, or others than its owner may read it.
      OSError: it can't be read.
    """
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InvalidParameter("key file", "readable by its owner alone (chmod 600)", str(path))
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise InvalidParameter("key file", "an unencrypted Ed25519 key in PEM", str(path)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidParameter("key file", "an Ed25519 key", str(path))
    return key


def is_signed(public: str, signature: bytes, content: bytes) -> bool:
    """Whether this public key signed the content."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
