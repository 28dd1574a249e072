r"""The documentation page, under a Content-Security-Policy that allows our own files only."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse

# Swagger UI sets style attributes and inlines small images; scripts come from our files alone.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
def read_docs() -> HTMLResponse:
    """Swagger UI of this service."""
    page = files("app").joinpath("web", "static", "docs.html").read_text(encoding="utf-8")
    return HTMLResponse(page, headers={"content-security-policy": CONTENT_SECURITY_POLICY, "referrer-policy": "no-referrer"})


@router.get("/")
def read_root() -> RedirectResponse:
    """The documentation is the front page for now."""
    return RedirectResponse("/docs")
