r"""An address without a page: browsers get a page that leads on, everybody else the problem as JSON."""

from __future__ import annotations

from typing import final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from zetadp.app.web.rendering import page

API = "/v1/"
LONGEST = 200
"""Characters of an address that the page repeats."""


@final
class Unknown:
    r"""ASGI application for requests that no route takes.

    Args:
      otherwise: answers whoever doesn't ask for HTML, and everything below the API's path: clients read its problems.
    """

    def __init__(self, otherwise: ASGIApp) -> None:
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_browsing(scope):
            await self._otherwise(scope, receive, send)
            return
        answer = page("missing.html", "Not found", current="/", status=404, what="page", name=str(scope["path"])[:LONGEST])
        answer.headers["vary"] = "accept"
        await answer(scope, receive, send)


def _is_browsing(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"} or scope["path"].startswith(API):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")
