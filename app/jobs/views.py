r"""Jobs as the REST interface shows them, read from their rows in few queries: clients poll pages of fifty."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, final

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from zetadp.app.certificates.words import caveats
from zetadp.app.jobs.calculation import KINDS, CalculationKind
from zetadp.app.jobs.charges import WAITS, ledgers_of
from zetadp.app.jobs.document import TrainingAsked, asked_training, planned_units
from zetadp.app.jobs.events import JobEvent, StateChanged
from zetadp.app.jobs.history import latest
from zetadp.app.jobs.needs import Resources
from zetadp.app.jobs.resources import Job, JobCharge, JobLaunch, JobLinks, JobProgress
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow, LaunchRow
from zetadp.app.tables.ledgers import LedgerJobRow
from zetadp.trainer.specs.report import Metrics, Progress

ASKED_KEPT = 1000
"""The number of jobs whose parsed request is kept in memory."""


@final
@dataclass(frozen=True, slots=True)
class _Asked:
    """The part of a job's document that is shown: a training, or the kind of a calculation."""

    training: TrainingAsked | None
    calculation: CalculationKind | None


@final
class _AskedOnce:
    """What was asked, by job: it never changes. What was read first is forgotten first."""

    def __init__(self) -> None:
        self._kept: dict[str, _Asked] = {}
        self._lock = threading.Lock()

    def of(self, session: Session, rows: Sequence[JobRow]) -> dict[str, _Asked]:
        """The request of each of these jobs; one query for all that aren't cached and whose rows came without their document."""
        with self._lock:
            found = {row.id: self._kept[row.id] for row in rows if row.id in self._kept}
        missing = [row for row in rows if row.id not in found]
        documents = {row.id: row.document for row in missing if "document" not in inspect(row).unloaded}
        if absent := [row.id for row in missing if row.id not in documents]:
            documents |= {job_id: document for job_id, document in session.execute(_DOCUMENTS.where(JobRow.id.in_(absent)))}  # noqa: C416
        read = {job_id: _asked(document) for job_id, document in documents.items()}
        with self._lock:
            self._kept.update(read)
            while len(self._kept) > ASKED_KEPT:
                del self._kept[next(iter(self._kept))]
        return found | read


_DOCUMENTS = select(JobRow.id, JobRow.document)
_ASKED = _AskedOnce()


def resource(session: Session, row: JobRow) -> Job:
    """The job of this row, with its units and its worker in a cluster. The row has its document."""
    [job] = resources(session, [row])
    found = session.get(LaunchRow, job.id) if not job.state.is_final else None
    launched = None if found is None else JobLaunch(name=found.name, state=found.state, reason=found.reason)
    return Job.model_validate({**dict(job), "units": planned_units(row.document), "launch": launched})


def resources(session: Session, rows: Sequence[JobRow]) -> list[Job]:
    """The jobs of these rows, in their order. Rows may come without their documents."""
    # What can't be there isn't asked for: of jobs that no worker has taken up nothing but their ledgers.
    started = [row.id for row in rows if row.attempt > 0]
    failed = [row.id for row in rows if row.state == JobState.FAILED]
    succeeded = [row.id for row in rows if row.state == JobState.SUCCEEDED]
    last = latest(session, {"progress": started, "metrics": started, "state": failed})
    certificates = _certificates(session, succeeded)
    charged = ledgers_of(session, [row.id for row in rows])
    asked = _ASKED.of(session, rows)
    return [_resource(row, asked[row.id], last, certificates.get(row.id), charged.get(row.id)) for row in rows]


def _certificates(session: Session, job_ids: Sequence[str]) -> dict[str, str]:
    if not job_ids:
        return {}
    pairs = session.execute(select(CertificateRow.job_id, CertificateRow.id).where(CertificateRow.job_id.in_(job_ids)))
    return {job_id: certificate_id for job_id, certificate_id in pairs}  # noqa: C416 (rows, not pairs)


def _asked(stored: Mapping[str, object]) -> _Asked:
    # A calculation's document may hold a thousand events, and nothing of them is shown.
    calculation = cast("Mapping[str, object] | None", stored.get("calculation"))
    if calculation is not None:
        return _Asked(None, next(kind for kind in KINDS if calculation[kind] is not None))
    return _Asked(asked_training(stored), None)


def _resource(
    row: JobRow,
    asked: _Asked,
    last: Mapping[tuple[str, str], JobEvent],
    certificate: str | None,
    charged: LedgerJobRow | None,
) -> Job:
    progress, metrics, changed = (last.get((row.id, kind)) for kind in ("progress", "metrics", "state"))
    training = asked.training
    here = f"/v1/jobs/{row.id}"
    return Job(
        id=row.id,
        state=JobState(row.state),
        algorithm=training and training.spec.algorithm,
        spec=training and training.spec,
        runtime=training and training.runtime,
        resources=training and Resources.model_validate(row.resources),
        calculation=asked.calculation,
        labels=row.labels,
        priority=row.priority,
        timeout_seconds=row.timeout_seconds,
        ran_seconds=round(row.ran_seconds, 1),
        created=row.created,
        started=row.started,
        finished=row.finished,
        attempt=row.attempt,
        progress=_progress(progress) if isinstance(progress, Progress) else None,
        units=None,
        caveats=() if training is None else caveats.of_run(training.spec),
        metrics=metrics if isinstance(metrics, Metrics) else None,
        failure=changed.reason if isinstance(changed, StateChanged) and changed.state is JobState.FAILED else None,
        waits_for=None if row.awaits is None else WAITS.format(row.awaits),
        files_deleted=row.files_deleted,
        certificate=certificate,
        charge=_charge(row, charged),
        launch=None,
        result=None,
        links=JobLinks(
            self=here,
            events=f"{here}/events",
            logs=f"{here}/logs",
            metrics=f"{here}/metrics",
            cancel=f"{here}/cancel",
            pause=f"{here}/pause",
            resume=f"{here}/resume",
            retry=f"{here}/retry",
            artifacts=f"{here}/artifacts",
            certificate=None if certificate is None else f"/v1/certificates/{certificate}",
        ),
    )


def _charge(row: JobRow, charged: LedgerJobRow | None) -> JobCharge | None:
    if charged is not None:
        return JobCharge(ledger=charged.ledger_id, reservation=charged.reservation_id)
    return None if row.ledger is None else JobCharge(ledger=row.ledger, reservation=None)


def _progress(latest: Progress) -> JobProgress:
    return JobProgress(step=latest.step, steps=latest.steps, epsilon=latest.epsilon, delta=latest.delta)
