r"""Masks: integers modulo a power of two that can't be told from uniform ones without their key."""

from __future__ import annotations

from typing import Annotated, Any, Final, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from pydantic import Field, Strict

from zetadp.mechanisms.base import Count, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.key_stream import KeyStream
from zetadp.mechanisms.sampling.shares import centred
from zetadp.trainer.sites.coding import MOST_BITS, packed, packed_bytes, unpacked

_ANYBODY: Final = X25519PrivateKey.from_private_bytes(bytes(32))
Residues = NDArray[Any]
"""(numbers,), unsigned: their last bits are integers modulo 2^width."""


@final
class Ring(Value):
    r"""``numbers`` integers modulo 2^width.

    Attributes:
      width: bits of an integer, 1 to 64.
    """

    numbers: Count
    width: Annotated[int, Strict(), Field(ge=1, le=MOST_BITS)]

    @property
    def _type(self) -> np.dtype[Any]:
        # Additions wrap at the type's own size, a multiple of the modulus.
        return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= self.width)}")

    def residues(self, integers: NDArray[np.int64]) -> Residues:
        """Of (numbers,) integers."""
        if integers.shape != (self.numbers,):
            raise InvalidParameter("integers", f"{self.numbers} in number", integers.shape)
        return integers.astype("<i8").view("<u8").astype(self._type)

    def mask(self, key: bytes) -> Residues:
        """The mask of a key of 32 bytes, which is used for nothing else."""
        found = np.empty(self.numbers, self._type)
        if found.size:
            KeyStream(key).fill(found.data.cast("B"))
        return found

    @property
    def size(self) -> int:
        """Bytes of all integers."""
        return packed_bytes(self.numbers, self.width)

    def packed(self, residues: Residues) -> bytes:
        """``width`` bits of each."""
        return packed(residues, self.width)

    def unpacked(self, payload: bytes) -> Residues:
        """The reverse. Raises InvalidParameter if there are more or fewer bytes."""
        return unpacked(payload, self.numbers, self.width).astype(self._type)

    def centred(self, residues: Residues) -> NDArray[np.int64]:
        """The integers of least size with these residues, in [-2^(width - 1), 2^(width - 1))."""
        return centred(residues.astype("<u8").view("<i8"), self.width)


def derived(own: X25519PrivateKey, other: bytes, salt: bytes, purpose: str) -> bytes:
    r"""A key of 32 bytes for one purpose, the same on both sides of an X25519 exchange.

    Raises:
      InvalidParameter: the other public key has no secret with anybody (a point of low order).
    """
    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise InvalidParameter("key", "an X25519 public key", other.hex()) from error
    return HKDF(SHA256(), 32, salt, f"zetadp secure aggregation 1 {purpose}".encode()).derive(secret)


def has_secrets(public: bytes) -> bool:
    """Whether an X25519 public key, of 32 bytes, has a secret with anybody: a point of low order has none."""
    try:
        _ANYBODY.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def expanded(seed: bytes, salt: bytes) -> bytes:
    """The key of a site's own mask, from the seed that it shares."""
    return HKDF(SHA256(), 32, salt, b"zetadp secure aggregation 1 own mask").derive(seed)


def committed(seed: bytes, salt: bytes) -> bytes:
    """What binds a site to its seed, 32 bytes for everybody to see: independent of the mask's key for whoever doesn't know the seed."""
    return HKDF(SHA256(), 32, salt, b"zetadp secure aggregation 1 commitment").derive(seed)
