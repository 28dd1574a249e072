r"""Verification as a service offers it: within a limit of processor time, for anybody's bytes."""

from __future__ import annotations

from zetadp.accountants import deadline
from zetadp.app.certificates.errors import VerificationTooLong
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import Examination, examined
from zetadp.mechanisms.errors import TimeLimitReached


def examined_within(seconds: float, certificate: bytes, keys: PublicKeySet) -> Examination:
    """As ``examined``, without files. Raises VerificationTooLong."""
    try:
        with deadline.time_limit(seconds):
            examination = examined(certificate, keys, None)
            # Of what it had no time for, the report says that nothing proves it: that would condemn what is only expensive.
            deadline.check()
    except TimeLimitReached:
        raise VerificationTooLong(seconds) from None
    return examination
