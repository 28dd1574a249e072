r"""A recorded report of AMD SEV-SNP, and chips of nobody's that sign others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

GOLDEN = Path(__file__).parents[1] / "golden" / "sev_snp"
RECORDED, CHAIN = (GOLDEN / "report.bin").read_bytes(), (GOLDEN / "certificates.pem").read_text()
TURIN, TURIN_CHAIN = (GOLDEN / "turin.bin").read_bytes(), (GOLDEN / "turin.pem").read_text()
AMDS_LIST = (GOLDEN / "turin.crl.pem").read_text()
CHOSEN = bytes([1, 2, 3, 4, 5])
POLICY, MEASURED = 0x30000, bytes(range(48))
ORDER, TCB = (1, 2, 4, 5, 6, 7, 3, 8), bytes([3, 0, 0, 0, 0, 0, 20, 209])
TURIN_ORDER, TURIN_TCB = (9, 1, 2, 3, 5, 6, 7, 8), bytes([1, 3, 2, 20, 0, 0, 0, 209])
"""Of the versions of firmware: their numbers in certificates, and some that a report may state."""
DEBUGGING, MIGRATION = 1 << 19, 1 << 18
AMD = "1.3.6.1.4.1.3704.1."


def changed(content: bytes, place: int, new: bytes) -> bytes:
    return content[:place] + new + content[place + len(new) :]


Key = ec.EllipticCurvePrivateKey


def certified(name: str, key: Key, by: str, by_key: Key, held: Mapping[str, bytes] | None = None) -> str:
    """A certificate with these extensions of a maker's, as PEM; without any, of one who may sign others."""
    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (by, name))
    began = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), 1, began, began + timedelta(days=9))
    builder = builder.add_extension(x509.BasicConstraints(ca=held is None, path_length=None), critical=True)
    for identifier, value in (held or {}).items():
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(identifier), value)
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(by_key, hashes.SHA384()).public_bytes(Encoding.PEM).decode()


def revoking(by: str, by_key: Key, *serial_numbers: int, critical: bool = False) -> str:
    """A list of revoked certificates, as PEM."""
    began = datetime.now(UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)])
    builder = x509.CertificateRevocationListBuilder(issuer, began, began + timedelta(days=9))
    builder = builder.add_extension(x509.CRLNumber(1), critical)
    for number in serial_numbers:
        builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(number, began).build())
    return builder.sign(by_key, hashes.SHA384()).public_bytes(Encoding.PEM).decode()


def numbers_of(chip: bytes, tcb: bytes, order: tuple[int, ...] = ORDER) -> dict[str, bytes]:
    """What AMD's certificate of a chip's key says of them."""
    numbers = (bytes([2, 2, 0, value] if value > 127 else [2, 1, value]) for value in tcb)
    return {f"{AMD}3.{number}": value for number, value in zip(order, numbers, strict=True)} | {f"{AMD}4": chip}


@final
@dataclass(frozen=True)
class Machine:
    """A chip of nobody's, whose key, and those above it, are a test's own."""

    pem: str
    key: ec.EllipticCurvePrivateKey
    chip: bytes
    tcb: bytes
    root: Key

    @classmethod
    def made(cls, chip: bytes = b"\xab" * 64, tcb: bytes = TCB, held: Mapping[str, bytes] | None = None) -> Machine:
        root, between, own = (ec.generate_private_key(ec.SECP384R1()) for _ in range(3))
        above = certified("ASK", between, "ARK", root), certified("ARK", root, "ARK", root)
        own_pem = certified("VCEK", own, "ASK", between, held or numbers_of(chip, tcb))
        return cls("".join((own_pem, *above)), own, chip, tcb, root)

    def report(self, chosen: bytes, policy: int = POLICY, layout: int = 2, key_info: int = 0, measured: bytes = MEASURED) -> bytes:
        """By the published layout, with zeros for what no test looks at."""
        content = bytearray(1184)
        for place, value in (
            (0x00, layout.to_bytes(4, "little")),
            (0x08, policy.to_bytes(8, "little")),
            (0x34, b"\1"),
            (0x48, key_info.to_bytes(4, "little")),
            (0x50, chosen),
            (0x90, measured),
            (0x180, self.tcb),
            (0x1A0, self.chip),
        ):
            content[place : place + len(value)] = value
        return self.signed(bytes(content))

    def signed(self, content: bytes) -> bytes:
        """The same with this key's signature."""
        r, s = decode_dss_signature(self.key.sign(content[:0x2A0], ec.ECDSA(hashes.SHA384())))
        return changed(content, 0x2A0, r.to_bytes(72, "little") + s.to_bytes(72, "little"))


def parts_of(pem: str) -> list[str]:
    """Its first three certificates."""
    end = "-----END CERTIFICATE-----\n"
    return [f"{part}{end}" for part in pem.split(end)[:3]]
