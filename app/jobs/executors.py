r"""``GET /v1/hardware``: the live workers, what they run on, and which of your own jobs they are running."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, final

from fastapi import APIRouter, Depends, Request
from pydantic import AwareDatetime
from sqlalchemy import select

from app.access.caller import Caller, Scope, requires
from app.database import Database
from app.jobs.leases import database_time
from app.jobs.tables import ExecutorRow, JobRow
from mechanisms.base import Value

router = APIRouter(tags=["jobs"])


@final
class ExecutorEntry(Value):
    r"""A worker.

    Attributes:
      device: what its jobs run on: auto (whatever the machine has), cpu, cuda or one accelerator by number.
      hardware: of its machine, in words.
      is_busy: whether it is running a job.
      job: the id of that job, if it is the caller's.
      alive: whether it renewed its lease in time; if not, another worker removes it.
      since: when it took its lease.
    """

    id: str
    device: str
    hardware: str
    is_busy: bool
    job: str | None
    alive: bool
    since: AwareDatetime
    renewed: AwareDatetime


@final
class ExecutorList(Value):
    """Every worker, by name."""

    workers: tuple[ExecutorEntry, ...]


@router.get("/hardware", summary="List the live workers")
def list_hardware(request: Request, caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))]) -> ExecutorList:
    """Their devices and what they run. A job whose device no worker has waits until one does."""
    database: Database = request.app.state.database
    query = select(ExecutorRow, JobRow.tenant).outerjoin(JobRow, JobRow.id == ExecutorRow.job_id).order_by(ExecutorRow.id)
    with database.reading() as session:
        moment = database_time(session)
        return ExecutorList(
            workers=tuple(
                ExecutorEntry(
                    id=row.id,
                    device=row.device,
                    hardware=row.hardware,
                    is_busy=row.job_id is not None,
                    job=row.job_id if tenant == caller.tenant else None,
                    alive=moment - row.renewed <= timedelta(seconds=row.lease_seconds),
                    since=row.since,
                    renewed=row.renewed,
                )
                for row, tenant in session.execute(query)
            )
        )
