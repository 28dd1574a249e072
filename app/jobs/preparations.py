r"""A worker's side of a job that has no plan yet: taking the next one, and queueing or failing it with what was found.

Nothing runs and nothing is spent before this has ended: a job is queued in the transaction that stores its plan and reserves its price. A
worker prepares one job at a time, so the token of its lease says whose preparation is current: a job that was cancelled, paused or taken
away has no holder or another one, and what the worker then finds is refused.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from zetadp.accountants.filters import Price
from zetadp.app.jobs.attempts import end, lose
from zetadp.app.jobs.charges import charge_job, unapproved
from zetadp.app.jobs.document import TrainingAsked, TrainingDocument, asked_training
from zetadp.app.jobs.errors import LeaseLost
from zetadp.app.jobs.events import Logged
from zetadp.app.jobs.history import append, change_state, locked, pause_for_approval
from zetadp.app.jobs.turns import take_next
from zetadp.app.kit.database import Database
from zetadp.app.ledgers.admission import Priced
from zetadp.app.ledgers.errors import LedgerDamaged
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, stored_definition
from zetadp.app.ledgers.queries import found_ledger
from zetadp.app.tables.job_states import JobState, Outcome
from zetadp.app.tables.jobs import ExecutorRow, JobRow
from zetadp.mechanisms.base import Value
from zetadp.trainer import AnyPlan


class PreparationSuperseded(Exception):
    """The job was cancelled, paused, or taken from this worker: what it found is of no use."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id!r} is no longer this worker's to prepare")


@final
class Preparation(Value):
    r"""A job that a worker prepares.

    Attributes:
      token: of the worker's lease.
      ledger: the budget that its plan is to be reserved from, by id, and its definition; None without one.
      traceparent: of the span that submitted the job; None where traces were off.
    """

    job_id: str
    tenant: str
    token: str
    priority: int
    asked: TrainingAsked
    ledger: tuple[str, LedgerDefinition] | None
    traceparent: str | None


def _next(session: Session) -> tuple[JobRow, tuple[str, LedgerDefinition] | None] | None:
    """The next job, with the ledger that it is charged to. One whose ledger can't be used fails: those behind it would wait for ever."""
    while (job := take_next(session, JobState.PREPARING, [JobState.PREPARING])) is not None:
        try:
            return job, _ledger_of(session, job)
        except LedgerDamaged as damaged:
            end(session, job, Outcome.FAILED, str(damaged))
            session.flush()
    return None


def _ledger_of(session: Session, job: JobRow) -> tuple[str, LedgerDefinition] | None:
    """The ledger that a job is charged to. Raises LedgerDamaged."""
    if job.ledger is None:
        return None
    return job.ledger, stored_definition(job.ledger, found_ledger(session, job.tenant, job.ledger).definition)


@final
class Preparations:
    """Jobs that wait for their plans."""

    def __init__(self, database: Database, maximum_worker_deaths: int) -> None:
        self._database = database
        self._maximum_worker_deaths = maximum_worker_deaths

    def start_next(self, token: str) -> Preparation | None:
        r"""Take the next job that has no plan, whatever its device; None if there is none.

        Raises:
          LeaseLost: the lease of this token no longer holds.
        """
        with self._database.reading() as session:  # nearly always there is none, and the write lock is everyone's
            free = or_(JobRow.holder.is_(None), JobRow.holder == token)
            if session.scalar(select(JobRow.id).where(JobRow.state == JobState.PREPARING, free).limit(1)) is None:
                return None
        with self._database.writing() as session:
            if session.scalar(select(ExecutorRow.id).where(ExecutorRow.token == token).with_for_update()) is None:
                raise LeaseLost(token)
            # A job that this worker was preparing and couldn't finish; it does one at a time, so this is over.
            session.execute(update(JobRow).where(JobRow.state == JobState.PREPARING, JobRow.holder == token).values(holder=None))
            if (found := _next(session)) is None:
                return None
            job, ledger = found
            job.holder = token
            asked = asked_training(job.document)
            assert asked is not None  # a calculation is never prepared
            return Preparation(
                job_id=job.id,
                tenant=job.tenant,
                token=token,
                priority=job.priority,
                asked=asked,
                ledger=ledger,
                traceparent=job.traceparent,
            )

    def is_wanted(self, preparation: Preparation) -> bool:
        """Whether the job still waits for what this worker finds."""
        own = (JobRow.id == preparation.job_id, JobRow.state == JobState.PREPARING, JobRow.holder == preparation.token)
        with self._database.reading() as session:
            return session.scalar(select(JobRow.id).where(*own)) is not None

    def queue(self, preparation: Preparation, plan: AnyPlan, price: Price | None) -> None:
        r"""Store the plan, reserve its price and queue the job, or pause it until the reservation is approved: all or nothing.

        Raises:
          PreparationSuperseded: the job waits for it no longer.
          LedgerClosed, BudgetExceeded: the ledger doesn't admit the plan.
        """
        with self._current(preparation) as (session, job):
            asked = preparation.asked
            job.document = TrainingDocument(spec=asked.spec, runtime=asked.runtime, plan=plan).model_dump(mode="json")
            job.worker_deaths = 0
            if preparation.ledger is not None:
                assert price is not None  # computed wherever a ledger is named
                charge_job(session, job, Priced(preparation.ledger[0], plan.event, price))
            waiting = unapproved(session, job)
            if waiting is None:
                change_state(session, job, JobState.QUEUED)
            else:
                pause_for_approval(session, job, waiting)

    def fail(self, preparation: Preparation, reason: str, lines: Sequence[str] = ()) -> None:
        """End the job as failed; ``lines`` of the process's log go into its history before. Raises PreparationSuperseded."""
        with self._current(preparation) as (session, job):
            append(session, job, [Logged(line=line) for line in lines])
            session.flush()  # the next event's number is read from the table
            end(session, job, Outcome.FAILED, reason)

    def give_back(self, preparation: Preparation) -> None:
        """Another worker may prepare it: this one ends. Raises PreparationSuperseded."""
        with self._current(preparation) as (_, job):
            job.holder = None

    def lost(self, preparation: Preparation, how: str) -> None:
        """The worker itself failed. Counts like its death. Raises PreparationSuperseded."""
        with self._current(preparation) as (session, job):
            lose(session, job, self._maximum_worker_deaths, how)

    @contextmanager
    def _current(self, preparation: Preparation) -> Generator[tuple[Session, JobRow]]:
        with self._database.writing() as session:
            job = locked(session, preparation.job_id)
            if job is None or job.state != JobState.PREPARING or job.holder != preparation.token:
                raise PreparationSuperseded(preparation.job_id)
            yield session, job
