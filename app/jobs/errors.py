r"""Errors of the jobs. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from collections.abc import Mapping

from zetadp.app.kit.errors import RETRY_SECONDS, ProblemType, ServiceError, Unavailable


class JobError(ServiceError):
    """Base of every error of this package that a user can cause."""


class JobNotFound(JobError):
    """No job has this id."""

    problem = ProblemType(404, "job-not-found", "No such job.")

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id!r}")


class ArtifactNotFound(JobError):
    """The job has no artifact with this name; ``available`` lists those that it has."""

    problem = ProblemType(404, "artifact-not-found", "No such artifact.")

    def __init__(self, job_id: str, name: str, available: tuple[str, ...]) -> None:
        self.job_id = job_id
        self.name = name
        self.available = available
        super().__init__(f"job {job_id!r} has no artifact {name!r}; it has {', '.join(available) or 'none yet'}")


class JobConflict(JobError):
    """The job's state doesn't allow the request."""

    problem = ProblemType(409, "job-conflict", "The job's state doesn't allow this.")

    def __init__(self, job_id: str, state: str, asked: str) -> None:
        self.job_id = job_id
        self.state = state
        self.asked = asked
        super().__init__(f"job {job_id!r} is {state} and can't be {asked}")


class IdempotencyConflict(JobError):
    """The Idempotency-Key was used before, with another request."""

    problem = ProblemType(409, "idempotency-conflict", "The Idempotency-Key was already used with another request.")

    def __init__(self, key: str, job_id: str) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(f"Idempotency-Key {key!r} was used before with another request, for job {job_id!r}")


class TooManyJobs(JobError):
    """The tenant's quota of unfinished jobs is used up."""

    problem = ProblemType(429, "too-many-jobs", "The tenant has too many unfinished jobs.")

    def __init__(self, quota: int) -> None:
        self.quota = quota
        super().__init__(f"expected at most {quota} unfinished jobs of one tenant, got one more; wait until some have ended or cancel some")

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(RETRY_SECONDS)}


class QueueUnavailable(Unavailable):
    """The queue couldn't be reached. A stored job isn't lost: an idle worker finds it."""

    problem = ProblemType(503, "queue-unavailable", "The job queue can't be reached.")


class LeaseLost(Exception):
    """A worker lost its lease: it was silent for too long, and other workers have its jobs."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__("this worker's lease was taken away")


class ExecutorBusy(Exception):
    """Another worker with the same name is running."""

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(f"a worker named {executor_id!r} is already running; set another name for this one with ZETADP_EXECUTOR_ID")
