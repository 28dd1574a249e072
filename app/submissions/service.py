r"""Operations on jobs other than running them: submit, read, list, cancel. Each is one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from zetadp.app.certificates.facts.statement import CERTIFICATE_FILE
from zetadp.app.certificates.log.storing import stored_envelope
from zetadp.app.certificates.policy.reading import operators_policy
from zetadp.app.jobs.calculation import Calculation, CalculationDocument, CalculationResult
from zetadp.app.jobs.charges import charge_again, unapproved
from zetadp.app.jobs.document import TrainingAsked, asked_training, waiting_state
from zetadp.app.jobs.errors import ArtifactNotFound, IdempotencyConflict, JobConflict, JobNotFound, TooManyJobs
from zetadp.app.jobs.events import HISTORY, Artifact, ArtifactsStored, JobEventRecord
from zetadp.app.jobs.folders import RESULT
from zetadp.app.jobs.history import change_state, events_after, last_number, latest, locked, pause_for_approval
from zetadp.app.jobs.leases import capacities
from zetadp.app.jobs.needs import check_available, needs_of
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import Job, JobPage, JobSubmission
from zetadp.app.jobs.views import resource, resources
from zetadp.app.jobs.webhooks.destinations import Destinations, host_of
from zetadp.app.jobs.workspaces import artifact_key
from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.kit.disk import check_room
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.tracing import span, traceparent
from zetadp.app.ledgers.errors import LedgerClosed, ReservationNotApproved
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, stored_definition
from zetadp.app.ledgers.queries import check_for_jobs, check_job_rules, found_ledger
from zetadp.app.ledgers.states import LedgerState
from zetadp.app.storage.opening import Storage, storage_of
from zetadp.app.submissions.planning import check_asked, check_policy, in_request
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import UNFINISHED_STATES, Action, JobState, after_action
from zetadp.app.tables.jobs import IdempotencyKeyRow, JobRow, WebhookRow
from zetadp.app.uploads.availability import claim, facts_of, is_there
from zetadp.app.uploads.quota import lock_tenant
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.algorithms.comparison import Comparison

EVENTS_PER_READ = 500
ASKED = {Action.CANCEL: "cancelled", Action.PAUSE: "paused", Action.RESUME: "resumed", Action.RETRY: "retried"}
Stored = TrainingAsked | CalculationDocument
"""A job's document as it is stored first."""
APPROVED = "its reservation was approved"
LONGEST_NUMBER = 15
"""The most digits of an event number; longer texts aren't parsed."""


@final
@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list: all conditions hold; labels are (name, value)."""

    states: Sequence[JobState] = ()
    algorithm: str | None = None
    labels: Sequence[tuple[str, str]] = ()


@final
@dataclass(frozen=True)
class ArtifactFile:
    """A file of a job: the object that holds it, its SHA-256, and a certificate's bytes, which are in the database."""

    key: str
    sha256: str
    certificate: bytes | None


