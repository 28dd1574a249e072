r"""Ed25519 signing keys on disk, and the public key set that verifies what they signed.

Keys are numbered files in ``data_dir/keys``; the highest number that isn't revoked signs, and every one stays published, so that old
certificates can still be checked. A key's id is its RFC 7638 thumbprint: it follows from the key, and nobody can give a key another one's
name. Nothing of this is cached: another process's rotation or revocation counts from the next signature on.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field, StringConstraints, model_validator

from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

# Whoever only verifies waits for neither library of those who sign.
if TYPE_CHECKING:
    from joserfc.jwk import OKPKey
    from securesystemslib.signer import CryptoSigner  # pyright: ignore[reportPrivateImportUsage]

    from zetadp.app.kit.settings import Settings

# 32 bytes in base64url: 42 free characters and one that holds 4 bits, so that each key has one text only.
KeyText = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$")]

_FILE = re.compile(r"^([0-9]{4})\.pem$")


@final
class PublicKey(Value):
    r"""One Ed25519 public key as a JSON Web Key (RFC 8037).

    It has no ``alg``, which is optional: the curve says it all. PyJWT 2.15 doesn't know RFC 9864's name and would refuse the key, and the
    name in RFC 8037 is deprecated.

    Attributes:
      x: the 32 bytes of the key, base64url without padding.
      kid: its RFC 7638 thumbprint.
    Raises:
      ValidationError: ``kid`` isn't the thumbprint of ``x``.
    """

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: KeyText
    kid: KeyText
    use: Literal["sig"] = "sig"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (expected := _thumbprint(self.x)) != self.kid:
            raise InvalidParameter("kid", f"the key's own thumbprint {expected!r}", self.kid)
        return self

    @property
    def jwk(self) -> OKPKey:
        """The key as the JOSE library wants it."""
        from joserfc.jwk import OKPKey

        return OKPKey.import_key({"kty": self.kty, "crv": self.crv, "x": self.x})

    @property
    def raw(self) -> bytes:
        """Its 32 bytes."""
        return base64.urlsafe_b64decode(self.x + "=")

    def has_signed(self, signature: bytes, content: bytes) -> bool:
        """Whether this key's owner signed these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, content)
        except InvalidSignature:
            return False
        return True


@final
class PublicKeySet(Value):
    """The keys that a reader trusts (RFC 7517), at most 1000, newest first."""

    keys: Annotated[tuple[PublicKey, ...], Field(max_length=1000)]

    def find(self, key_id: str) -> PublicKey | None:
        """The key with this id, or None."""
        return next((key for key in self.keys if key.kid == key_id), None)


@final
@dataclass(frozen=True)
class SigningKey:
    """A private key and its public half. Never logged, never sent."""

    private: Ed25519PrivateKey = field(repr=False)
    public: PublicKey

    @property
    def signer(self) -> CryptoSigner:
        """The key as the signature library wants it."""
        from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

        return CryptoSigner(self.private, SSlibKey.from_crypto(self.private.public_key(), keyid=self.public.kid))


def signing_key(settings: Settings) -> SigningKey:
    """The newest key that isn't revoked; the first call in any process creates it.

    Raises:
      SigningKeyUnusable: a file that isn't an Ed25519 key, or that others may read; or every key is revoked.
    """
    files = _files(settings)
    valid = [path for path in files if not revocation_file(path).exists()]
    if not valid:
        raise SigningKeyUnusable(str(files[-1]), "every key is revoked; `zetadp certificate-keys rotate` makes a new one")
    return _signing_key(valid[-1])


def signing_key_of(settings: Settings, key_id: str) -> SigningKey | None:
    """The key with this id, revoked or not; None if this service doesn't have it. Raises SigningKeyUnusable for a file that isn't a key."""
    path = key_file(settings, key_id)
    return None if path is None else _signing_key(path)


def has_key(settings: Settings) -> bool:
    """Whether this machine has a key of the service's; none is made."""
    directory = settings.data_dir / "keys"
    return directory.is_dir() and any(_FILE.match(path.name) for path in directory.iterdir())


def signer(settings: Settings) -> CryptoSigner:
    """The key that signs, as the signature library wants it. Raises SigningKeyUnusable as ``signing_key`` does."""
    return signing_key(settings).signer


def key_files(settings: Settings) -> list[Path]:
    """Every key file, oldest first."""
    return _files(settings)


def key_file(settings: Settings, key_id: str) -> Path | None:
    """The file of the key with this id; None if this service doesn't have it."""
    return next((path for path in _files(settings) if _public(_load(path)).kid == key_id), None)


def is_revoked(settings: Settings, key_id: str) -> bool:
    """Whether this is one of the service's keys and revoked."""
    path = key_file(settings, key_id)
    return path is not None and revocation_file(path).exists()


def revocation_file(path: Path) -> Path:
    """The path of the revocation of the key in this file; the file's existence revokes the key."""
    return path.with_suffix(".revoked")


def jwks(settings: Settings) -> PublicKeySet:
    """Every public key of this service, newest first. Raises SigningKeyUnusable as ``signer`` does."""
    return PublicKeySet(keys=tuple(_public(_load(path)) for path in reversed(_files(settings))))


def rotate(settings: Settings) -> PublicKey:
    """Add a key that signs from now on; the older ones stay published."""
    newest = _files(settings)[-1]
    _create(newest.with_name(f"{int(newest.stem) + 1:04d}.pem"))
    return _public(_load(_files(settings)[-1]))


def _files(settings: Settings) -> list[Path]:
    directory = settings.data_dir / "keys"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = sorted(path for path in directory.iterdir() if _FILE.match(path.name))
    if not found:
        _create(directory / "0001.pem")
        return [directory / "0001.pem"]
    return found


def _create(path: Path) -> None:
    """Write a new key at ``path``, unless another process was first: then its key stays and ours is dropped."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    write_once(path, Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_once(path: Path, content: bytes) -> bool:
    """Write a file atomically, readable only by its owner; an existing file stays. Returns whether this call wrote it."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all and never replaces: nobody reads half a key, and one of two racing processes wins.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _load(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        raise SigningKeyUnusable(str(path), f"other users may read it (mode {mode:04o}); it must be 0600")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise SigningKeyUnusable(str(path), "it isn't an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyUnusable(str(path), f"it must be an Ed25519 key, got {type(key).__name__}")
    return key


def _signing_key(path: Path) -> SigningKey:
    private = _load(path)
    return SigningKey(private, _public(private))


def _public(private: Ed25519PrivateKey) -> PublicKey:
    x = _text(private.public_key().public_bytes_raw())
    return PublicKey(x=x, kid=_thumbprint(x))


def _thumbprint(x: str) -> str:
    # RFC 7638: the digest of the required members, in this order (RFC 8037).
    return _text(hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest())


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
