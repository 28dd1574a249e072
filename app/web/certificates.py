r"""The page of certificates, where one can check, look up, read and print them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES
from zetadp.app.web.rendering import page

router = APIRouter()


@router.get("/certificates", response_class=HTMLResponse)
def read_certificates() -> HTMLResponse:
    """Checking a certificate needs no key; looking one up needs its tenant's key."""
    return page("certificates.html", "Certificates", current="/certificates", modules=("core.js", "certificates.js"), most=MAXIMUM_BYTES)
