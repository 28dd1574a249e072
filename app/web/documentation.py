r"""The API's description, to try out (Swagger UI) and to read (ReDoc). Both are served from our own files."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.web.rendering import HEADERS

# Swagger UI sets style attributes and inlines small images; scripts come from our files alone.
SWAGGER_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

REDOC_STYLES = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-QMIg+bpjm3JdElJ388KYke01izlUW0UoNOeKjpMxdgc='"
"""Of nothing, a style element that ReDoc fills by calls, which a policy has nothing against; and of the sheet of its scroll bars."""

REDOC_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {REDOC_STYLES}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter()


@router.get("/docs", response_class=HTMLResponse)
def read_docs() -> HTMLResponse:
    """Swagger UI of this service."""
    return _described("docs.html", SWAGGER_POLICY)


@router.get("/redoc", response_class=HTMLResponse)
def read_redoc() -> HTMLResponse:
    """ReDoc of this service."""
    return _described("redoc.html", REDOC_POLICY)


def _described(name: str, policy: str) -> HTMLResponse:
    text = files("zetadp.app").joinpath("web", "static", name).read_text(encoding="utf-8")
    return HTMLResponse(text, headers=HEADERS | {"content-security-policy": policy})
