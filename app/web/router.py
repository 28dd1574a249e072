r"""The pages. What they show of a tenant they ask the API for, with the key that is kept in the browser's tab: none of it is in these."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.calculators import catalogue
from app.web.asking import router as asking_router
from app.web.calculators import router as calculators_router
from app.web.certificates import router as certificates_router
from app.web.conversions import router as conversions_router
from app.web.jobs import router as jobs_router
from app.web.ledgers import router as ledgers_router
from app.web.papers import router as papers_router
from app.web.proofs import router as proofs_router
from app.web.rendering import page
from app.web.start import router as start_router

# Swagger UI sets style attributes and inlines small images; scripts come from our files alone.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)
router.include_router(calculators_router)
router.include_router(papers_router)
router.include_router(asking_router)
router.include_router(conversions_router)
router.include_router(proofs_router)
router.include_router(jobs_router)
router.include_router(ledgers_router)
router.include_router(certificates_router)
router.include_router(start_router)


@router.get("/docs", response_class=HTMLResponse)
def read_docs() -> HTMLResponse:
    """Swagger UI of this service."""
    text = files("app").joinpath("web", "static", "docs.html").read_text(encoding="utf-8")
    return HTMLResponse(text, headers={"content-security-policy": DOCS_POLICY, "referrer-policy": "no-referrer"})


@router.get("/", response_class=HTMLResponse)
def read_root() -> HTMLResponse:
    """What there is, in a few cards."""
    return page("home.html", "Privacy accounting", current="/", mechanisms=catalogue.list_mechanisms())
