r"""What the log holds: a few lines for each plan and each certificate, with a digest and nothing of what it is of.

Entries are public. A plan's entry has the tag of its data set and the plan's number among that data set's, so that whoever reads the log
sees whether a number is missing or stands there twice; a certificate's entry has the place of its plan, so that everybody sees which plans
never came to a certificate. A tag is drawn at random and says nothing of whose data it is.
"""

from __future__ import annotations

from zetadp.app.certificates.facts.announced import AnnouncedFacts, PlanStatement
from zetadp.app.certificates.facts.statement import CODE_MANIFEST, DATA_MANIFEST, SPEC_FILE, Statement
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.digests import sha256_of

PLAN, CERTIFICATE = "zetadp-plan", "zetadp-certificate"
NO_PLAN = "-"


def plan_entry(statement: PlanStatement) -> bytes:
    """The entry of a plan."""
    return f"{PLAN}\n{statement.data_set}\n{statement.number}\n{plan_digest(statement)}\n".encode()


def plan_digest(statement: PlanStatement) -> str:
    """The digest in it."""
    return sha256_of(canonical_json(statement))


def certificate_entry(statement: bytes, announced: AnnouncedFacts | None) -> bytes:
    """The entry of a certificate's statement, as it was signed."""
    plan = NO_PLAN if announced is None else announced.index
    return f"{CERTIFICATE}\n{plan}\n{sha256_of(statement)}\n".encode()


def plan_index(entry: bytes) -> int | None:
    """The number of the plan that a certificate's entry names; None if it names none."""
    kind, plan, *_ = entry.decode().splitlines()
    return int(plan) if kind == CERTIFICATE and plan != NO_PLAN else None


def plan_statement_of(statement: Statement) -> PlanStatement | None:
    """The plan's statement as a certificate implies it; None where its plan wasn't logged, or a file that it takes isn't named."""
    certificate, files = statement.predicate, {subject.name: subject.digest.sha256 for subject in statement.subject}
    announced = certificate.announced
    if announced is None or not {SPEC_FILE, DATA_MANIFEST, CODE_MANIFEST} <= files.keys():
        return None
    return PlanStatement(
        job=certificate.job.id,
        attempt=announced.attempt,
        spec=files[SPEC_FILE],
        plan=sha256_of(canonical_json(certificate.plan)),
        data_manifest=files[DATA_MANIFEST],
        code=files[CODE_MANIFEST],
        ledger=certificate.ledger,
        noise_key=announced.noise_key,
        data_set=announced.data_set,
        number=announced.number,
        earlier=announced.earlier,
    )
