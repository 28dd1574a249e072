r"""Which waiting job is next: the highest priority first, and among the tenants with jobs of that priority, whose turn it is.

The tenant with the fewest jobs in hand is next, then the one that was served the longest time ago, then the one with the oldest job. So a
tenant that sends a thousand jobs delays another's by at most the job that each worker has in hand, and one that has never been served goes
first. Of one tenant's jobs the oldest is next.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from zetadp.app.kit.database import now
from zetadp.app.tables.job_states import JobState
from zetadp.app.tables.jobs import JobRow, TurnRow


def take_next(session: Session, waiting: JobState, in_hand: Collection[JobState], *only: ColumnElement[bool]) -> JobRow | None:
    r"""Lock the job that is next, and note its tenant's turn; None if none waits that another transaction doesn't hold.

    Args:
      waiting: the state of the jobs to choose from; no worker holds them.
      in_hand: the states of jobs that count, while a worker holds them, as in their tenant's hand.
      only: further conditions on the job.
    """
    free = (JobRow.state == waiting, JobRow.holder.is_(None), *only)
    oldest = select(JobRow.priority, JobRow.tenant, func.min(JobRow.id)).where(*free).group_by(JobRow.priority, JobRow.tenant)
    candidates = session.execute(oldest).all()
    if not candidates:
        return None
    held = select(JobRow.tenant, func.count()).where(JobRow.holder.is_not(None), JobRow.state.in_(in_hand)).group_by(JobRow.tenant)
    busy: dict[str, int] = {tenant: count for tenant, count in session.execute(held)}  # noqa: C416 (rows, not pairs)
    turns = select(TurnRow.tenant, TurnRow.served).where(TurnRow.queue == waiting)
    served: dict[str, float] = {tenant: moment.timestamp() for tenant, moment in session.execute(turns)}
    ordered = sorted(candidates, key=lambda one: (-one[0], busy.get(one[1], 0), served.get(one[1], 0.0), one[2]))
    for priority, tenant, _ in ordered:
        own = select(JobRow).where(*free, JobRow.priority == priority, JobRow.tenant == tenant).order_by(JobRow.id).limit(1)
        job = session.scalar(own.with_for_update(skip_locked=True))
        if job is not None:
            _note(session, waiting, tenant, now())
            return job
    return None


def _note(session: Session, queue: JobState, tenant: str, moment: datetime) -> None:
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    row = insert(TurnRow).values(queue=queue, tenant=tenant, served=moment)
    session.execute(row.on_conflict_do_update(index_elements=[TurnRow.queue, TurnRow.tenant], set_={"served": moment}))
