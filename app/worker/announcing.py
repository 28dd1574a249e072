r"""Before a training's first step: its plan is logged, the log's head is signed, and others are asked to stamp the time on it.

A plan's entry counts among those of the same data set: of the same tenant, kind and place (an upload's id, or a folder). Splits and other
settings don't make another data set of it. Nothing of it is secret but whose it is: the log has a random tag.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import structlog
from httpx2 import Client, HTTPError, InvalidURL
from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from zetadp.accountants import deadline
from zetadp.accountants.events import neighbourhood
from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.facts.announced import AnnouncedFacts, EarlierRuns, PlanStatement
from zetadp.app.certificates.facts.claims import guarantee_of
from zetadp.app.certificates.facts.decimals import fraction, upper
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.phrases import so_many
from zetadp.app.certificates.issuing.issue import data_manifest_of, spec_file
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.beacons import beacon_of
from zetadp.app.certificates.log.checkpoint import LogHead
from zetadp.app.certificates.log.cosignatures import WitnessesUnreadable, signatures
from zetadp.app.certificates.log.entries import PLAN, plan_digest, plan_entry
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.log.time_stamps import CONTENT_TYPE, StampRefused, accept_answer, of_different_signers, stamp_request
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.noise_keys import NoiseKeyDeleted, commitment, noise_key_of, run_secret
from zetadp.app.jobs.attempts import Attempt, Attempts
from zetadp.app.jobs.document import JOB_DOCUMENT, TrainingDocument
from zetadp.app.jobs.events import process_started
from zetadp.app.kit.database import UNAVAILABLE, now
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import StorageUnavailable
from zetadp.app.storage.opening import storage_of
from zetadp.app.tables.certificate_log import AnnouncedPlanRow, AnnouncedSetRow
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import JobEventRow, JobRow
from zetadp.app.worker.witnessing import keep_head, witnessed
from zetadp.mechanisms import RandomOrigin, TimeLimitReached
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.request import why_not_repeatable

ASKING_SECONDS = 10.0
"""How long an authority may take."""
COST_SECONDS = 3.0
"""How much computing what an earlier plan guarantees may take, before it counts as nothing that could be computed."""
LARGEST_ANSWER = 15_000
_log = structlog.get_logger()


class NotAnnounced(Exception):
    """The plan isn't logged as this service demands: nothing of it may run."""


@final
@dataclass(frozen=True)
class _Logged:
    """A plan's entry: its row's facts, and the head that is signed for it; None if it was signed by an earlier attempt."""

    facts: AnnouncedFacts
    head: LogHead | None


