r"""The operators' page: what works, waits, runs out or was lost. Everything on it comes from the API with the operator's key."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.web.rendering import page

router = APIRouter()


@router.get("/operations", response_class=HTMLResponse)
def read_operations() -> HTMLResponse:
    """Readiness, workers, queue, storage, certificates and webhooks at a glance."""
    return page("operations.html", "Operations", current="/operations", modules=("core.js", "operations.js"))
