r"""What a verifier may get in addition to a certificate and keys: proofs of what is in the log and when, and the list of revoked keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.phrases import so_many
from zetadp.app.certificates.facts.report import Check, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.cosignatures import cosignatures_on
from zetadp.app.certificates.log.entries import certificate_entry
from zetadp.app.certificates.log.machine_evidence import check_machine_report
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, ProofRefused, Proofs, check_inclusion, read_proof
from zetadp.app.certificates.log.notes import Note, NoteRefused
from zetadp.app.certificates.log.plan_evidence import check_plan_logged, check_time_stamps, check_tpm_quote
from zetadp.app.certificates.log.revocation_list import Reason, Revocation, RevocationList, RevocationsRefused, read_revocations
from zetadp.app.certificates.log.trust import NOBODY, Trust
from zetadp.app.certificates.signing.keys import PublicKeySet

PROOFS_FILE, REVOCATIONS_FILE = "proofs.json", "revocations.jws"
"""Beside a certificate."""
REVOKED = "revocation"
"""Name of the check that fails if a key is revoked."""
WITNESSES = "witnesses"
_TOO_EARLY = "by these proofs' own, unsigned word no witness had been asked about the certificate yet: get them again"


@final
@dataclass(frozen=True)
class Evidence:
    r"""As files hold it.

    Attributes:
      proofs: as ``/v1/certificates/{id}/proofs`` gives them; None if there are none.
      revocations: the list as ``/.well-known/zetadp-revocations.jws`` gives it; None if there is none.
      machine_report: the file of that name that the certificate names, as a confidential machine gave it; None if there is none.
    """

    proofs: bytes | None = None
    revocations: bytes | None = None
    machine_report: bytes | None = None


@final
@dataclass(frozen=True)
class Signed:
    """A certificate whose signatures hold: its statement, as it was signed and as it was read, and the trusted keys that signed it."""

    content: bytes
    statement: Statement
    key_ids: tuple[str, ...]

    @property
    def announced(self) -> AnnouncedFacts | None:
        """Where its plan was logged."""
        return self.statement.predicate.announced


def check_evidence(signed: Signed, keys: PublicKeySet, evidence: Evidence, trust: Trust = NOBODY) -> Iterator[Check]:
    """Checks whether the certificate and its plan are in the log, who saw that and when, and whether its keys still count."""
    try:
        revoked = None if evidence.revocations is None else read_revocations(evidence.revocations, keys)
    except RevocationsRefused as error:
        # An unreadable list may hide a revocation, so it isn't taken for an empty one.
        yield failed("revocations", str(error))
        return
    try:
        proofs = None if evidence.proofs is None else read_proof(evidence.proofs, Proofs)
    except ProofRefused as error:
        yield failed("log", f"the proofs can't be read: {error}")
        return
    head, logged = _check_log(signed, keys, proofs, revoked)
    if revoked is None:
        yield not_checked(REVOKED, "no list of revoked keys was given")
    else:
        yield from (_check_key(key_id, revoked, head) for key_id in signed.key_ids)
    yield logged
    missing = _missing_signatures(proofs, signed.announced)
    yield failed(WITNESSES, missing) if missing else _check_witnesses(proofs, signed.announced, trust)
    plan_head, planned = check_plan_logged(signed.statement, keys, proofs, revoked, head)
    yield planned
    yield from check_tpm_quote(signed.statement, plan_head)
    yield from check_machine_report(signed.statement, evidence.machine_report, plan_head, trust)
    yield check_time_stamps(signed.statement.predicate, proofs, plan_head, trust)


def _check_log(signed: Signed, keys: PublicKeySet, proofs: Proofs | None, revoked: RevocationList | None) -> tuple[LogHead | None, Check]:
    if proofs is None:
        return None, not_checked("log", "no proof of inclusion in the log was given")
    try:
        inclusion = InclusionProof.read(proofs.certificate)
        head, key = check_inclusion(certificate_entry(signed.content, signed.announced), inclusion, keys)
    except ProofRefused as error:
        return None, failed("log", f"the proof of inclusion doesn't hold: {error}")
    ended = None if revoked is None else revoked.find(key.kid)
    if ended is not None and not _is_of(ended, head):
        return None, failed("log", f"the log's head is signed by {key.kid}, {_revoked_as(ended)}: get a new proof")
    announced = signed.announced
    if announced is not None and not announced.index < announced.head_size <= inclusion.leaf_index:
        return None, failed("log", f"the certificate is entry {inclusion.leaf_index + 1}, which isn't after its plan and the head of it")
    where = f"entry {inclusion.leaf_index + 1} of {head.size} in {head.origin} with root {head.root}"
    return head, passed("log", f"{where}, signed by the trusted key {key.kid}")


def _check_witnesses(proofs: Proofs | None, announced: AnnouncedFacts | None, trust: Trust) -> Check:
    """Checks that enough of the trusted witnesses signed the head that the certificate is under, and the one of its plan."""
    if not trust.witnesses:
        return not_checked(WITNESSES, "no witness of logs is trusted: two readers may have been shown two logs")
    if proofs is None:
        return not_checked(WITNESSES, "no proof was given that a witness could have signed")
    of, least = len(trust.witnesses), trust.least_witnesses
    told: list[str] = []
    # The plan first: its head was signed before training began, however early the proofs are.
    for name, proof in (("its plan", None if announced is None else proofs.plan), ("the certificate", proofs.certificate)):
        if proof is None:
            if name == "its plan" and announced is not None:
                return failed(WITNESSES, "the proof of its plan is missing")
            continue
        try:
            found = cosignatures_on(Note.read(InclusionProof.read(proof).checkpoint), trust.witnesses)
        except (NoteRefused, ProofRefused) as refused:
            return failed(WITNESSES, f"the head that {name} is under {refused}")
        if len(found) < least:
            is_early = proof is proofs.certificate and proofs.pending is not None
            few = f"{len(found)} of {of} witnesses signed the head that {name} is under, {least} are asked for"
            return not_checked(WITNESSES, _TOO_EARLY) if is_early else failed(WITNESSES, few)
        # The latest of so many as are asked for is what all of them vouch for.
        time = sorted(one.time for one in found)[least - 1]
        told.append(f"{len(found)} of {of} signed the head that {name} is under, {least} of them by {time:%Y-%m-%d %H:%M:%S} UTC")
    return passed(WITNESSES, f"{'; '.join(told)}, by their own clocks (at least {least} asked for)")


def _missing_signatures(proofs: Proofs | None, announced: AnnouncedFacts | None) -> str:
    """What the head of the plan lacks of the signatures that the certificate says it had, whoever they are by; empty if nothing."""
    if proofs is None or proofs.plan is None or announced is None:
        return ""
    try:
        note = Note.read(InclusionProof.read(proofs.plan).checkpoint)
    except (NoteRefused, ProofRefused) as refused:
        return f"the head that its plan is under {refused}"
    origin, _, _ = note.text.partition("\n")
    found = len({(one.name, one.key_id) for one in note.signatures if one.name != origin})
    if found >= announced.cosignatures:
        return ""
    witnesses = so_many(announced.cosignatures, "witness", "witnesses")
    return f"the certificate says that {witnesses} signed the head of its plan, the proofs have {so_many(found, 'signature', 'signatures')}"


def _check_key(key_id: str, revoked: RevocationList, head: LogHead | None) -> Check:
    found = revoked.find(key_id)
    as_of = f"as of {revoked.issued:%Y-%m-%d %H:%M} UTC"
    if found is None:
        return passed(REVOKED, f"the key {key_id} isn't revoked, {as_of}")
    signer = f"signed by {key_id}, {_revoked_as(found)}"
    if found.reason is Reason.COMPROMISED:
        return failed(REVOKED, f"{signer}: don't trust anything that it signed, before that or after")
    if head is None or not _is_of(found, head):
        return failed(
            REVOKED, f"{signer}; it isn't proved to be from before: that takes a proof of inclusion in the log of {found.log_size}"
        )
    return passed(REVOKED, f"{signer}; this certificate is from before: it is in the log as it was then")


def _is_of(revocation: Revocation, head: LogHead) -> bool:
    """Whether this is the log that the revocation states. A compromised key is never trusted, not even for a matching root."""
    same = (head.size, head.root) == (revocation.log_size, revocation.log_root)
    return same and revocation.reason is not Reason.COMPROMISED


def _revoked_as(revocation: Revocation) -> str:
    return f"which was revoked on {revocation.time:%Y-%m-%d %H:%M} UTC as {revocation.reason.value}"
