r"""Errors of the certificates. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from zetadp.app.kit.errors import ProblemType, ServiceError


class CertificateError(Exception):
    """Base of every error of this package."""


class CertificateNotFound(CertificateError, ServiceError):
    """No certificate has this id."""

    problem = ProblemType(404, "certificate-not-found", "No such certificate.")

    def __init__(self, certificate_id: str) -> None:
        self.certificate_id = certificate_id
        super().__init__(f"there is no certificate {certificate_id!r}")


class VerificationTooLong(CertificateError, ServiceError):
    """To verify the certificate takes more than the service gives it."""

    problem = ProblemType(422, "verification-too-long", "The verification takes too long for the service.")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"verifying it takes longer than the limit of {seconds:g} s; nothing is wrong with it: `zetadp verify` has no limit"
        )


class CertificateRefused(CertificateError):
    """Nothing is signed, since the run's report differs from what the plan accounts for."""

    def __init__(self, what: str, planned: object, reported: object) -> None:
        self.what = what
        self.planned = planned
        self.reported = reported
        super().__init__(f"no certificate is issued: {what} was planned as {planned!r}, but the run reports {reported!r}")


class SigningKeyUnusable(CertificateError):
    """A key file that can't be used for signing."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the signing key {path} can't be used: {reason}")


class SigningKeyNotFound(CertificateError):
    """The service has no signing key with this id."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"there is no signing key {key_id[:80]!a}")


class KeyAlreadyRevoked(CertificateError):
    """The signing key is already revoked."""

    def __init__(self, key_id: str, reason: str) -> None:
        self.key_id = key_id
        self.reason = reason
        super().__init__(f"the signing key {key_id} is already revoked ({reason})")


class SigningKeyRevoked(CertificateError):
    """The key was revoked after it signed a certificate and before the certificate was stored; sign it again."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"the signing key {key_id} was revoked before the certificate was stored")


class TileNotFound(CertificateError, ServiceError):
    """The log has no such tile, or none yet."""

    problem = ProblemType(404, "tile-not-found", "The log has no such tile.")

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(f"the log has no tile {place[:80]!a}")


class LogSizeUnknown(CertificateError, ServiceError):
    """The log never had this size, or the certificate wasn't in it yet."""

    problem = ProblemType(422, "log-size-unknown", "The log never had this size.")

    def __init__(self, field: str, expected: str, got: int) -> None:
        self.field = field
        super().__init__(f"{field} must be {expected}, got {got}")