def announce(attempt: Attempt, document: TrainingDocument, attempts: Attempts, settings: Settings) -> AnnouncedFacts:
    r"""Log the plan, unless an earlier attempt of the job logged the same, and have its head stamped; what a certificate says of that.

    Raises:
      NotAnnounced: fewer authorities stamped it than ``least_time_stamps``, fewer witnesses signed it than ``least_witnesses``, or its
        noise key was deleted.
      AttemptSuperseded, StorageUnavailable, InvalidParameter, OSError: as those that it calls.
    """
    try:
        key = noise_key_of(storage_of(settings).store, attempt.job_id) if is_repeatable(document, settings) else None
    except NoiseKeyDeleted as deleted:
        raise NotAnnounced(str(deleted)) from deleted
    fresh = PlanStatement(
        job=attempt.job_id,
        attempt=attempt.number,
        spec=sha256_of(spec_file(document.spec)),
        plan=sha256_of(canonical_json(document.plan)),
        data_manifest=sha256_of(data_manifest_of(attempt.job_id, document.spec, document.plan, settings)),
        code=sha256_of(code_manifest()),
        ledger=attempt.charge,
        noise_key=None if key is None else commitment(key),
        data_set="0" * 32,
        number=1,
    )
    _price_earlier(attempts, attempt.job_id, document)
    logged = attempts.within(attempt, lambda session, job: _logged(session, job, fresh, document, settings))
    if logged.head is None:
        return logged.facts
    try:
        signed = witnessed(settings, attempts.reading, lambda first, second: attempts.reading(_proof(first, second)))
    except WitnessesUnreadable as unreadable:
        raise NotAnnounced(str(unreadable)) from unreadable
    if signed.count < settings.least_witnesses:
        raise NotAnnounced(
            f"{so_many(signed.count, 'witness', 'witnesses')} signed the log with its plan, and at least {settings.least_witnesses} must: "
            "nothing was run and nothing released"
        )
    stamps = stamped(settings, signed.head.text)
    if len(stamps) < settings.least_time_stamps:
        raise NotAnnounced(
            f"{so_many(len(stamps), 'time-stamping authority', 'time-stamping authorities')} stamped the log with its plan, and at least "
            f"{settings.least_time_stamps} must (asked: {settings.time_stamps or 'none'}): nothing was run and nothing released"
        )

    def keep(session: Session, _job: JobRow) -> AnnouncedFacts:
        row = session.get(AnnouncedPlanRow, logged.facts.index)
        assert row is not None  # it was logged a moment ago
        kept = keep_head(session, signed, stamps)
        row.head_size = signed.head.size
        # Of what is kept, and so is among the proofs: another plan under the same head may have had it stamped before.
        row.beacon = None if key is None else beacon_of(kept.time_stamps, kept.checkpoint)
        row.time_stamps = min(len(stamps), len(kept.time_stamps))
        row.cosignatures = min(signed.count, signatures(kept.checkpoint) - 1)
        return _facts(row)

    return attempts.within(attempt, keep)


def have_witnessed(attempts: Attempts, settings: Settings) -> None:
    """Have the witnesses sign the log's head with the certificate that was just stored; the job has ended, whatever comes of it."""
    if settings.witnesses is None:
        return
    try:
        signed = witnessed(settings, attempts.reading, lambda first, second: attempts.reading(_proof(first, second)))

        def keep(session: Session) -> None:
            keep_head(session, signed, [])

        attempts.writing(keep)
    except (WitnessesUnreadable, SigningKeyUnusable, StorageUnavailable, OSError, *UNAVAILABLE):
        _log.exception("head_not_witnessed")


def _proof(first: int, second: int) -> Callable[[Session], list[bytes]]:
    return lambda session: journal.consistency_path(session, first, second)


def is_repeatable(document: TrainingDocument, settings: Settings) -> bool:
    """Whether the run's noise key is kept, so that an auditor may repeat it."""
    return settings.keep_noise_keys and why_not_repeatable(document.spec, document.runtime, document.plan) is None


def secret_of(facts: AnnouncedFacts, attempts: Attempts, job_id: str, settings: Settings) -> bytes | None:
    """What the run's randomness follows from; None where that is nothing that was kept."""
    if facts.noise_key is None:
        return None

    def planned(session: Session) -> str:
        row = session.get(AnnouncedPlanRow, facts.index)
        assert row is not None  # the facts are of it
        return plan_digest(PlanStatement.model_validate_json(row.statement))

    return run_secret(noise_key_of(storage_of(settings).store, job_id), attempts.reading(planned), facts.beacon)


def stamped(settings: Settings, text: str) -> list[str]:
    """The answers of the configured authorities to a question about this text, one of each: those that don't answer as they should are
    left out, and an authority that answers under two addresses counts once.
    """
    found: list[str] = []
    for address in _listed(settings.time_stamps):
        question, nonce = stamp_request(text)
        try:
            with Client(timeout=ASKING_SECONDS) as client:
                answer = client.post(address, content=question, headers={"Content-Type": CONTENT_TYPE})
            if answer.status_code != 200 or len(answer.content) > LARGEST_ANSWER:
                raise StampRefused(f"answered with {answer.status_code} and {len(answer.content)} bytes")
            found.append(accept_answer(answer.content, text, nonce))
        except (HTTPError, InvalidURL, StampRefused) as error:
            _log.warning("time_stamp_missing", authority=address, error=str(error)[:200])
    return of_different_signers(found)


