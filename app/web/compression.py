r"""Pages and their files go out compressed, since networks may be slow. Answers of the API, streams above all, go as they are."""

from __future__ import annotations

from typing import final

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEVEL = 6
SMALLEST = 1000
"""Bytes; less isn't worth it."""
AS_THEY_ARE = "/v1/"


@final
class Compressed:
    """ASGI middleware: gzip for everything outside the API, where the browser takes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(app, minimum_size=SMALLEST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith(AS_THEY_ARE)
        await (self._compressing if is_page else self._app)(scope, receive, send)
