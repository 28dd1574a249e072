r"""Attaches the jobs to an application: makes what its handlers need at the start and closes it at the end."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.policy.reading import operators_policy
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.jobs.webhooks.deliveries import Deliveries
from zetadp.app.kit.database import Database
from zetadp.app.kit.preparation import Preparation
from zetadp.app.kit.settings import Settings
from zetadp.app.submissions.service import JobService
from zetadp.app.submissions.tails import Tails


@contextmanager
def attached(app: FastAPI, settings: Settings) -> Generator[None]:
    """For the application's lifespan: updates the tables, sets the jobs' part of ``app.state``, and sends webhooks.

    ``preparation`` of ``app.state`` does what must be done on the tables at the start, also if the database is away then.
    """
    operators_policy(settings)  # one that can't be read is known before anybody asks
    database = Database(settings)
    queue, preparation = JobQueue(settings), Preparation(database)
    app.state.preparation = preparation
    app.state.settings, app.state.database, app.state.queue = settings, database, queue
    app.state.tails = Tails(settings.event_poll_seconds)
    try:
        preparation.do(database.migrate)
        with Deliveries(settings, database, app.state.metrics.webhook_tried):
            yield
    finally:
        preparation.close()
        queue.close()
        database.close()


async def job_service(request: Request, caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))]) -> JobService:
    """The jobs of the caller's tenant: every route that takes them needs a key with the scope ``submit``.

    Async, since a plain function costs a change of thread.
    """
    return jobs_of(request, caller)


def jobs_of(request: Request, caller: Caller) -> JobService:
    """The jobs of the caller's tenant, whatever its key is for."""
    state = request.app.state
    return JobService(state.settings, state.database, state.queue, caller.tenant, caller.principal)