def identity_of(document: TrainingDocument) -> str:
    """A digest of what names a data set, whatever is taken of it and however it is split."""
    data = document.spec.data
    named = {name: getattr(data, name) for name in ("kind", "data_set", "folder", "path") if hasattr(data, name)}
    return sha256_of(canonical_json(_Named(named={name: str(value) for name, value in named.items()})))


class _Named(Value):
    named: dict[str, str]


def _listed(addresses: str) -> list[str]:
    return addresses.split(",") if addresses else []


def _logged(session: Session, job: JobRow, fresh: PlanStatement, document: TrainingDocument, settings: Settings) -> _Logged:
    earlier = select(AnnouncedPlanRow).where(AnnouncedPlanRow.job_id == job.id).order_by(AnnouncedPlanRow.number.desc())
    before = session.scalars(earlier).all()
    _check_begun(session, before, fresh)
    for row in before:
        if not _same(PlanStatement.model_validate_json(row.statement), fresh):
            continue
        if row.head_size is None:  # logged, and lost before anybody signed its head
            return _Logged(_facts(row), head_of(session, settings, row.number + 1))
        return _Logged(_facts(row), None)
    journal.lock(session)  # numbers of plans are given one after the other
    tag = _tag(session, job.tenant, identity_of(document))
    rows = session.scalars(select(AnnouncedPlanRow).where(AnnouncedPlanRow.tag == tag)).all()
    terms = _terms(document)
    fields = dict(fresh) | {"data_set": tag, "number": len(rows) + 1, "earlier": _earlier(session, rows, terms)}
    statement = PlanStatement.model_validate(fields)
    index = journal.append(session, PLAN, f"{job.id}/{statement.attempt}", plan_entry(statement), now())
    row = AnnouncedPlanRow(
        number=index,
        job_id=job.id,
        attempt=statement.attempt,
        tag=tag,
        ordinal=statement.number,
        statement=canonical_json(statement).decode(),
        head_size=None,
        time_stamps=0,
        cosignatures=0,
        beacon=None,
        epsilon=None,
        delta=None,
        terms=terms,
    )
    session.add(row)
    session.flush()
    return _Logged(_facts(row), head_of(session, settings, index + 1))


def _check_begun(session: Session, before: Sequence[AnnouncedPlanRow], fresh: PlanStatement) -> None:
    """Raises NotAnnounced if a process of the job may have trained under another plan: a certificate says that its own came first."""
    # Launchers and preparations write to a job's log as well, before any process.
    lines = [process_started(attempt).line for attempt in range(1, fresh.attempt)]
    is_begun = or_(JobEventRow.kind == "started", and_(JobEventRow.kind == "log", JobEventRow.data["line"].as_string().in_(lines)))
    asked = select(func.min(JobEventRow.attempt), func.max(JobEventRow.attempt)).where(
        JobEventRow.job_id == fresh.job, JobEventRow.attempt < fresh.attempt, is_begun
    )
    first, last = session.execute(asked).one()
    if last is None:
        return
    plans = [row for row in before if row.attempt <= last]
    if min((row.attempt for row in plans), default=fresh.attempt) > first or not all(
        _same(PlanStatement.model_validate_json(row.statement), fresh) for row in plans
    ):
        raise NotAnnounced(
            f"training began at start {first} of the job, and its plan, data, code, charge or noise key has changed since: a plan that is "
            "logged now isn't from before the first step. Submit it anew, as another job"
        )


def _same(before: PlanStatement, fresh: PlanStatement) -> bool:
    """Whether both are about the same plan, data, code and charge."""
    return all(getattr(before, name) == getattr(fresh, name) for name in ("spec", "plan", "data_manifest", "code", "ledger", "noise_key"))


