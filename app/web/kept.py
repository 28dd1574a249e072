r"""Pages and catalogues, which are the same for everybody while the process lives, are made and compressed once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BYTES = 2**20


@final
class _Answer(NamedTuple):
    start: Message
    body: bytes
    route: dict[str, Any]
    """What the request's log and metrics tell of it."""


@final
class Kept:
    r"""ASGI middleware, around what compresses.

    Args:
      paths: of pages and catalogues that nothing but their path decides: no key, no query, no header but that of the encoding.
    """

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._answers: dict[tuple[str, bool], _Answer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in self._paths or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        key = scope["path"], "gzip" in Headers(scope=scope).get("accept-encoding", "")
        if (kept := self._answers.get(key)) is not None:
            scope.update(kept.route)
            # A copy: whoever is further out adds headers of this request.
            await send({**kept.start, "headers": list(kept.start["headers"])})
            await send({"type": "http.response.body", "body": kept.body})
            return
        start: Message = {}
        body = b""

        async def sending(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = {**message, "headers": list(message["headers"])}
            elif message["type"] == "http.response.body":
                body += message.get("body", b"")
                if not message.get("more_body", False) and start["status"] == 200 and len(body) <= LARGEST_BYTES:
                    route = {name: scope[name] for name in ("route", "endpoint") if name in scope}
                    self._answers[key] = _Answer(start, body, route)
            await send(message)

        await self._app(scope, receive, sending)
