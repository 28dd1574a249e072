r"""The pages. They contain no tenant data: the browser gets it from the API with the key kept in its tab."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.web.calculators import EXAMPLES
from zetadp.app.web.calculators import router as calculators_router
from zetadp.app.web.certificates import router as certificates_router
from zetadp.app.web.conversions import router as conversions_router
from zetadp.app.web.documentation import router as documentation_router
from zetadp.app.web.jobs import router as jobs_router
from zetadp.app.web.ledgers import router as ledgers_router
from zetadp.app.web.live_forms import router as asking_router
from zetadp.app.web.operations import router as operations_router
from zetadp.app.web.papers import router as papers_router
from zetadp.app.web.proofs import router as proofs_router
from zetadp.app.web.rendering import page
from zetadp.app.web.start import router as start_router

PARTS = (
    calculators_router,
    papers_router,
    asking_router,
    conversions_router,
    proofs_router,
    jobs_router,
    ledgers_router,
    certificates_router,
    operations_router,
    start_router,
    documentation_router,
)
"""Every page but the first; a test opens all of them."""

STANDING = (
    "/",
    "/calculators",
    "/certificates",
    "/comparisons",
    "/conversions",
    "/docs",
    "/jobs",
    "/jobs/compare",
    "/jobs/new",
    "/ledgers",
    "/noise-shapes",
    "/operations",
    "/papers",
    "/proofs",
    "/redoc",
    "/start",
    "/vocabulary",
)
"""Pages that are the same for everybody, whatever they are asked with."""

router = APIRouter(include_in_schema=False)
for part in PARTS:
    router.include_router(part)


@router.get("/", response_class=HTMLResponse)
def read_root() -> HTMLResponse:
    """An answer first, from three numbers; then a line for each part of the service."""
    return page("home.html", "How private is it?", current="/", modules=("core.js", "home.js"), examples=EXAMPLES)
