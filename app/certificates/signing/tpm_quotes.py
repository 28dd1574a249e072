r"""TPM 2.0 quotes by one kind of key (TCG, Trusted Platform Module Library, part 2: TPMT_PUBLIC, TPMS_ATTEST, TPMT_SIGNATURE).

The key is the TPM's primary one in its owner's hierarchy for ``PUBLIC_AREA``: P-256, restricted, so that it signs nothing from outside that
looks like a quote. A TPM makes the same key again whenever it is asked, until it is cleared. All but the two coordinates is fixed, so
the key's name, and what a quote names it by, follow from them. Whoever isn't a TPM can make such a key too.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

REGISTERS = (0, 4, 7)
"""Of the SHA-256 bank: what a firmware says of itself, of the boot loader, and of secure boot."""
ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"
SCHEME = "ecc256:ecdsa-sha256:null"
"""As tpm2-tools write it."""

_SHA256, _NULL, _ECDSA, _ECC, _P256 = 0x000B, 0x0010, 0x0018, 0x0023, 0x0003
_BITS = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 16 | 1 << 18
PUBLIC_AREA = struct.pack(">HHIHHHHHH", _ECC, _SHA256, _BITS, 0, _NULL, _ECDSA, _SHA256, _P256, _NULL)
"""Of the key, before its coordinates: kind, name's digest, ``ATTRIBUTES``, no policy, and ``SCHEME``."""
_OWNER = struct.pack(">I", 0x40000001)
_MAGIC, _QUOTE = 0xFF544347, 0x8018
_SELECTED = struct.pack(">IHB", 1, _SHA256, 3) + bytes([sum(1 << number for number in REGISTERS), 0, 0])
"""``REGISTERS``."""
_SIGNATURE = struct.pack(">HH", _ECDSA, _SHA256)
_WIDTH = 32


class QuoteRefused(ValueError):
    """It isn't such a quote."""


@final
@dataclass(frozen=True)
class Quote:
    r"""A quote's parts: coordinates of its key, values of the registers, what was signed, and the signature's two numbers."""

    key: bytes
    registers: bytes
    attested: bytes
    signature: bytes

    @property
    def key_name(self) -> str:
        """The name that the TPM gives its key: a digest, here in hexadecimal."""
        return _digest(_public_area(self.key)).hex()

    def check(self, qualifying: bytes) -> None:
        """Raises QuoteRefused unless the key signed, in a TPM's form, this data and a digest of the registers' values."""
        rest = _Reader(self.attested)
        if rest.number(4) != _MAGIC:
            raise QuoteRefused("what is signed doesn't begin as all that a TPM makes itself")
        if rest.number(2) != _QUOTE:
            raise QuoteRefused("what is signed isn't a quote")
        name = struct.pack(">H", _SHA256) + bytes.fromhex(self.key_name)
        if rest.sized() != struct.pack(">H", _SHA256) + _digest(_OWNER + name):
            raise QuoteRefused("it names another key as the one that signed")
        if rest.sized() != qualifying:
            raise QuoteRefused("it is about another code's digest or another head of the log")
        rest.take(8 + 4 + 4 + 1 + 8)  # clock, resets, restarts, whether the clock is safe, firmware's version: claimed by nobody here
        if rest.take(len(_SELECTED)) != _SELECTED:
            raise QuoteRefused("it isn't about the SHA-256 registers 0, 4 and 7")
        if rest.sized() != _digest(self.registers) or len(self.registers) != len(REGISTERS) * _WIDTH:
            raise QuoteRefused("its digest isn't that of the registers' values")
        if not rest.is_empty:
            raise QuoteRefused("what is signed goes on after its end")
        self._check_signature()

    def _check_signature(self) -> None:
        if len(self.key) != 2 * _WIDTH or len(self.signature) != 2 * _WIDTH:
            raise QuoteRefused("key and signature have 64 bytes each")
        x, y = (int.from_bytes(self.key[at : at + _WIDTH], "big") for at in (0, _WIDTH))
        r, s = (int.from_bytes(self.signature[at : at + _WIDTH], "big") for at in (0, _WIDTH))
        try:
            EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key().verify(encode_dss_signature(r, s), self.attested, ECDSA(SHA256()))
        except (InvalidSignature, ValueError) as error:
            raise QuoteRefused("its signature doesn't hold") from error


def coordinates_in(public: bytes) -> bytes:
    """Of a key as a TPM tells of it (TPM2B_PUBLIC). Raises QuoteRefused for any other kind of key."""
    area = _Reader(public).sized()
    found = area[len(PUBLIC_AREA) + 2 : len(PUBLIC_AREA) + 2 + _WIDTH] + area[-_WIDTH:]
    if len(found) != 2 * _WIDTH or area != _public_area(found):
        raise QuoteRefused("the TPM made another kind of key than it was asked for")
    return found


def signature_in(signature: bytes) -> bytes:
    """The two numbers of a TPM's signature (TPMT_SIGNATURE). Raises QuoteRefused for any other kind."""
    rest = _Reader(signature)
    if rest.take(len(_SIGNATURE)) != _SIGNATURE:
        raise QuoteRefused("the TPM made another kind of signature than it was asked for")
    numbers = rest.sized(), rest.sized()
    if not rest.is_empty or max(len(number) for number in numbers) > _WIDTH:
        raise QuoteRefused("the TPM's signature can't be read")
    return b"".join(number.rjust(_WIDTH, b"\0") for number in numbers)


def _public_area(key: bytes) -> bytes:
    size = struct.pack(">H", _WIDTH)
    return PUBLIC_AREA + size + key[:_WIDTH] + size + key[_WIDTH:]


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@final
class _Reader:
    def __init__(self, content: bytes) -> None:
        self._rest = content

    @property
    def is_empty(self) -> bool:
        return not self._rest

    def take(self, length: int) -> bytes:
        if length > len(self._rest):
            raise QuoteRefused("it ends too early")
        taken, self._rest = self._rest[:length], self._rest[length:]
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def sized(self) -> bytes:
        return self.take(self.number(2))
