r"""The page of certificates: one is checked, looked up, read and printed there; and the page that one begins with."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.certificates.signing.envelope import MAXIMUM_BYTES
from app.web.rendering import page

router = APIRouter()


@router.get("/certificates", response_class=HTMLResponse)
def read_certificates() -> HTMLResponse:
    """To check one nobody needs a key; to look one up, its tenant's."""
    return page("certificates.html", "Certificates", current="/certificates", modules=("core.js", "certificates.js"), most=MAXIMUM_BYTES)
