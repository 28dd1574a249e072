r"""Compresses pages and their files, since networks may be slow. Most of the API's answers, streams above all, are not compressed."""

from __future__ import annotations

from typing import final

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEVEL = 6
SMALLEST = 1000
"""Bytes; less isn't worth it."""
API = "/v1/"
CATALOGUES = ("/v1/algorithms", "/v1/recipes", "/v1/mechanisms", "/v1/events", "/v1/papers", "/v1/errata")
"""Of the API what pages load and what is the same for everybody: nothing in them is a secret that a length could tell of."""


@final
class Compressed:
    """ASGI middleware: gzip for everything outside the API and for its catalogues, where the browser takes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(app, minimum_size=SMALLEST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_public = scope["type"] == "http" and (not path.startswith(API) or path in CATALOGUES)
        await (self._compressing if is_public else self._app)(scope, receive, send)
