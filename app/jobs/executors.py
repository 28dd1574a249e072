r"""``GET /v1/hardware``: the live workers, what they run on, and which of your own jobs they are running."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from sqlalchemy import select

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.jobs.leases import database_time, is_alive
from zetadp.app.jobs.resources import ExecutorEntry, ExecutorList
from zetadp.app.kit.database import Database
from zetadp.app.tables.jobs import ExecutorRow, JobRow

router = APIRouter(tags=["jobs"])


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
                    alive=is_alive(row, moment),
                    since=row.since,
                    renewed=row.renewed,
                )
                for row, tenant in session.execute(query)
            )
        )