def _tag(session: Session, tenant: str, identity: str) -> str:
    known = session.get(AnnouncedSetRow, (tenant, identity))
    if known is None:
        known = AnnouncedSetRow(tenant=tenant, identity=identity, tag=secrets.token_hex(16))
        session.add(known)
    return known.tag


def _facts(row: AnnouncedPlanRow) -> AnnouncedFacts:
    statement = PlanStatement.model_validate_json(row.statement)
    return AnnouncedFacts(
        index=row.number,
        attempt=row.attempt,
        data_set=row.tag,
        number=row.ordinal,
        earlier=statement.earlier,
        head_size=row.head_size or row.number + 1,
        time_stamps=row.time_stamps,
        noise_key=statement.noise_key,
        beacon=row.beacon,
        cosignatures=row.cosignatures,
    )


def _terms(document: TrainingDocument) -> str:
    """What the plan's guarantee is about: figures of different adjacencies or units can't be added. Empty where nothing is guaranteed."""
    pair = neighbourhood(document.plan.event)
    return "" if pair is None else f"{pair[0].value} {pair[1]}"


def _earlier(session: Session, rows: Sequence[AnnouncedPlanRow], terms: str) -> EarlierRuns | None:
    if not rows:
        return None
    priced = [row for row in rows if row.epsilon and row.delta]
    alike = [row for row in priced if row.terms == terms]
    jobs = {row.job_id for row in rows}
    certified = session.scalar(select(func.count()).select_from(CertificateRow).where(CertificateRow.job_id.in_(jobs)))
    return EarlierRuns(
        certified=certified or 0,
        epsilon=upper(sum((fraction(row.epsilon or "0") for row in alike), Fraction(0))) if alike else None,
        delta=upper(sum((fraction(row.delta or "0") for row in alike), Fraction(0))) if alike else None,
        unlike=len(priced) - len(alike),
        unguaranteed=len(rows) - len(priced),
    )


def _price_earlier(attempts: Attempts, job_id: str, document: TrainingDocument) -> None:
    """What earlier plans of the same data set guarantee, where nobody has asked yet: outside the transaction that holds the log."""

    def unpriced(session: Session) -> list[tuple[int, dict[str, object]]]:
        tenant = session.scalar(select(JobRow.tenant).where(JobRow.id == job_id))
        known = None if tenant is None else session.get(AnnouncedSetRow, (tenant, identity_of(document)))
        if known is None:
            return []
        asked = select(AnnouncedPlanRow.number, JobRow.document).join(JobRow, JobRow.id == AnnouncedPlanRow.job_id)
        found = session.execute(asked.where(AnnouncedPlanRow.tag == known.tag, AnnouncedPlanRow.epsilon.is_(None)))
        return [(number, stored) for number, stored in found]

    for number, stored in attempts.reading(unpriced):
        epsilon, delta = _cost(stored)

        def keep(session: Session, number: int = number, epsilon: str = epsilon, delta: str = delta) -> None:
            row = session.get(AnnouncedPlanRow, number)
            if row is not None:
                row.epsilon, row.delta = epsilon, delta

        attempts.writing(keep)


def _cost(stored: dict[str, object]) -> tuple[str, str]:
    """Epsilon and delta of a job's whole plan; empty texts where it guarantees nothing that could be computed in time."""
    document = JOB_DOCUMENT.validate_python(stored)
    assert isinstance(document, TrainingDocument)  # nothing else is announced
    origin = RandomOrigin.USER_SEED if document.spec.reproducible else RandomOrigin.OPERATING_SYSTEM
    try:
        with deadline.time_limit(COST_SECONDS):
            found = guarantee_of(document.plan.event, document.plan.delta, origin)
    except (TimeLimitReached, PrivacyError):
        return "", ""
    return (found.epsilon, found.delta) if isinstance(found, ApproximateDp) else ("", "")
