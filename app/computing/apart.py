r"""Hands requests that calculate to the calculating processes, and their answers back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast, final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zetadp.app.access.caller import admitted
from zetadp.app.access.scopes import Scope as KeyScope
from zetadp.app.computing.desk import Desk, Question, unless_left
from zetadp.app.computing.routes import BATCH, calculating
from zetadp.app.kit.errors import ServiceError, TooMuch
from zetadp.app.kit.problems import refusal
from zetadp.app.kit.settings import Settings

HANDED_ON = ("content-type",)
"""Headers that an answer depends on."""


@final
class Apart:
    """ASGI middleware, the innermost. What doesn't calculate passes; so does everything while the application has no pool."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        template = calculating(scope["method"], scope["path"]) if scope["type"] == "http" else None
        desk: Desk | None = None if template is None else getattr(scope["app"].state, "desk", None)
        if template is None or desk is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=template)
        is_begun = False

        async def sending(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            if not self._settings.open_calculators:
                admitted(scope["state"], KeyScope.CALCULATE)
            body = await _body(receive)
            if body is None:
                return
            question = desk.asked(cast("dict[str, Any]", scope), self._head(scope), body, is_kept=template != BATCH)
            if (answer := await question.at_once()) is None:
                await unless_left(receive, _answer(question, scope, sending))
                return
            await _start(scope, answer.start.head, sending)
            await sending({"type": "http.response.body", "body": answer.body})
        except ServiceError as error:
            if is_begun:
                raise  # what was sent can't be taken back: the connection is cut, so that nobody takes it for the whole answer
            if isinstance(error, TooMuch):
                await asyncio.sleep(error.held_seconds)
            await refusal(error, Request(scope), is_read=True)(scope, receive, send)

    def _head(self, scope: Scope) -> dict[str, Any]:
        given = Headers(scope=scope)
        return {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "headers": [[name, given[name]] for name in HANDED_ON if name in given],
            "request_id": scope["state"].get("request_id"),
            "seconds": self._settings.batch_seconds if scope["path"] == BATCH else self._settings.calculation_seconds,
        }


async def _answer(question: Question, scope: Scope, send: Send) -> None:
    part = b""
    async with aclosing(question.frames()) as frames:
        async for frame in frames:
            if frame.kind == "start":
                await _start(scope, frame.head, send)
                continue
            if part:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            part = frame.body
    await send({"type": "http.response.body", "body": part})


async def _start(scope: Scope, head: dict[str, Any], send: Send) -> None:
    """What the log and the metrics tell of a request, as if its route were here; then the answer's beginning."""
    if head["problem"] is not None:
        scope["state"]["problem"] = head["problem"]
    if head["operation"] is not None:
        scope["endpoint"] = SimpleNamespace(__name__=head["operation"])
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]]
    await send({"type": "http.response.start", "status": head["status"], "headers": headers})


async def _body(receive: Receive) -> bytes | None:
    """All of it, which a guard further out has bounded; None if the client has gone."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body
    return None
