r"""Attestation reports of AMD SEV-SNP guests (AMD, SEV Secure Nested Paging Firmware ABI, 56860: ATTESTATION_REPORT), and who signed them.

The processor's firmware signs a report for whoever asks from within a guest, with 64 bytes that the one who asks chose. The key is one of
the chip (VCEK), or one that AMD gave a cloud for its chips (VLEK), and of the firmware's versions (TCB); AMD's certificate for it names
these (AMD, VCEK Certificate and KDS Interface, 57230). Layouts 2, 3 and 5 are read, and both layouts of TCB versions: of Milan and Genoa,
whose chips have numbers of 64 bytes, and of Turin, whose chips have numbers of 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from zetadp.app.certificates.signing.machine_keys import Chain, EndorsementRefused, ReportRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.x509 import Certificate

REPORT_BYTES = 1184
LAYOUTS = (2, 3, 5)
_SIGNED, _NUMBER, _P384_BYTES = 0x2A0, 72, 48
_ECDSA_P384_SHA384 = 1
_POLICY_ONE, _POLICY_MIGRATION, _POLICY_DEBUG, _POLICY_BITS = 1 << 17, 1 << 18, 1 << 19, 26
_MASKED_KEY = 1 << 1
_VCEK, _VLEK, _UNSIGNED = 0, 1, 7
_PRIVILEGE_LEVELS = 4
_RESERVED: Final = {
    2: ((0x4C, 0x50), (0x188, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, _SIGNED)),
    3: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, _SIGNED)),
    5: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x208, _SIGNED)),
}
_ARC = "1.3.6.1.4.1.3704.1."
_CHIP, _CLOUD, _FMC = f"{_ARC}4", f"{_ARC}5", f"{_ARC}3.9"
_TCB, _TURIN = (1, 2, 4, 5, 6, 7, 3, 8), (9, 1, 2, 3, 5, 6, 7, 8)
"""The parts of a certificate that have the bytes of a TCB version. Of Milan and Genoa: boot loader, trusted system, four that are
reserved, SNP firmware, microcode; of Turin: the loader before (FMC), boot loader, trusted system, SNP firmware, three that are reserved,
microcode."""
_CHIP_BYTES, _TURIN_BYTES = 64, 8


@final
@dataclass(frozen=True)
class SnpReport:
    r"""A report whose form was checked; what it says nobody has signed as far as that goes.

    Attributes:
      content: all of it.
      layout: the version of its form.
      data: what the one who asked chose.
      measurement: digest of the guest's memory at its launch.
      tcb: the versions of firmware that it says it is signed for (REPORTED_TCB).
      chip: the chip's number.
      privilege: level within the guest from which it was asked for (VMPL), 0 to 3; 0 may do most.
      allows_debugging, allows_migration: whether the host may read and write the guest's memory; whether a migration agent may move it.
      by_vlek: whether a key signed that AMD gives to a cloud's operator, instead of the chip's own.
    """

    content: bytes
    layout: int
    data: bytes
    measurement: bytes
    tcb: bytes
    chip: bytes
    privilege: int
    allows_debugging: bool
    allows_migration: bool
    by_vlek: bool

    @classmethod
    def read(cls, content: bytes) -> SnpReport:
        """Raises ReportRefused unless lengths, versions, algorithm and all reserved parts are as the specification says."""
        if len(content) != REPORT_BYTES:
            raise ReportRefused(f"a report has {REPORT_BYTES} bytes, this has {len(content)}")

        def number(place: int, width: int = 4) -> int:
            return int.from_bytes(content[place : place + width], "little")

        layout, policy, key = number(0x00), number(0x08, 8), number(0x48)
        if layout not in LAYOUTS:
            raise ReportRefused(f"its layout is version {layout}; 2, 3 and 5 are read")
        if number(0x34) != _ECDSA_P384_SHA384:
            raise ReportRefused("it isn't signed by ECDSA over P-384 with SHA-384")
        if not policy & _POLICY_ONE or policy >> _POLICY_BITS:
            raise ReportRefused("reserved bits of the guest's policy aren't as specified")
        signer = key >> 2 & 7
        if key >> 5 or signer not in (_VCEK, _VLEK, _UNSIGNED):
            raise ReportRefused("reserved bits of the signing key's kind aren't as specified")
        if signer == _UNSIGNED or key & _MASKED_KEY:
            raise ReportRefused("by its own word no key of the chip signed it")
        if any(any(content[begin:end]) for begin, end in _RESERVED[layout]) or any(content[_SIGNED + 2 * _NUMBER :]):
            raise ReportRefused("reserved bytes aren't zero")
        if number(0x30) >= _PRIVILEGE_LEVELS:
            raise ReportRefused("it wasn't asked for from within a guest")
        return cls(
            content=content,
            layout=layout,
            data=content[0x50:0x90],
            measurement=content[0x90:0xC0],
            tcb=content[0x180:0x188],
            chip=content[0x1A0:0x1E0],
            privilege=number(0x30),
            allows_debugging=bool(policy & _POLICY_DEBUG),
            allows_migration=bool(policy & _POLICY_MIGRATION),
            by_vlek=signer == _VLEK,
        )

    def check_signature(self, key: EllipticCurvePublicKey) -> None:
        """Raises ReportRefused unless this key, of P-384, signed all before the signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA384

        places = (_SIGNED, _SIGNED + _NUMBER)
        r, s = (int.from_bytes(self.content[at : at + _NUMBER], "little") for at in places)
        if max(r, s) >> 8 * _P384_BYTES:
            raise ReportRefused("its signature's numbers are too large")
        try:
            key.verify(encode_dss_signature(r, s), self.content[:_SIGNED], ECDSA(SHA384()))
        except (InvalidSignature, ValueError) as error:
            raise ReportRefused("its signature doesn't hold") from error


