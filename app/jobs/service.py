r"""What can be done with jobs, apart from doing them: submit, read, list, cancel. Each is one transaction."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, final

import structlog
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.certificates.tables import CertificateRow
from app.database import Database, now
from app.jobs.calculation import KINDS, Calculation, CalculationDocument, CalculationKind, CalculationResult
from app.jobs.child import ARTIFACTS, RESULT
from app.jobs.document import JobDocument, TrainingDocument
from app.jobs.errors import ArtifactNotFound, IdempotencyConflict, JobConflict, JobNotFound, QueueUnavailable
from app.jobs.events import Artifact, ArtifactsStored, JobEvent, JobEventRecord, JobState, StateChanged
from app.jobs.history import change_state, events_after, last_number, latest, locked
from app.jobs.queue import JobQueue
from app.jobs.resources import Job, JobLinks, JobPage, JobProgress, JobSubmission
from app.jobs.tables import IdempotencyKeyRow, JobRow
from app.settings import Settings
from mechanisms.errors import InvalidParameter
from trainer import AnyTrainingSpec, ExecutionPlan
from trainer.report import Metrics, Progress

EVENTS_PER_READ = 500
LONGEST_NUMBER = 15
"""Digits of an event number; longer texts aren't even read as one."""
_log = structlog.get_logger()


@final
@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list: all conditions hold; labels are (name, value)."""

    states: Sequence[JobState] = ()
    algorithm: str | None = None
    labels: Sequence[tuple[str, str]] = ()


def new_id() -> str:
    """A fresh id; ids sort by the millisecond they were made in."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@final
