r"""Errors of the jobs. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from app.kit.errors import ProblemType, ServiceError, Unavailable


class JobError(ServiceError):
    """Base of every error of this package that a user can cause."""


class JobNotFound(JobError):
    """No job has this id."""

    problem = ProblemType(404, "job-not-found", "No such job.")

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id!r}")


class ArtifactNotFound(JobError):
    """The job has no artifact of this name; ``available`` are those it has."""

    problem = ProblemType(404, "artifact-not-found", "No such artifact.")

    def __init__(self, job_id: str, name: str, available: tuple[str, ...]) -> None:
        self.job_id = job_id
        self.name = name
        self.available = available
        super().__init__(f"job {job_id!r} has no artifact {name!r}; it has {', '.join(available) or 'none yet'}")


class JobConflict(JobError):
    """The job's state doesn't allow what was asked."""

    problem = ProblemType(409, "job-conflict", "The job's state doesn't allow this.")

    def __init__(self, job_id: str, state: str, asked: str) -> None:
        self.job_id = job_id
        self.state = state
        self.asked = asked
        super().__init__(f"job {job_id!r} is {state} and can't be {asked}")


class IdempotencyConflict(JobError):
    """The Idempotency-Key was used before, with another request."""

    problem = ProblemType(409, "idempotency-conflict", "The Idempotency-Key was used with another request.")

    def __init__(self, key: str, job_id: str) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(f"Idempotency-Key {key!r} was used before with another request, for job {job_id!r}")


class QueueUnavailable(Unavailable):
    """The queue couldn't be reached. A stored job isn't lost by that: a worker that has nothing to do finds it."""

    problem = ProblemType(503, "queue-unavailable", "The job queue can't be reached.")


class LeaseLost(Exception):
    """A worker's lease was taken away: it was silent for too long, and others have its jobs."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__("this worker's lease was taken away")


class ExecutorBusy(Exception):
    """Another worker of the same name runs."""

    def __init__(self, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(f"a worker named {executor_id!r} runs already; give this one another name with ZETADP_EXECUTOR_ID")
