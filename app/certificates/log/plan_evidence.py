r"""Checks that a plan was in the log before its certificate was, and since when by somebody else's clock.

That training began only after its plan was logged no file shows: it is the signer's word, which the times may contradict.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import timedelta

from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.phrases import so_many
from zetadp.app.certificates.facts.report import Check, failed, not_checked, outcome, passed
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, PrivacyCertificate, Statement
from zetadp.app.certificates.facts.tpm import NOT_VOUCHED, TpmQuote, qualifying_data
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.entries import plan_entry, plan_statement_of
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, ProofRefused, Proofs, check_inclusion
from zetadp.app.certificates.log.revocation_list import RevocationList
from zetadp.app.certificates.log.time_stamps import Stamp, StampRefused, check_stamp, of_different_signers
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.signing.tpm_quotes import Quote, QuoteRefused

PLAN_LOGGED, TIME_STAMPS, TPM_QUOTE = "plan_logged", "time_stamps", "tpm_quote"
"""Names of the checks."""
CLOCKS_APART = timedelta(seconds=120)
"""What two honest clocks may differ by."""


def check_plan_logged(
    statement: Statement, keys: PublicKeySet, proofs: Proofs | None, revoked: RevocationList | None, after: LogHead | None
) -> tuple[LogHead | None, Check]:
    r"""The head under which the plan was logged, if that is proved, and the check.

    Args:
      after: the head under which the certificate itself is proved to be in the log; None if it isn't.
    """
    announced = statement.predicate.announced
    if announced is None:
        return None, not_checked(PLAN_LOGGED, "the plan wasn't logged, and the certificate says so")
    if proofs is None or proofs.plan is None:
        return None, not_checked(PLAN_LOGGED, "no proof was given that the plan is in the log")
    try:
        head = _proved(statement, announced, proofs.plan, keys, revoked)
        if after is not None and after.origin != head.origin:
            raise ProofRefused(f"plan and certificate are in two logs, {head.origin} and {after.origin}")
    except ProofRefused as error:
        return None, failed(PLAN_LOGGED, f"it isn't proved that the plan was logged: {error}")
    number = f"plan {announced.number} of data set {announced.data_set}"
    where = f"entry {announced.index + 1} of {head.size} in {head.origin}: {number}"
    return head, passed(PLAN_LOGGED, f"{where}; that training began after it was logged is the signer's word")


def _proved(statement: Statement, announced: AnnouncedFacts, proof: str, keys: PublicKeySet, revoked: RevocationList | None) -> LogHead:
    """The head that the certificate names, which the plan that it implies is under. Raises ProofRefused."""
    expected = plan_statement_of(statement)
    if expected is None:
        raise ProofRefused("a file that the plan was logged with isn't among those that the certificate names")
    inclusion = InclusionProof.read(proof)
    if inclusion.leaf_index != announced.index:
        raise ProofRefused(f"the proof is of entry {inclusion.leaf_index + 1}, the certificate names entry {announced.index + 1}")
    head, key = check_inclusion(plan_entry(expected), inclusion, keys)
    if head.size != announced.head_size:
        raise ProofRefused(f"the proof is under a head of {head.size} entries, the certificate names one of {announced.head_size}")
    ended = None if revoked is None else revoked.find(key.kid)
    if ended is not None:  # whoever has it could sign any head of that size
        raise ProofRefused(f"the head is signed by {key.kid}, which was revoked as {ended.reason.value}: get new proofs")
    return head


def quote_of(facts: TpmQuote) -> Quote:
    """Its parts, unchecked."""
    return Quote(*(base64.b64decode(part) for part in (facts.key, facts.registers, facts.attested, facts.signature)))


def check_tpm_quote(statement: Statement, head: LogHead | None) -> Iterator[Check]:
    r"""Checks the TPM's quote, if the certificate has one, on the code that it names and on the head that the plan is under.

    Args:
      head: that head, if it is proved.
    """
    found = statement.predicate.tpm
    if found is None:
        return
    code = next((subject.digest.sha256 for subject in statement.subject if subject.name == CODE_MANIFEST), "")
    quote = quote_of(found)
    try:
        if statement.predicate.announced is None:
            raise QuoteRefused("it names a head of the log, and the plan wasn't logged")
        if head is not None and sha256_of(head.text.encode()) != found.head:
            raise QuoteRefused("the head that it names isn't the one that the plan is under")
        quote.check(qualifying_data(code, found.head))
    except QuoteRefused as refused:
        yield failed(TPM_QUOTE, f"the TPM's quote doesn't hold: {refused}")
        return
    of = "the head that its plan is under" if head is not None else "a head of the log (that its plan is under it isn't proved)"
    yield passed(TPM_QUOTE, f"the key {quote.key_name} signed the code's digest, {of} and the registers' values; {NOT_VOUCHED}")


def check_time_stamps(certificate: PrivacyCertificate, proofs: Proofs | None, head: LogHead | None, trust: Trust) -> Check:
    """Checks the stamps on the head that the plan is under against the trusted authorities, and their times against the run's."""
    stamps = () if proofs is None else proofs.time_stamps
    stated = 0 if head is None or certificate.announced is None else certificate.announced.time_stamps
    if (signers := len(of_different_signers(stamps))) < stated:
        by = so_many(stated, "authority", "authorities")
        return failed(TIME_STAMPS, f"the certificate says that {by} stamped the head, the proofs have {signers}")
    if not stamps:
        return not_checked(TIME_STAMPS, "no time stamp was given: when the plan was logged is the signer's word")
    if not trust.authorities:
        given = so_many(len(stamps), "stamp was", "stamps were")
        return not_checked(TIME_STAMPS, f"{given} given, but no authority that is trusted to stamp times")
    if head is None:
        return failed(TIME_STAMPS, "stamps were given, but it isn't proved what they are on: see plan_logged")
    found, refused = _by_trusted(stamps, head, trust)
    if len(found) < trust.least_time_stamps:
        said = f"{len(found)} of {len(stamps)} are by trusted authorities, at least {trust.least_time_stamps} are asked for"
        return failed(TIME_STAMPS, f"{said}{': ' + refused if refused else ''}")
    # Each existed at its own time: the latest of so many as are asked for is what all of them vouch for.
    first = sorted(found, key=lambda stamp: stamp.time)[trust.least_time_stamps - 1]
    told = f"the plan was in the log at {first.time:%Y-%m-%d %H:%M:%S} UTC by {first.authority}"
    problem = _back_dated(certificate, first)
    more = f", and {len(found) - 1} more stamped it" if len(found) > 1 else ""
    return outcome(TIME_STAMPS, [f"{told}{problem}"] if problem else [], f"{told}{more}")


def _by_trusted(stamps: Sequence[str], head: LogHead, trust: Trust) -> tuple[list[Stamp], str]:
    """The first stamp of each trusted authority, and why another was refused."""
    found: dict[str, Stamp] = {}
    refused = ""
    for stamp in stamps:
        try:
            checked = check_stamp(stamp, head.text, trust.authorities)
        except StampRefused as error:
            refused = str(error)
        else:
            found.setdefault(checked.authority, checked)
    return list(found.values()), refused


def _back_dated(certificate: PrivacyCertificate, stamp: Stamp) -> str:
    """What the times contradict; empty if nothing."""
    job, seconds, announced = certificate.job, certificate.environment.training_seconds, certificate.announced
    # Differences only: dates end in the year 9999, and a certificate may state any.
    left = job.finished - stamp.time
    if left < -CLOCKS_APART:
        return ", after the run had ended by the certificate's own word"
    # Of a plan that a later attempt logged, an earlier one may have trained before.
    is_first = announced is not None and announced.attempt == 1
    if is_first and timedelta(seconds=seconds) - left > CLOCKS_APART:
        return f"; from then to the end of the run is less than the {seconds} s that it trained"
    return ""
