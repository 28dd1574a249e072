r"""How many more trainings fit a ledger: of a job's plan, or of a spec that isn't sent yet."""

from __future__ import annotations

from fastapi import APIRouter, Request

from zetadp.app.jobs.charges import spend_of_job
from zetadp.app.ledgers.queries import check_for_jobs
from zetadp.app.ledgers.requests import ProjectionRequest
from zetadp.app.ledgers.resources import Projection
from zetadp.app.ledgers.router import Holder, LedgerId, Service
from zetadp.app.submissions.planning import plan_of
from zetadp.app.uploads.availability import finder_of
from zetadp.trainer.data.kept_facts import kept_in
from zetadp.trainer.data.uploaded import found_by

router = APIRouter(prefix="/ledgers", tags=["ledgers"])


@router.post("/{ledger_id}/projections", summary="How many more fit?")
def project_ledger(ledger_id: LedgerId, request: ProjectionRequest, caller: Holder, service: Service, asked: Request) -> Projection:
    """More of the same events or numbers, or of trainings like a job's or an unsent spec's. Exact, and nothing is reserved."""
    settings, database = asked.app.state.settings, asked.app.state.database
    ledger = service.get(caller.tenant, ledger_id)
    spend = request.spend
    if request.job is not None:
        with database.reading() as session:
            spend = spend_of_job(session, caller.tenant, request.job)
    elif request.spec is not None:
        check_for_jobs(ledger.definition)
        # Of the tenant's own data sets alone.
        with found_by(finder_of(settings, database, caller.tenant)), kept_in(settings.facts_dir):
            spend = plan_of(request.spec).event
    assert spend is not None  # exactly one of the three is given
    return service.project(caller.tenant, ledger_id, spend, request.user, caller.principal)
