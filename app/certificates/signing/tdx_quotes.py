r"""Quotes of Intel TDX guests (Intel, TDX DCAP Quoting Library API, appendix A.3 and A.4: quote formats 4 and 5), and who signed them.

The TDX module measures a guest and reports on it to whoever asks from within, with 64 bytes that the one who asks chose. Intel's Quoting
Enclave on the same machine signs that report with a key of its own. The machine's key (PCK), which Intel certifies, signs the enclave's
own report, which holds a digest of that key. All of it, and Intel's certificates, are in the quote.

Whoever owns such a machine can run an enclave of theirs that the PCK signs for as well. So the enclave must be Intel's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from zetadp.app.certificates.signing.machine_keys import Chain, EndorsementRefused, ReportRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

VERSIONS = (4, 5)
LARGEST_BYTES = 16_384
INTEL_ROOT: Final = bytes.fromhex(
    "0ba9c4c0c0c86193a3fe23d6b02cda10a8bbd4e88e48b4458561a36e705525f567918e2edc88e40d860bd0cc4ee26aacc988e505a953558c453f6b0904ae7394"
)
"""The key of Intel's SGX Root CA, whose certificate has the SHA-256 44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3."""
_HEADER, _KEY, _TDX = 48, 64, 0x81
_ECDSA_P256, _ENCLAVE_REPORT, _PCK_CHAIN = 2, 6, 5
_INTEL = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
_BODIES = {2: 584, 3: 648}
"""Bytes of the bodies of TDX 1.0 and 1.5, by their names in version 5."""
_ENCLAVE = 384
_SIGNER = bytes.fromhex("dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5")
_PRODUCT = 2
_FLAGS, _COUNTED = 0x11, ~0x4 & (1 << 64) - 1
"""Of Intel's enclave: initialized, with the key for provisioning, without debugging; whether it is of 64 bits doesn't count."""
_PCK = "1.2.840.113741.1.13.1"
"""The part that only certificates of machines' keys have."""


