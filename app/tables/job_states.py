r"""The states of a job and every transition. All changes of state go through ``after_action`` and ``after_outcome``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    r"""The state of a job.

    A job that is ``preparing`` has no plan yet: a worker finds its data set's sizes, its steps and its noise, and then queues it. A worker
    holds the job in the states ``running``, ``pausing`` and ``cancelling``; in the last two it should stop.
    """

    PREPARING = "preparing"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    CANCELLING = "cancelling"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the job by itself; a failed or cancelled job may be retried."""
        return self in FINAL_STATES


FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
UNFINISHED_STATES = tuple(state for state in JobState if state not in FINAL_STATES)
HELD_STATES = frozenset({JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING})
"""A worker holds the job, or died with it."""


class Action(StrEnum):
    """A user's action on a job; the value is the last part of the path."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"


class Outcome(StrEnum):
    r"""How an attempt, or preparing a job, ends.

    ``finished``: everything was done. ``failed``: it can't continue. ``stopped``: it stopped before its end, cleanly or because its worker
    was lost, and what it released is in its checkpoint.
    """

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


_ACTIONS: Mapping[Action, Mapping[JobState, JobState]] = {
    Action.CANCEL: {
        JobState.PREPARING: JobState.CANCELLED,
        JobState.QUEUED: JobState.CANCELLED,
        JobState.RUNNING: JobState.CANCELLING,
        JobState.PAUSING: JobState.CANCELLING,
        JobState.CANCELLING: JobState.CANCELLING,
        JobState.PAUSED: JobState.CANCELLED,
        JobState.CANCELLED: JobState.CANCELLED,
    },
    Action.PAUSE: {
        JobState.PREPARING: JobState.PAUSED,
        JobState.QUEUED: JobState.PAUSED,
        JobState.RUNNING: JobState.PAUSING,
        JobState.PAUSING: JobState.PAUSING,
        JobState.PAUSED: JobState.PAUSED,
    },
    Action.RESUME: {
        JobState.PREPARING: JobState.PREPARING,
        JobState.QUEUED: JobState.QUEUED,
        JobState.RUNNING: JobState.RUNNING,
        JobState.PAUSING: JobState.RUNNING,  # its worker may have stopped it already: then it is queued again at once
        JobState.PAUSED: JobState.QUEUED,  # as after a retry: without a plan, it is prepared first
    },
    Action.RETRY: {
        JobState.FAILED: JobState.QUEUED,
        JobState.CANCELLED: JobState.QUEUED,
    },
}

_OUTCOMES: Mapping[Outcome, Mapping[JobState, JobState]] = {
    Outcome.FINISHED: {
        JobState.PREPARING: JobState.QUEUED,
        JobState.RUNNING: JobState.SUCCEEDED,
        JobState.PAUSING: JobState.SUCCEEDED,
        JobState.CANCELLING: JobState.CANCELLED,
    },
    Outcome.FAILED: {
        JobState.PREPARING: JobState.FAILED,
        JobState.QUEUED: JobState.FAILED,
        JobState.RUNNING: JobState.FAILED,
        JobState.PAUSING: JobState.FAILED,
        JobState.CANCELLING: JobState.CANCELLED,
    },
    Outcome.STOPPED: {
        JobState.PREPARING: JobState.PREPARING,
        JobState.RUNNING: JobState.QUEUED,
        JobState.PAUSING: JobState.PAUSED,
        JobState.CANCELLING: JobState.CANCELLED,
    },
}


def after_action(state: JobState, action: Action) -> JobState | None:
    """The state that a user's action leads to, unchanged if there is nothing to do; None if the action doesn't fit the state.

    A job that would be ``queued`` by it and has no plan yet is ``preparing`` instead (``app/jobs/document.py``).

    >>> after_action(JobState.RUNNING, Action.PAUSE), after_action(JobState.SUCCEEDED, Action.RETRY)
    (<JobState.PAUSING: 'pausing'>, None)
    """
    return _ACTIONS[action].get(state)


def after_outcome(state: JobState, outcome: Outcome) -> JobState:
    """The state that the end of an attempt, or of preparing, leads to; the state must be preparing or one that a worker holds. A queued job
    fails if no cluster starts a worker for it.

    >>> after_outcome(JobState.CANCELLING, Outcome.FINISHED)
    <JobState.CANCELLED: 'cancelled'>
    """
    return _OUTCOMES[outcome][state]