class JobService:
    """The jobs of one data folder."""

    def __init__(self, settings: Settings, database: Database, queue: JobQueue) -> None:
        self._settings = settings
        self._database = database
        self._queue = queue

    def submit(self, submission: JobSubmission, idempotency_key: str | None) -> Job:
        r"""Store a training and put it on the queue; with a key that was used before, the job it made then.

        Raises:
          InvalidParameter, CalibrationFailed, UnsupportedEvent: the spec has no plan; nothing is stored.
          IdempotencyConflict: the key came with another request before.
        """

        def document() -> JobDocument:
            # Calibration takes long; the write lock isn't held meanwhile.
            plan = _planned(submission.spec)
            return TrainingDocument(spec=submission.spec, runtime=submission.runtime, plan=plan, labels=submission.labels)

        return self._submit(document, idempotency_key, _digest(submission))

    def submit_calculation(self, calculation: Calculation, idempotency_key: str | None) -> Job:
        """Likewise for a calculation; whether it has a result is found out by the worker. Raises IdempotencyConflict."""
        seconds = self._settings.calculation_job_seconds
        return self._submit(lambda: CalculationDocument(calculation=calculation, seconds=seconds), idempotency_key, _digest(calculation))

    def _submit(self, document: Callable[[], JobDocument], key: str | None, digest: str) -> Job:
        if key is not None:
            with self._database.reading() as session:
                before = self._made_before(session, key, digest)
            if before is not None:
                return before
        made = document()
        try:
            job, is_new = self._store(made, key, digest)
        except IntegrityError:  # PostgreSQL: the same key was stored by another request at the same moment
            if key is None:
                raise
            job, is_new = self._store(made, key, digest)
        if is_new:
            self._enqueue(job.id)
        return job

    def get(self, job_id: str) -> Job:
        """The job, with the result of a calculation. Raises JobNotFound."""
        with self._database.reading() as session:
            job = _resources(session, [_found(session.get(JobRow, job_id), job_id)])[0]
        if job.calculation is None or job.state is not JobState.SUCCEEDED:
            return job
        result = (self._settings.job_dir(job_id) / ARTIFACTS / RESULT).read_bytes()
        return Job.model_validate({**dict(job), "result": CalculationResult.model_validate_json(result)})

    def page(self, wanted: JobFilter, before: str | None, limit: int) -> JobPage:
        """At most ``limit`` jobs that are older than the job ``before``, newest first."""
        query = select(JobRow).order_by(JobRow.id.desc()).limit(limit + 1)
        if wanted.states:
            query = query.where(JobRow.state.in_(wanted.states))
        if wanted.algorithm is not None:
            query = query.where(JobRow.document[("spec", "algorithm")].as_string() == wanted.algorithm)
        for name, value in wanted.labels:
            query = query.where(JobRow.document[("labels", name)].as_string() == value)
        if before is not None:
            query = query.where(JobRow.id < before)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
            jobs = _resources(session, rows[:limit])
        return JobPage(jobs=tuple(jobs), next=rows[limit - 1].id if len(rows) > limit else None)

    def cancel(self, job_id: str) -> Job:
        """Cancel the job: at once if it waits, soon if it runs. Raises JobNotFound, or JobConflict for a job that ended otherwise."""
        with self._database.writing() as session:
            row = _found(locked(session, job_id), job_id)
            state = JobState(row.state)
            if state in (JobState.SUCCEEDED, JobState.FAILED):
                raise JobConflict(job_id, state, "cancelled")
            if state is JobState.QUEUED:
                change_state(session, row, JobState.CANCELLED)
            elif state is JobState.RUNNING:
                change_state(session, row, JobState.CANCELLING)
            session.flush()
            job = _resources(session, [row])[0]
        if state is JobState.QUEUED:
            self._forget(job_id)
        return job

    def checked_event_number(self, job_id: str, text: str) -> int:
        """The number of an event of this job, from a client's text; 0 stands for the beginning. Raises JobNotFound, InvalidParameter."""
        with self._database.reading() as session:
            _found(session.get(JobRow, job_id), job_id)
            last = last_number(session, job_id)
        is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
        if not is_number or int(text) > last:
            raise InvalidParameter("Last-Event-ID", f"the id of an event of this job (0 to {last})", text)
        return int(text)

    def events(self, job_id: str, after: int) -> tuple[list[JobEventRecord], bool]:
        """The job's next events after number ``after``, and whether its history ends with them."""
        with self._database.reading() as session:
            state = JobState(_found(session.get(JobRow, job_id), job_id).state)
            records = events_after(session, job_id, after, EVENTS_PER_READ)
        # The state was read first: if it was final then, its event had been written too.
        return records, state.is_final and len(records) < EVENTS_PER_READ

    def artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """The files of a job that succeeded; none before. Raises JobNotFound."""
        with self._database.reading() as session:
            _found(session.get(JobRow, job_id), job_id)
            stored = latest(session, [job_id], ["artifacts"]).get((job_id, "artifacts"))
        return stored.artifacts if isinstance(stored, ArtifactsStored) else ()

    def artifact(self, job_id: str, name: str) -> Path:
        """Where a listed file is; the name is looked up, never joined to a path. Raises JobNotFound, ArtifactNotFound."""
        listed = tuple(artifact.name for artifact in self.artifacts(job_id))
        if name not in listed:
            raise ArtifactNotFound(job_id, name, listed)
        return self._settings.job_dir(job_id) / ARTIFACTS / name

    def _store(self, document: JobDocument, key: str | None, digest: str) -> tuple[Job, bool]:
        with self._database.writing() as session:
            if key is not None and (before := self._made_before(session, key, digest)) is not None:
                return before, False
            row = JobRow(id=new_id(), created=now(), attempt=0, worker_deaths=0, document=document.model_dump(mode="json"))
            session.add(row)
            row.state = JobState.QUEUED
            session.flush()
            change_state(session, row, JobState.QUEUED)
            if key is not None:
                session.add(IdempotencyKeyRow(key=key, request_sha256=digest, job_id=row.id, created=now()))
            session.flush()
            return _resources(session, [row])[0], True

    def _made_before(self, session: Session, key: str, digest: str) -> Job | None:
        used = session.get(IdempotencyKeyRow, key)
        if used is None:
            return None
        if used.request_sha256 != digest:
            raise IdempotencyConflict(key, used.job_id)
        return _resources(session, [_found(session.get(JobRow, used.job_id), used.job_id)])[0]

    def _enqueue(self, job_id: str) -> None:
        try:
            self._queue.submit(job_id)
        except QueueUnavailable:
            _log.warning("job_not_queued_yet", job=job_id)  # it is stored: a worker queues it when it looks after such jobs

    def _forget(self, job_id: str) -> None:
        try:
            self._queue.cancel(job_id)
        except QueueUnavailable:
            _log.warning("job_left_on_queue", job=job_id)  # a worker that takes it up finds it cancelled


