r"""Operations on jobs other than running them: submit, read, list, cancel. Each is one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from zetadp.app.jobs.calculation import Calculation, CalculationDocument, CalculationResult
from zetadp.app.jobs.charges import charge_again, charge_job
from zetadp.app.jobs.destinations import Destinations
from zetadp.app.jobs.document import JOB_DOCUMENT, JobDocument, TrainingDocument
from zetadp.app.jobs.errors import ArtifactNotFound, IdempotencyConflict, JobConflict, JobNotFound
from zetadp.app.jobs.events import HISTORY, Artifact, ArtifactsStored, JobEventRecord
from zetadp.app.jobs.folders import ARTIFACTS, RESULT, attempt_folder
from zetadp.app.jobs.history import change_state, events_after, last_number, latest, locked
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.resources import Job, JobPage, JobSubmission
from zetadp.app.jobs.views import resources
from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.kit.disk import check_room
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.tracing import span, traceparent
from zetadp.app.ledgers.admission import Priced
from zetadp.app.ledgers.queries import check_for_jobs
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.submissions.planning import in_request, planned
from zetadp.app.tables.job_states import Action, JobState, after_action
from zetadp.app.tables.jobs import IdempotencyKeyRow, JobRow, WebhookRow
from zetadp.app.uploads.availability import claim, is_there
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyTrainingSpec

EVENTS_PER_READ = 500
ASKED = {Action.CANCEL: "cancelled", Action.PAUSE: "paused", Action.RESUME: "resumed", Action.RETRY: "retried"}
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
class JobService:
    """The jobs of one tenant; it can't see those of another."""

    def __init__(self, settings: Settings, database: Database, queue: JobQueue, tenant: str) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue
        self._tenant = tenant
        self._destinations = Destinations(settings)

    @property
    def tenant(self) -> str:
        """Whose jobs these are."""
        return self._tenant

    def submit(self, submission: JobSubmission, idempotency_key: str | None) -> Job:
        r"""Store a training and queue it; with a key that was used before, return the job it made then.

        Raises:
          InvalidParameter, CalibrationFailed, UnsupportedEvent: the spec has no plan; nothing is stored.
          IdempotencyConflict: the key came with another request before.
          LedgerNotFound, LedgerClosed, BudgetExceeded, IncompatibleEvent: the ledger doesn't admit the plan; nothing is stored.
          StorageFull: there is no room for a job's files.
        """

        def document() -> JobDocument:
            # Calibration takes long; the write lock isn't held meanwhile.
            plan = planned(self._settings, self._database, self._tenant, submission.spec)
            return TrainingDocument(spec=submission.spec, runtime=submission.runtime, plan=plan)

        if submission.webhook is not None:
            self._destinations.check(submission.webhook.url)
        return self._submit(document, submission, idempotency_key, _digest(submission))

    def submit_calculation(self, calculation: Calculation, idempotency_key: str | None) -> Job:
        """Likewise for a calculation; the worker finds out whether it has a result. Raises IdempotencyConflict."""
        seconds = self._settings.calculation_job_seconds
        document = CalculationDocument(calculation=calculation, seconds=seconds)
        return self._submit(lambda: document, None, idempotency_key, _digest(calculation))

    def _submit(self, document: Callable[[], JobDocument], asked: JobSubmission | None, key: str | None, digest: str) -> Job:
        with span("submit job", {}, "producer"):
            return self._submitted(document, asked, key, digest)

    def _submitted(self, document: Callable[[], JobDocument], asked: JobSubmission | None, key: str | None, digest: str) -> Job:
        if key is not None:
            with self._database.reading() as session:
                before = self._made_before(session, key, digest)
            if before is not None:
                return before
        check_room(self._settings)
        made = document()
        priced = None if asked is None or asked.ledger is None else self._priced(asked.ledger, made)
        try:
            job, is_new = self._store(made, asked, priced, key, digest)
        except IntegrityError:  # PostgreSQL: the same key was stored by another request at the same moment
            if key is None:
                raise
            job, is_new = self._store(made, asked, priced, key, digest)
        if is_new:
            self._queue.call(job.id, job.priority)
        return job

    def get(self, job_id: str) -> Job:
        """The job, with the result of a calculation. Raises JobNotFound."""
        with self._database.reading() as session:
            job = resources(session, [self._found(session.get(JobRow, job_id), job_id)])[0]
        if job.calculation is None or job.state is not JobState.SUCCEEDED or job.files_deleted is not None:
            return job
        result = (attempt_folder(self._settings.job_dir(job_id), job.attempt) / ARTIFACTS / RESULT).read_bytes()
        return Job.model_validate({**dict(job), "result": CalculationResult.model_validate_json(result)})

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

        A job with a ledger is charged again when it is retried, which may raise LedgerClosed and BudgetExceeded.
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
            if action is Action.RETRY:
                self._check_data(session, row)
                row.worker_deaths, row.ran_seconds, row.events_deleted = 0, 0.0, None
                charge_again(session, row)
            if state is not before:
                change_state(session, row, state)
            session.flush()
            job = resources(session, [row])[0]
        if state is JobState.QUEUED:
            self._queue.call(job.id, job.priority)
        return job

    def label(self, job_id: str, labels: Mapping[str, str]) -> Job:
        """Replace the job's labels with these. Raises JobNotFound."""
        with self._database.writing() as session:
            row = self._found(locked(session, job_id), job_id)
            row.labels = dict(labels)
            session.flush()
            return resources(session, [row])[0]

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

    def artifact(self, job_id: str, name: str) -> Path:
        """Where a listed file is; the name is looked up, never joined to a path. Raises JobNotFound, ArtifactNotFound."""
        with self._database.reading() as session:
            row = self._found(session.get(JobRow, job_id), job_id)
            listed = tuple(artifact.name for artifact in self._artifacts(session, row))
        if name not in listed:
            raise ArtifactNotFound(job_id, name, listed)
        return attempt_folder(self._settings.job_dir(job_id), row.attempt) / ARTIFACTS / name

    def _artifacts(self, session: Session, row: JobRow) -> tuple[Artifact, ...]:
        stored = latest(session, {"artifacts": [row.id]}).get((row.id, "artifacts"))
        return stored.artifacts if isinstance(stored, ArtifactsStored) and row.files_deleted is None else ()

    def _priced(self, ledger_id: str, document: JobDocument) -> Priced:
        """What a training's plan costs on the ledger, computed before anything is locked."""
        assert isinstance(document, TrainingDocument)  # a calculation names no ledger
        ledgers = LedgerService(self._database, self._settings.calculation_seconds)
        check_for_jobs(ledgers.get(self._tenant, ledger_id).definition)
        return ledgers.priced(self._tenant, ledger_id, document.plan.event)

    def _store(
        self, document: JobDocument, asked: JobSubmission | None, priced: Priced | None, key: str | None, digest: str
    ) -> tuple[Job, bool]:
        with self._database.writing() as session:
            if key is not None and (before := self._made_before(session, key, digest)) is not None:
                return before, False
            if asked is not None:
                self._claim(session, asked.spec)
            row = JobRow(
                id=new_id(),
                tenant=self._tenant,
                created=now(),
                attempt=0,
                worker_deaths=0,
                ran_seconds=0.0,
                document=document.model_dump(mode="json"),
                labels=asked.labels if asked else {},
                priority=asked.priority if asked else 0,
                device=asked.runtime.device if asked else "auto",
                timeout_seconds=asked.timeout_seconds if asked else None,
                traceparent=traceparent(),
            )
            session.add(row)
            row.state = JobState.QUEUED
            session.flush()
            if asked is not None and asked.webhook is not None:
                session.add(WebhookRow(job_id=row.id, url=asked.webhook.url, secret=asked.webhook.secret))
                session.flush()
            change_state(session, row, JobState.QUEUED)
            if priced is not None:
                charge_job(session, row, priced)
            if key is not None:
                session.add(IdempotencyKeyRow(tenant=self._tenant, key=key, request_sha256=digest, job_id=row.id, created=now()))
            session.flush()
            return resources(session, [row])[0], True

    def _claim(self, session: Session, spec: AnyTrainingSpec) -> None:
        # What was there when the plan was made may have been deleted since; from here to the commit it can't be.
        try:
            claim(session, self._tenant, spec.data)
        except InvalidParameter as refused:
            raise in_request(refused, spec) from refused

    def _check_data(self, session: Session, row: JobRow) -> None:
        document = JOB_DOCUMENT.validate_python(row.document)
        if isinstance(document, TrainingDocument) and not is_there(session, self._tenant, document.spec.data):
            raise JobConflict(row.id, f"{row.state}, of a data set that was deleted,", ASKED[Action.RETRY])

    def _made_before(self, session: Session, key: str, digest: str) -> Job | None:
        used = session.get(IdempotencyKeyRow, (self._tenant, key))
        if used is None:
            return None
        if used.request_sha256 != digest:
            raise IdempotencyConflict(key, used.job_id)
        return resources(session, [self._found(session.get(JobRow, used.job_id), used.job_id)])[0]

    def _found(self, row: JobRow | None, job_id: str) -> JobRow:
        if row is None or row.tenant != self._tenant:
            raise JobNotFound(job_id)
        return row


def _digest(submission: JobSubmission | Calculation) -> str:
    return hashlib.sha256(json.dumps(submission.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
