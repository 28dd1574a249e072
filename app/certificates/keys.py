r"""Ed25519 signing keys on disk, and the public key set that verifies what they signed.

Keys are numbered files in ``data_dir/keys``; the highest number signs, and every one stays published, so that old certificates can
still be checked. A key's id is its RFC 7638 thumbprint: it follows from the key, and nobody can give a key another one's name.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Annotated, Literal, Self, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from joserfc.jwk import OKPKey
from pydantic import Field, StringConstraints, model_validator
from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from app.certificates.errors import SigningKeyUnusable
from app.settings import Settings
from mechanisms.base import Value
from mechanisms.errors import InvalidParameter

# 32 bytes in base64url: 42 free characters and one that holds 4 bits, so that each key has one text only.
KeyText = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$")]

_FILE = re.compile(r"^([0-9]{4})\.pem$")


@final
class PublicKey(Value):
    r"""One Ed25519 public key as a JSON Web Key (RFC 8037).

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
    alg: Literal["Ed25519"] = "Ed25519"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (expected := self._jwk.thumbprint()) != self.kid:
            raise InvalidParameter("kid", f"the key's own thumbprint {expected!r}", self.kid)
        return self

    @property
    def _jwk(self) -> OKPKey:
        return OKPKey.import_key({"kty": self.kty, "crv": self.crv, "x": self.x})

    @property
    def verifier(self) -> SSlibKey:
        """The key as the signature library wants it."""
        return SSlibKey.from_crypto(self._jwk.public_key, keyid=self.kid)


@final
class PublicKeySet(Value):
    """The keys that a reader trusts (RFC 7517), at most 1000; the newest first."""

    keys: Annotated[tuple[PublicKey, ...], Field(max_length=1000)]

    def find(self, key_id: str) -> PublicKey | None:
        """The key with this id, or None."""
        return next((key for key in self.keys if key.kid == key_id), None)


def signer(settings: Settings) -> CryptoSigner:
    """The newest key, ready to sign; the first call of all processes together creates it.

    Raises:
      SigningKeyUnusable: a file that isn't an Ed25519 key, or that others may read.
    """
    private = _load(_files(settings)[-1])
    public = private.public_key()
    return CryptoSigner(private, SSlibKey.from_crypto(public, keyid=_public(private).kid))


def jwks(settings: Settings) -> PublicKeySet:
    """Every public key of this service, the newest first. Raises SigningKeyUnusable as ``signer`` does."""
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
    """Write a new key at ``path``, unless another process was first: then theirs stays and ours is forgotten."""
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all and never replaces: nobody reads half a key, and one of two racing processes wins.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)


def _load(path: Path) -> Ed25519PrivateKey:
    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        raise SigningKeyUnusable(str(path), f"others may read it (mode {mode:04o}); it must be 0600")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise SigningKeyUnusable(str(path), "it isn't an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyUnusable(str(path), f"it must be an Ed25519 key, got {type(key).__name__}")
    return key


def _public(private: Ed25519PrivateKey) -> PublicKey:
    key = OKPKey.import_key(private.public_key())
    return PublicKey(x=str(key.as_dict(private=False)["x"]), kid=key.thumbprint())
