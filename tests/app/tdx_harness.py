r"""Recorded quotes of Intel TDX, and machines of nobody's that sign others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.app.machine_harness import certified, changed
from zetadp.app.certificates.signing import tdx_quotes
from zetadp.app.certificates.signing.tdx_quotes import TdxQuote

GOLDEN = Path(__file__).parents[1] / "golden" / "intel_tdx"
RECORDED, VERSION5 = (GOLDEN / "quote.bin").read_bytes(), (GOLDEN / "version5.bin").read_bytes()
INTEL = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
SIGNER = bytes.fromhex("dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5")
MRTD, RTMRS, MRSEAM = bytes(range(48)), tuple(bytes([16 * number]) * 48 for number in range(1, 5)), b"\x0f" * 48
ATTRIBUTES, MIGRATABLE = bytes.fromhex("0000001000000000"), bytes.fromhex("0000003000000000")
PCK = "1.2.840.113741.1.13.1"


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]


def by(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def header(version: int = 4, key_kind: int = 2, machine_kind: int = 0x81, vendor: bytes = INTEL) -> bytes:
    return number(version, 2) + number(key_kind, 2) + number(machine_kind, 4) + bytes(4) + vendor + bytes(20)


def guest(chosen: bytes, attributes: bytes = ATTRIBUTES, mrtd: bytes = MRTD, size: int = 584) -> bytes:
    """What the module says, with zeros for what no test looks at."""
    content = bytes(size)
    for place, value in ((16, MRSEAM), (120, attributes), (136, mrtd), (520, chosen)):
        content = changed(content, place, value)
    for place, value in zip((328, 376, 424, 472), RTMRS, strict=True):
        content = changed(content, place, value)
    return content


def sized(content: bytes, width: int) -> bytes:
    return number(len(content), width) + content


@final
@dataclass(frozen=True)
class TdxMachine:
    """A machine of nobody's, whose key, and those above it, are a test's own."""

    pem: str
    key: ec.EllipticCurvePrivateKey
    enclaves: ec.EllipticCurvePrivateKey
    between: ec.EllipticCurvePrivateKey
    root_key: ec.EllipticCurvePrivateKey

    @classmethod
    def made(cls, curve: type[ec.EllipticCurve] = ec.SECP256R1, is_pck: bool = True) -> TdxMachine:
        root, between, enclaves = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        own = ec.generate_private_key(curve())
        above = certified("Platform CA", between, "Root CA", root), certified("Root CA", root, "Root CA", root)
        own_pem = certified("PCK", own, "Platform CA", between, {PCK: b"\x30\0"} if is_pck else {})
        return cls("".join((own_pem, *above)), own, enclaves, between, root)

    @property
    def root(self) -> bytes:
        return point(self.root_key)

    def enclave(self, authentication: bytes, signer: bytes = SIGNER, product: int = 2, flags: int = 0x15) -> bytes:
        """The Quoting Enclave's report on its key, with zeros for what no test looks at."""
        about = hashlib.sha256(point(self.enclaves) + authentication).digest()
        content = bytes(384)
        for place, value in ((48, number(flags, 8)), (128, signer), (256, number(product, 2)), (320, about)):
            content = changed(content, place, value)
        return content

    def quote(self, signed: bytes, enclave: bytes | None = None, pem: str | None = None, authentication: bytes = b"added") -> bytes:
        """Of what stands before the signatures."""
        report = enclave or self.enclave(authentication)
        certificates = number(5, 2) + sized((pem or self.pem).encode() + b"\0", 4)
        inner = report + by(self.key, report) + sized(authentication, 2) + certificates
        return signed + sized(by(self.enclaves, signed) + point(self.enclaves) + number(6, 2) + sized(inner, 4), 4)

    def report(self, chosen: bytes, attributes: bytes = ATTRIBUTES, mrtd: bytes = MRTD) -> bytes:
        return self.quote(header() + guest(chosen, attributes, mrtd))

    def read(self, content: bytes) -> TdxQuote:
        """Checked by this machine's root."""
        found = TdxQuote.read(content)
        found.check_signatures(root=self.root)
        return found


@contextmanager
def trusted(machine: TdxMachine) -> Iterator[None]:
    """As if its root were Intel's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tdx_quotes, "INTEL_ROOT", machine.root)
        yield
