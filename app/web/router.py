r"""The pages. What they show of a tenant they ask the API for, with the key that is kept in the browser's tab: none of it is in these."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.calculators import catalogue
from app.web.calculators import router as calculators_router
from app.web.certificates import router as certificates_router
from app.web.documentation import router as documentation_router
from app.web.jobs import router as jobs_router
from app.web.ledgers import router as ledgers_router
from app.web.papers import router as papers_router
from app.web.proofs import router as proofs_router
from app.web.rendering import page
from app.web.start import router as start_router

PARTS = (
    calculators_router,
    papers_router,
    proofs_router,
    jobs_router,
    ledgers_router,
    certificates_router,
    start_router,
    documentation_router,
)
"""Every page but the first; a test opens all that these have."""

router = APIRouter(include_in_schema=False)
for part in PARTS:
    router.include_router(part)


@router.get("/", response_class=HTMLResponse)
def read_root() -> HTMLResponse:
    """What there is, in a few cards."""
    return page("home.html", "Privacy accounting", current="/", mechanisms=catalogue.list_mechanisms())