@final
class JobService:
    r"""The jobs of one tenant; it can't see those of another.

    Args:
      principal: who asks, to whose quota of a ledger a job counts: the id of the first of its rotated keys; None where no key was sent.
    """

    def __init__(self, settings: Settings, database: Database, queue: JobQueue, tenant: str, principal: str | None = None) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue
        self._tenant, self._principal = tenant, principal
        self._destinations = Destinations(settings)

    @property
    def tenant(self) -> str:
        """Whose jobs these are."""
        return self._tenant

    def submit(self, submission: JobSubmission, idempotency_key: str | None) -> Job:
        r"""Store a training, which a worker then prepares and queues; with a key that was used before, return the job it made then.

        No data set is read and no noise is calibrated: whatever depends on them fails the job later, with its reason.

        Raises:
          InvalidParameter: the spec fits no data set, the runtime doesn't fit the spec, the operator's policy refuses it, or no living
            worker has the resources; nothing is stored.
          PolicyUnreadable: there is an operator's policy, and it can't be read.
          IdempotencyConflict: the key came with another request before.
          LedgerNotFound, LedgerClosed: there is no such ledger, or it admits nothing more; nothing is stored.
          TooManyJobs: the tenant has as many unfinished jobs as it may have.
          StorageFull: there is no room for a job's files.
        """
        if submission.webhook is not None:
            self._destinations.check(submission.webhook.url)
        asked = TrainingAsked(spec=submission.spec, runtime=submission.runtime)
        return self._submit(asked, submission, idempotency_key, _digest(submission))

    def submit_calculation(self, calculation: Calculation, idempotency_key: str | None) -> Job:
        """Likewise for a calculation, which is queued at once. Raises IdempotencyConflict, TooManyJobs."""
        seconds = self._settings.calculation_job_seconds
        document = CalculationDocument(calculation=calculation, seconds=seconds)
        return self._submit(document, None, idempotency_key, _digest(calculation))

    def _submit(self, document: Stored, asked: JobSubmission | None, key: str | None, digest: str) -> Job:
        with span("submit job", {}, "producer"):
            return self._submitted(document, asked, key, digest)

    def _submitted(self, document: Stored, asked: JobSubmission | None, key: str | None, digest: str) -> Job:
        if key is not None:
            with self._database.reading() as session:
                before = self._made_before(session, key, digest)
            if before is not None:
                return before
        check_room(self._settings)
        if asked is not None:
            with self._database.reading() as session:
                facts = self._known_facts(session, asked.spec)
                budget = None if asked.ledger is None else self._checked_ledger(session, asked.ledger, asked.purpose)
                there = capacities(session)
            check_asked(asked.spec, asked.runtime, facts)
            if (policy := operators_policy(self._settings)) is not None:
                check_policy(policy, asked.spec, budget)
            needs = needs_of(asked.runtime, asked.resources)
            if needs.machines > 1 and isinstance(asked.spec, Comparison):
                raise InvalidParameter("resources.machines", "1 for a comparison, whose trainings follow one another", needs.machines)
            if not self._settings.accept_unfit_jobs:
                check_available(needs, there)
        job, is_new = self._store(document, asked, key, digest)
        if is_new:
            self._queue.call(job.id, job.priority)
        return job

    def get(self, job_id: str) -> Job:
        """The job, with the result of a calculation. Raises JobNotFound."""
        with self._database.reading() as session:
            job = resource(session, self._found(session.get(JobRow, job_id), job_id))
        if job.calculation is None or job.state is not JobState.SUCCEEDED or job.files_deleted is not None:
            return job
        result = self.storage.store.get(artifact_key(job_id, job.attempt, RESULT))
        assert result is not None  # it is stored before the job has ended
        return Job.model_validate({**dict(job), "result": CalculationResult.model_validate_json(result.content)})

    def page(self, wanted: JobFilter, before: str | None, limit: int) -> JobPage:
        """At most ``limit`` jobs that are older than the job ``before``, newest first."""
        query = (
            select(JobRow).options(defer(JobRow.document)).where(JobRow.tenant == self._tenant).order_by(JobRow.id.desc()).limit(limit + 1)
        )
        if wanted.states:
            query = query.where(JobRow.state.in_(wanted.states))
        if wanted.algorithm is not None:
            query = query.where(JobRow.document[("spec", "algorithm")].as_string() == wanted.algorithm)
        for name, value in wanted.labels:
            query = query.where(JobRow.labels[name].as_string() == value)
        if before is not None:
            query = query.where(JobRow.id < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
            jobs = resources(session, rows[:limit])
        return JobPage(jobs=tuple(jobs), next=rows[limit - 1].id if len(rows) > limit else None)

    def act(self, job_id: str, action: Action) -> Job:
        """Cancel, pause, resume or retry the job; repeating it has no effect. Raises JobNotFound, or JobConflict if its state forbids it.

        A job with a ledger is charged again when it is retried, to this key, which may raise LedgerClosed and BudgetExceeded; a retry may
        also raise TooManyJobs. A job whose reservation waits for an approval is paused and goes on by itself with that; resuming it before
        raises ReservationNotApproved, and pausing it keeps it paused also then.
        """
        with self._database.writing() as session:
            row = self._found(locked(session, job_id), job_id)
            before = JobState(row.state)
            state = after_action(before, action)
            if state is None:
                raise JobConflict(job_id, before, ASKED[action])
            if action is Action.RETRY and row.files_deleted is not None:
                # Its checkpoint is gone: what it released before would be released again.
                raise JobConflict(job_id, f"{before}, and its files were deleted", ASKED[action])
            if state is JobState.QUEUED:
                state = waiting_state(row.document)
            if action is Action.RETRY:
                lock_tenant(session, self._tenant)
                self._check_quota(session)
                if state is JobState.PREPARING and row.ledger is not None:
                    self._checked_ledger(session, row.ledger, row.purpose)
                self._check_data(session, row)
                row.worker_deaths, row.ran_seconds, row.events_deleted, row.spender = 0, 0.0, None, self._principal
                charge_again(session, row)
            waiting = None
            if state is JobState.QUEUED and before is not state and (waiting := unapproved(session, row)) is not None:
                if action is Action.RESUME:
                    raise ReservationNotApproved(waiting)
                state = JobState.PAUSED
                pause_for_approval(session, row, waiting)
            elif state is not before:
                change_state(session, row, state)
            elif action is Action.PAUSE:
                row.awaits = None
            session.flush()
            job = resource(session, row)
        if state in (JobState.PREPARING, JobState.QUEUED):
            self._queue.call(job.id, job.priority)
        return job

    def go_on(self, job_id: str, reservation_id: str) -> None:
        """Queue a job that is paused until this reservation is approved, which it is; any other job stays as it is."""
        with self._database.writing() as session:
            row = locked(session, job_id)
            if row is None or row.tenant != self._tenant or row.awaits != reservation_id or unapproved(session, row) is not None:
                return
            change_state(session, row, JobState.QUEUED, APPROVED)
            priority = row.priority
        self._queue.call(job_id, priority)

    def label(self, job_id: str, labels: Mapping[str, str]) -> Job:
        """Replace the job's labels with these. Raises JobNotFound."""
        with self._database.writing() as session:
            row = self._found(locked(session, job_id), job_id)
            row.labels = dict(labels)
            session.flush()
            return resource(session, row)

    def checked_event_number(self, job_id: str, text: str) -> int:
        """The number of an event of this job, from a client's text; 0 means the beginning. Raises JobNotFound, InvalidParameter."""
        with self._database.reading() as session:
            self._found(session.get(JobRow, job_id), job_id)
            last = last_number(session, job_id)
        is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
        if not is_number or int(text) > last:
            raise InvalidParameter("Last-Event-ID", f"the id of an event of this job (0 to {last})", text)
        return int(text)

    def events(self, job_id: str, after: int, kinds: Sequence[str] = HISTORY) -> tuple[list[JobEventRecord], bool]:
        """The job's next events of these kinds after number ``after``, and whether its history ends with them."""
        with self._database.reading() as session:
            state = JobState(self._found(session.get(JobRow, job_id), job_id).state)
            records = events_after(session, job_id, after, kinds, EVENTS_PER_READ)
        # The state was read first: if it was final then, its event had been written too.
        return records, state.is_final and len(records) < EVENTS_PER_READ

    def artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """The files of a job that succeeded; none before. Raises JobNotFound."""
        with self._database.reading() as session:
            row = self._found(session.get(JobRow, job_id), job_id)
            return self._artifacts(session, row)

    def artifact(self, job_id: str, name: str) -> ArtifactFile:
        """Where a listed file's bytes are; the name is looked up, never joined to a path. Raises JobNotFound, ArtifactNotFound."""
        with self._database.reading() as session:
            row = self._found(session.get(JobRow, job_id), job_id)
            listed = {artifact.name: artifact.sha256 for artifact in self._artifacts(session, row)}
            if name not in listed:
                raise ArtifactNotFound(job_id, name, tuple(listed))
            certificate = None
            if name == CERTIFICATE_FILE:
                issued = session.scalars(select(CertificateRow.id).where(CertificateRow.job_id == job_id)).one()
                certificate = stored_envelope(session, issued, self._tenant)
        return ArtifactFile(artifact_key(job_id, row.attempt, name), listed[name], certificate)

    @property
    def storage(self) -> Storage:
        """Where the files are."""
        return storage_of(self._settings)

    def _artifacts(self, session: Session, row: JobRow) -> tuple[Artifact, ...]:
        stored = latest(session, {"artifacts": [row.id]}).get((row.id, "artifacts"))
        return stored.artifacts if isinstance(stored, ArtifactsStored) and row.files_deleted is None else ()

    def _checked_ledger(self, session: Session, ledger_id: str, purpose: str | None) -> LedgerDefinition:
        """The ledger that a job is to be charged to; what it still admits is known when the plan is.

        Raises:
          LedgerNotFound, LedgerClosed, InvalidParameter.
        """
        row = found_ledger(session, self._tenant, ledger_id)
        definition = stored_definition(ledger_id, row.definition)
        check_for_jobs(definition)
        check_job_rules(definition, self._principal, purpose)
        if row.state != LedgerState.OPEN:
            raise LedgerClosed(ledger_id)
        return definition

    def _check_quota(self, session: Session) -> None:
        """Raises TooManyJobs if the tenant, which this transaction has locked, may have no further unfinished job."""
        unfinished = select(func.count()).where(JobRow.tenant == self._tenant, JobRow.state.in_(UNFINISHED_STATES))
        if (session.scalar(unfinished) or 0) >= self._settings.tenant_jobs:
            raise TooManyJobs(self._settings.tenant_jobs)

    def _store(self, document: Stored, asked: JobSubmission | None, key: str | None, digest: str) -> tuple[Job, bool]:
        stored = document.model_dump(mode="json")
        with self._database.writing() as session:
            lock_tenant(session, self._tenant)  # two requests with one key come one after the other
            if key is not None and (before := self._made_before(session, key, digest)) is not None:
                return before, False
            self._check_quota(session)
            if asked is not None:
                self._claim(session, asked.spec)
            row = JobRow(
                id=new_id(),
                tenant=self._tenant,
                created=now(),
                attempt=0,
                worker_deaths=0,
                ran_seconds=0.0,
                document=stored,
                labels=asked.labels if asked else {},
                priority=asked.priority if asked else 0,
                resources=asked.resources.model_dump(mode="json") if asked else {},
                **needs_of(asked.runtime, asked.resources).model_dump() if asked else {"device": "auto"},
                timeout_seconds=asked.timeout_seconds if asked else None,
                ledger=asked.ledger if asked else None,
                purpose=asked.purpose if asked else None,
                spender=self._principal,
                traceparent=traceparent(),
            )
            session.add(row)
            row.state = waiting_state(stored)
            session.flush()
            if asked is not None and asked.webhook is not None:
                url = asked.webhook.url
                session.add(WebhookRow(job_id=row.id, url=url, host=host_of(url), secret=asked.webhook.secret))
                session.flush()
            change_state(session, row, JobState(row.state))
            if key is not None:
                session.add(IdempotencyKeyRow(tenant=self._tenant, key=key, request_sha256=digest, job_id=row.id, created=now()))
            session.flush()
            return resource(session, row), True

    def _known_facts(self, session: Session, spec: AnyTrainingSpec) -> DataSetFacts | None:
        try:
            return facts_of(session, self._tenant, spec.data)
        except InvalidParameter as refused:
            raise in_request(refused, spec) from refused

    def _claim(self, session: Session, spec: AnyTrainingSpec) -> None:
        # From here on it can't be deleted: until the commit since its row is locked, then since a job uses it.
        try:
            claim(session, self._tenant, spec.data)
        except InvalidParameter as refused:
            raise in_request(refused, spec) from refused

    def _check_data(self, session: Session, row: JobRow) -> None:
        asked = asked_training(row.document)
        if asked is not None and not is_there(session, self._tenant, asked.spec.data):
            raise JobConflict(row.id, f"{row.state}, of a data set that was deleted,", ASKED[Action.RETRY])

    def _made_before(self, session: Session, key: str, digest: str) -> Job | None:
        used = session.get(IdempotencyKeyRow, (self._tenant, key))
        if used is None:
            return None
        if used.request_sha256 != digest:
            raise IdempotencyConflict(key, used.job_id)
        return resource(session, self._found(session.get(JobRow, used.job_id), used.job_id))

    def _found(self, row: JobRow | None, job_id: str) -> JobRow:
        if row is None or row.tenant != self._tenant:
            raise JobNotFound(job_id)
        return row


def _digest(submission: JobSubmission | Calculation) -> str:
    return hashlib.sha256(json.dumps(submission.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
