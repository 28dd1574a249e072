r"""From a signed certificate to a document, with what is known about its signature, the log and revoked keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zetadp.app.certificates.facts.report import Check, Status, not_checked
from zetadp.app.certificates.facts.statement import PrivacyCertificate, Subject
from zetadp.app.certificates.log.evidence import Evidence, Signed, check_evidence
from zetadp.app.certificates.page.blocks import Document
from zetadp.app.certificates.page.content import document_of
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.opening import open_certificate
from zetadp.app.certificates.verification.verify import check_form, read_statement

Making = Callable[[PrivacyCertificate, Sequence[Subject], Sequence[Check]], Document]


def rendered(certificate: bytes, keys: PublicKeySet | None, evidence: Evidence, making: Making = document_of) -> Document:
    r"""The document of a certificate. Its figures aren't recomputed here; ``verify`` does that.

    Args:
      certificate: a DSSE envelope or a compact JWS.
      keys: used to check its signature; without them the document says that it wasn't checked.
      evidence: of the log and of revoked keys.
      making: what kind of document.
    Raises:
      CertificateUnreadable: it can't be read.
    """
    opened, statement = open_certificate(certificate), read_statement(certificate)
    if keys is None:
        checks = [not_checked("signature", f"no keys were given; it names {', '.join(opened.key_ids)}")]
    else:
        checks = check_form(opened, keys)
        if all(check.status is Status.PASSED for check in checks):
            checks += check_evidence(Signed(opened.content, statement, opened.key_ids), keys, evidence)
    return making(statement.predicate, statement.subject, checks)