@final
class _Reader:
    """Takes one part after another; a part that isn't all there is refused."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def take(self, size: int) -> bytes:
        if size > len(self._rest):
            raise ReportRefused("it ends too early")
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def sized(self, width: int) -> bytes:
        return self.take(self.number(width))

    def whole(self, kind: int, name: str) -> _Reader:
        """The last part, which has a kind and a size."""
        found, content = self.number(2), self.sized(4)
        if found != kind or self._rest:
            raise ReportRefused(f"its {name} aren't of kind {kind} and all of the rest")
        return _Reader(content)

    def end(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


@final
@dataclass(frozen=True)
class TdxQuote:
    r"""A quote whose form was checked; what it says nobody has signed as far as that goes.

    Attributes:
      version: of its form.
      data: what the one who asked chose.
      measured: what the TDX module says of the guest, in hexadecimal: what it was launched with (``mrtd``), the registers that were
        extended since (``rtmr0`` to ``rtmr3``), the module itself (``mrseam``), and the guest's ``attributes``.
      signed: what the Quoting Enclave's key signed.
      signature, key: of that key, and its two coordinates.
      enclave, enclave_signature: the enclave's own report, and the machine's signature on it.
      authentication: what the enclave added to its key.
      certificates: of the machine's key and Intel's two above it, as PEM.
    """

    version: int
    data: bytes
    measured: Mapping[str, str]
    signed: bytes
    signature: bytes
    key: bytes
    enclave: bytes
    enclave_signature: bytes
    authentication: bytes
    certificates: bytes

    @classmethod
    def read(cls, content: bytes) -> TdxQuote:
        """Raises ReportRefused unless it is a quote on a guest without debugging, by a module of Intel's, and nothing but zeros follow."""
        if len(content) > LARGEST_BYTES:
            raise ReportRefused(f"a quote has at most {LARGEST_BYTES} bytes, this has {len(content)}")
        reader = _Reader(content)
        version = _version(_Reader(reader.take(_HEADER)))
        kind, size = (2, _BODIES[2]) if version == 4 else (reader.number(2), reader.number(4))
        if _BODIES.get(kind) != size:
            raise ReportRefused(f"its body is of kind {kind} with {size} bytes, and none of a TDX guest")
        body = reader.take(size)
        signed = content[: _HEADER + (0 if version == 4 else 6) + size]
        certified = _Reader(reader.sized(4))
        if any(reader.end()):  # kernels give it in a buffer of fixed size
            raise ReportRefused("something follows it")
        signature, key = certified.take(_KEY), certified.take(_KEY)
        inner = certified.whole(_ENCLAVE_REPORT, "certification data")
        enclave, enclave_signature, authentication = inner.take(_ENCLAVE), inner.take(_KEY), inner.sized(2)
        certificates = inner.whole(_PCK_CHAIN, "certificates").end()
        measured, data = _guest(body), body[520:584]
        return cls(version, data, measured, signed, signature, key, enclave, enclave_signature, authentication, certificates.rstrip(b"\0"))

    def check_signatures(self, revoked: Sequence[str] = (), root: bytes | None = None) -> tuple[str, str]:
        r"""Checks every signature from the guest's report up to Intel's root, and that the enclave that signed it is Intel's.

        Args:
          revoked: lists of revoked certificates, each as a PEM text; one that none of these issued isn't looked at.
          root: the two coordinates of the key that has to stand at the top; Intel's if absent.
        Returns:
          the serial number of the machine's certificate, in hexadecimal; who signed it and what wasn't looked at, in words.
        Raises:
          ReportRefused: something doesn't hold, or a certificate is revoked.
        """
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

        try:
            chain = Chain.read(self.certificates)
        except EndorsementRefused as error:
            raise ReportRefused(f"Intel's certificates in it don't hold: {error}") from error
        if _coordinates(chain.root.public_key()) != (root or INTEL_ROOT):
            raise ReportRefused("the last certificate isn't of Intel's root key")
        machine = chain.own.public_key()
        is_machines = any(extension.oid.dotted_string == _PCK for extension in chain.own.extensions)
        if not is_machines or not isinstance(machine, EllipticCurvePublicKey) or not isinstance(machine.curve, SECP256R1):
            raise ReportRefused("the first certificate isn't of a machine's key")
        _verify(machine, self.enclave_signature, self.enclave, "the machine's signature on its Quoting Enclave")
        self._check_enclave()
        try:
            key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\4" + self.key)
        except ValueError as error:
            raise ReportRefused("the Quoting Enclave's key isn't a point of P-256") from error
        _verify(key, self.signature, self.signed, "the Quoting Enclave's signature")
        looked_up, serial_number = chain.in_words(revoked), f"{chain.own.serial_number:x}"
        return serial_number, (
            f"by Intel's certificates the Quoting Enclave of the machine with the certificate {serial_number} signed what the machine's "
            f"TDX module said. Their dates, and whether firmware, module and enclave are up to date (TCB), weren't looked at; {looked_up}"
        )

    def _check_enclave(self) -> None:
        report = self.enclave
        if report[320:384] != hashlib.sha256(self.key + self.authentication).digest().ljust(64, b"\0"):
            raise ReportRefused("the Quoting Enclave's report is about another key")
        flags = int.from_bytes(report[48:56], "little") & _COUNTED
        is_intels = report[128:160] == _SIGNER and int.from_bytes(report[256:258], "little") == _PRODUCT
        if not is_intels or flags != _FLAGS or any(report[16:20]):
            raise ReportRefused("the enclave that signed it isn't Intel's Quoting Enclave for TDX")


def _version(header: _Reader) -> int:
    version, key_kind, machine_kind = header.number(2), header.number(2), header.number(4)
    header.take(4)  # reserved; version numbers of the enclaves in some quotes
    if version not in VERSIONS:
        raise ReportRefused(f"its form is version {version}; 4 and 5 are read")
    if machine_kind != _TDX:
        raise ReportRefused("it isn't of a TDX guest")
    if key_kind != _ECDSA_P256:
        raise ReportRefused("it isn't signed by ECDSA over P-256")
    if header.take(16) != _INTEL:
        raise ReportRefused("its Quoting Enclave isn't Intel's by its own word")
    return version


def _guest(body: bytes) -> dict[str, str]:
    """What the module says. Raises ReportRefused for a guest with debugging, and for a module that isn't Intel's."""
    if any(body[64:120]):
        raise ReportRefused("by its own word the TDX module is another's than Intel's, or not for production")
    if body[120]:
        raise ReportRefused("its guest allows debugging: its host can read and change all of its memory, so it is not confidential")
    places = {"mrseam": 16, "mrtd": 136, "rtmr0": 328, "rtmr1": 376, "rtmr2": 424, "rtmr3": 472}
    return {name: body[place : place + 48].hex() for name, place in places.items()} | {"attributes": body[120:128].hex()}


def _coordinates(key: object) -> bytes:
    """Of a key of P-256; nothing of others."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        return b""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]


def _verify(key: EllipticCurvePublicKey, signature: bytes, content: bytes, name: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = (int.from_bytes(part, "big") for part in (signature[:32], signature[32:]))
    try:
        key.verify(encode_dss_signature(r, s), content, ECDSA(SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise ReportRefused(f"{name} doesn't hold") from error