@final
@dataclass(frozen=True)
class Endorsement:
    r"""A key for one state of firmware, as AMD's certificates say: a chip's (VCEK), or a cloud's for its chips (VLEK).

    Attributes:
      key: of P-384.
      chip: the chip's number, with zeros up to the length of a report's; empty for a cloud's key.
      cloud: its name; empty for a chip's key.
      tcb: versions of the firmware, as in a report.
      chain: the certificates.
    """

    key: EllipticCurvePublicKey
    chip: bytes
    cloud: str
    tcb: bytes
    chain: Chain

    def is_for(self, report: SnpReport) -> bool:
        """Whether it is of the key that would have signed this report."""
        # A cloud's report names no chip that its key would have to be of.
        return self.tcb == report.tcb and report.by_vlek == bool(self.cloud) and (report.by_vlek or self.chip == report.chip)

    def check_signature(self, report: SnpReport, revoked: Sequence[str] = ()) -> str:
        r"""Checks that this key signed the report.

        Args:
          revoked: lists of revoked certificates, each as a PEM text; one that none of these issued isn't looked at.
        Returns:
          who signed it and what wasn't looked at, in words.
        Raises:
          ReportRefused: it didn't, or a certificate is revoked.
        """
        report.check_signature(self.key)
        of = f"cloud {self.cloud!r}, on whichever of its chips," if self.cloud else f"chip {report.chip.hex()[:16]}..."
        return (
            f"the key of the {of} with firmware {self.tcb.hex()} signed it. This rests on the certificates given, whose dates weren't "
            f"looked at; {self.chain.in_words(revoked)}"
        )


def endorsement_in(pem: str) -> Endorsement:
    r"""What a PEM text certifies that has a key's certificate and AMD's two above it: VCEK, ASK and ARK, or VLEK, ASVK and ARK.

    Whoever gives them vouches for the last one. No dates are looked at.

    Raises:
      EndorsementRefused: they aren't such certificates, or one didn't sign the one before it.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey

    chain = Chain.read(pem.encode())
    key = chain.own.public_key()
    try:
        numbers = _numbers_in(chain.own)
    except (ValueError, LookupError) as error:
        raise EndorsementRefused("the first certificate doesn't name a chip or a cloud, and firmware") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise EndorsementRefused("the first certificate isn't of a key for signing reports")
    return Endorsement(key, *numbers, chain)


def _numbers_in(certificate: Certificate) -> tuple[bytes, str, bytes]:
    """The chip's number or the cloud's name, and the versions of firmware. Raises ValueError or LookupError."""
    from cryptography.x509 import UnrecognizedExtension

    held = {one.oid.dotted_string: one.value.value for one in certificate.extensions if isinstance(one.value, UnrecognizedExtension)}
    order = _TURIN if _FMC in held else _TCB
    tcb = bytes(_small(held[f"{_ARC}3.{number}"]) for number in order)
    if _CLOUD in held:
        return b"", _word(held[_CLOUD]), tcb
    chip = held[_CHIP]
    if len(chip) != (_TURIN_BYTES if _FMC in held else _CHIP_BYTES):
        raise ValueError("a chip's number of another length")
    return chip.ljust(_CHIP_BYTES, b"\0"), "", tcb


def _word(content: bytes) -> str:
    """A short text in DER (IA5String). Raises ValueError."""
    tag, size, *letters = content
    if tag != 0x16 or not 0 < size == len(letters) < 128:
        raise ValueError("not such a text")
    return bytes(letters).decode("ascii")


def _small(content: bytes) -> int:
    """A number below 256 in DER. Raises ValueError."""
    tag, size, *digits = content
    value = int.from_bytes(bytes(digits), "big")
    if tag != 2 or size != len(digits) or value > 255 or size != (2 if value > 127 else 1):
        raise ValueError("not such a number")
    return value
