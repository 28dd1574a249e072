r"""The REST interface of jobs. Handlers are plain functions, each one transaction; streams are in ``streams.py``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response, status
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from zetadp.app.jobs.calculation import Calculation
from zetadp.app.jobs.resources import ArtifactList, Job, JobPage, JobSubmission, LabelsChange
from zetadp.app.kit.parameters import ID_PATTERN, IdempotencyKey
from zetadp.app.submissions.lifecycle import job_service
from zetadp.app.submissions.service import JobFilter, JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS

ALGORITHM_NAMES: list[str] = [algorithm.model_fields["algorithm"].default for algorithm in ALGORITHMS]

Service = Annotated[JobService, Depends(job_service)]
JobId = Annotated[str, Path(max_length=64, description="Id of the job.")]
LabelFilter = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}=", max_length=320)]

FILES: dict[str, Any] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    "application/json": {"schema": {"description": "The content of a file whose name ends in .json."}},
}

router = APIRouter(prefix="/jobs", tags=["jobs"])
calculations = APIRouter(prefix="/calculations", tags=["jobs"])


@calculations.post("", status_code=status.HTTP_202_ACCEPTED, summary="Submit a calculation")
def submit_calculation(calculation: Calculation, service: Service, response: Response, idempotency_key: IdempotencyKey = None) -> Job:
    """For calculations that take too long for an immediate answer: a job that holds a `result` once it has succeeded."""
    job = service.submit_calculation(calculation, idempotency_key)
    response.headers["Location"] = job.links.self
    return job


@router.post("", status_code=status.HTTP_202_ACCEPTED, summary="Submit a training job")
def submit_job(submission: JobSubmission, service: Service, response: Response, idempotency_key: IdempotencyKey = None) -> Job:
    """The spec is checked as far as it says by itself, and the job is stored as `preparing`. A worker then reads the data set's sizes,
    calibrates the noise and reserves the budget; the job is `queued`, or `failed` with the reason in `failure`."""
    job = service.submit(submission, idempotency_key)
    response.headers["Location"] = job.links.self
    return job


@router.get("", summary="List jobs, newest first")
def list_jobs(
    *,
    service: Service,
    state: Annotated[tuple[JobState, ...], Query(description="Jobs in any of these states.")] = (),
    algorithm: Annotated[str | None, Query(json_schema_extra={"enum": ALGORITHM_NAMES})] = None,
    label: Annotated[tuple[LabelFilter, ...], Query(description="name=value; all of them must match.")] = (),
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(pattern=ID_PATTERN, description="The `next` of the previous page.")] = None,
) -> JobPage:
    """One page; follow `next` for older jobs."""
    if algorithm is not None and algorithm not in ALGORITHM_NAMES:
        raise InvalidParameter("algorithm", f"one of {', '.join(ALGORITHM_NAMES)}", algorithm)
    pairs = [(name, value) for name, _, value in (text.partition("=") for text in label)]
    return service.page(JobFilter(states=state, algorithm=algorithm, labels=pairs), cursor, limit)


@router.get("/{job_id}", summary="Read a job")
def read_job(job_id: JobId, service: Service) -> Job:
    """State, progress with the epsilon spent so far, and links to the rest."""
    return service.get(job_id)


@router.post("/{job_id}/cancel", summary="Cancel a job")
def cancel_job(job_id: JobId, service: Service) -> Job:
    """A waiting job is cancelled at once, a running one within seconds. Cancelling twice has no further effect."""
    return service.act(job_id, Action.CANCEL)


@router.post("/{job_id}/pause", summary="Pause a job")
def pause_job(job_id: JobId, service: Service) -> Job:
    """A running job stops at a checkpoint within seconds and frees its worker; a waiting one doesn't start."""
    return service.act(job_id, Action.PAUSE)


@router.post("/{job_id}/resume", summary="Resume a paused job")
def resume_job(job_id: JobId, service: Service) -> Job:
    """It waits for a worker again and continues from its checkpoint."""
    return service.act(job_id, Action.RESUME)


@router.post("/{job_id}/retry", summary="Run a failed or cancelled job again")
def retry_job(job_id: JobId, service: Service) -> Job:
    """A new attempt of the same job, from its checkpoint. What it released stays released and counted, and its certificate names the
    restarts."""
    return service.act(job_id, Action.RETRY)


@router.patch("/{job_id}/labels", summary="Change a job's labels")
def change_labels(job_id: JobId, change: LabelsChange, service: Service) -> Job:
    """Replaces all of the job's labels. Labels aren't part of what is trained or certified."""
    return service.label(job_id, change.labels)


@router.get("/{job_id}/artifacts", summary="List a job's files")
def list_artifacts(job_id: JobId, service: Service) -> ArtifactList:
    """Model, spec, certificate and other files, with sizes and digests."""
    return ArtifactList(artifacts=service.artifacts(job_id))


@router.get("/{job_id}/artifacts/{name}", response_class=FileResponse, responses={200: {"content": FILES}}, summary="Download a file")
def download_artifact(job_id: JobId, name: str, service: Service) -> Response:
    """The file's bytes."""
    media_type = "application/json" if name.endswith(".json") else "application/octet-stream"
    file, storage = service.artifact(job_id, name), service.storage
    if file.certificate is not None:
        return Response(file.certificate, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
    if (path := storage.store.path(file.key)) is not None:
        return FileResponse(path, media_type=media_type, filename=name)
    copy = storage.borrow(file.key, file.sha256)
    return FileResponse(copy, media_type=media_type, filename=name, background=BackgroundTask(copy.unlink, missing_ok=True))
