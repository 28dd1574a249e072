r"""Who vouches for the keys by which confidential machines sign their reports: a maker's certificates, and its lists of revoked ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateRevocationList

DATA_BYTES = 64
"""Of what the one who asks for a report chooses."""


class ReportRefused(ValueError):
    """It isn't such a report."""


class EndorsementRefused(ValueError):
    """They aren't the certificates of such a key."""


def check_chosen(data: bytes, chosen: bytes) -> None:
    """Raises ReportRefused unless what was chosen for a report are these bytes, and zeros after them."""
    if data != chosen.ljust(DATA_BYTES, b"\0"):
        raise ReportRefused("it is about another code's digest or another head of the log")


@final
@dataclass(frozen=True)
class Chain:
    """A key's certificate, the one whose key signed it, and the root's, which signed that and itself. No dates are looked at."""

    own: Certificate
    between: Certificate
    root: Certificate

    @classmethod
    def read(cls, pem: bytes) -> Chain:
        """The three certificates of a PEM text, in this order. Raises EndorsementRefused if they are others, or don't sign each other."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.utils import CryptographyDeprecationWarning
        from cryptography.x509 import BasicConstraints, load_pem_x509_certificates

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # AMD gives all of its keys the serial number 0
                found = load_pem_x509_certificates(pem)
            if len(found) != 3:
                raise EndorsementRefused("three certificates are needed, of the machine's key and the maker's two above it")
            own, between, root = found
            own.verify_directly_issued_by(between)
            between.verify_directly_issued_by(root)
            root.verify_directly_issued_by(root)
            for each in found:  # so that nobody later comes upon one that can't be read
                _ = each.public_key(), each.extensions
            if not all(each.extensions.get_extension_for_class(BasicConstraints).value.ca for each in (between, root)):
                raise EndorsementRefused("a certificate isn't of one who may sign others")
        except InvalidSignature as error:
            raise EndorsementRefused("a certificate isn't signed by the one after it") from error
        except EndorsementRefused:
            raise
        except _unreadable() as error:
            raise EndorsementRefused("the certificates can't be read, or don't follow each other") from error
        return cls(own, between, root)

    def in_words(self, lists: Sequence[str]) -> str:
        """How many of the lower two were looked up in these lists, which their issuers signed. Raises ReportRefused if one is revoked."""
        if not lists:
            return "no list of revoked certificates was given"
        read = [revoked_in(one) for one in lists]
        looked_up, dates = 0, list[date]()
        for certificate, issuer in ((self.own, self.between), (self.between, self.root)):
            of_issuer = [one for one in read if _is_by(one, issuer)]
            if any(one.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None for one in of_issuer):
                raise ReportRefused("its maker revoked a certificate of the key that signed it")
            looked_up += bool(of_issuer)
            dates += (one.last_update_utc.date() for one in of_issuer)
        since = f", the oldest of {min(dates)}" if dates else ""
        return (
            f"{looked_up} of the 2 certificates below the maker's root were looked up in the lists of revoked ones that were given{since}"
        )


def revoked_in(pem: str) -> CertificateRevocationList:
    """A maker's list of revoked certificates, whoever signed it. Raises EndorsementRefused if it can't be read."""
    from cryptography.x509 import load_pem_x509_crl

    try:
        found = load_pem_x509_crl(pem.encode())
        has_unread = any(extension.critical for extension in found.extensions)
        _ = [one.serial_number for one in found]
    except _unreadable() as error:
        raise EndorsementRefused("a list of revoked certificates can't be read") from error
    if has_unread:
        raise EndorsementRefused("a list of revoked certificates has a critical part, which isn't read")
    return found


def _unreadable() -> tuple[type[Exception], ...]:
    """What reading a certificate or a list raises, whatever its bytes are."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509 import DuplicateExtension, ExtensionNotFound, InvalidVersion, UnsupportedGeneralNameType

    plain = ValueError, TypeError, LookupError
    return *plain, InvalidVersion, DuplicateExtension, ExtensionNotFound, UnsupportedGeneralNameType, UnsupportedAlgorithm


def _is_by(revoked: CertificateRevocationList, issuer: Certificate) -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return revoked.issuer == issuer.subject and revoked.is_signature_valid(issuer.public_key())  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError, UnsupportedAlgorithm):  # a key that signs no lists
        return False