def _planned(spec: AnyTrainingSpec) -> ExecutionPlan:
    """The plan; what refuses it is told with the path of its field in the request, where it is one of the spec's."""
    try:
        return spec.plan()
    except InvalidParameter as refused:
        raise _in_request(refused, spec) from refused
    except ValidationError as error:
        # A part of the plan refused what the spec makes of it; Pydantic wraps our own error, which knows the field.
        own = [detail for problem in error.errors() if isinstance(detail := problem.get("ctx", {}).get("error"), InvalidParameter)]
        if not own:
            raise
        raise _in_request(own[0], spec) from error


def _in_request(refused: InvalidParameter, spec: AnyTrainingSpec) -> InvalidParameter:
    first = refused.field.split(".")[0].split("[")[0]
    if first not in type(spec).model_fields:
        return refused
    return InvalidParameter(f"spec.{refused.field}", refused.expected, refused.got)


def _found(row: JobRow | None, job_id: str) -> JobRow:
    if row is None:
        raise JobNotFound(job_id)
    return row


def _digest(submission: JobSubmission | Calculation) -> str:
    return hashlib.sha256(json.dumps(submission.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def _resources(session: Session, rows: Sequence[JobRow]) -> list[Job]:
    ids = [row.id for row in rows]
    last = latest(session, ids, ["progress", "metrics", "state"])
    pairs = session.execute(select(CertificateRow.job_id, CertificateRow.id).where(CertificateRow.job_id.in_(ids)))
    certificates = {certified: certificate_id for certified, certificate_id in pairs}  # noqa: C416 (rows, not pairs)
    return [
        _resource(row, {kind: event for (job_id, kind), event in last.items() if job_id == row.id}, certificates.get(row.id))
        for row in rows
    ]


def _resource(row: JobRow, last: Mapping[str, JobEvent], certificate: str | None) -> Job:
    progress, metrics, changed = last.get("progress"), last.get("metrics"), last.get("state")
    # A calculation's document may hold a thousand events, and nothing of them is shown.
    asked = cast("Mapping[str, object] | None", row.document.get("calculation"))
    kind: CalculationKind | None = None if asked is None else next(kind for kind in KINDS if asked[kind] is not None)
    document = TrainingDocument.model_validate(row.document) if kind is None else None
    here = f"/v1/jobs/{row.id}"
    return Job(
        id=row.id,
        state=JobState(row.state),
        algorithm=document and document.spec.algorithm,
        spec=document and document.spec,
        runtime=document and document.runtime,
        calculation=kind,
        labels=document.labels if document else {},
        created=row.created,
        started=row.started,
        finished=row.finished,
        attempt=row.attempt,
        progress=_progress(progress) if isinstance(progress, Progress) else None,
        metrics=metrics if isinstance(metrics, Metrics) else None,
        failure=changed.reason if isinstance(changed, StateChanged) and changed.state is JobState.FAILED else None,
        certificate=certificate,
        result=None,
        links=JobLinks(
            self=here,
            events=f"{here}/events",
            cancel=f"{here}/cancel",
            artifacts=f"{here}/artifacts",
            certificate=None if certificate is None else f"/v1/certificates/{certificate}",
        ),
    )


def _progress(told: Progress) -> JobProgress:
    return JobProgress(step=told.step, steps=told.steps, epsilon=told.epsilon, delta=told.delta)
