r"""The gate in front of every request: bounded bodies and bounded nesting, before any parser sees them."""

from __future__ import annotations

import json
from typing import final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 2**20
"""Bytes of a JSON body; an event of 10000 parts fits twenty times."""

DEEPEST_JSON = 200
"""Levels of brackets in a body; an event of the deepest accepted nesting (64) has about 130."""


@final
class RequestGuard:
    """ASGI middleware that reads the body, refuses it with problem+json if it is too large or too deep, and passes it on otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > LARGEST_BODY:
                await _refuse(send, 413, "body-too-large", "The body is too large.", f"expected at most {LARGEST_BODY} bytes")
                return
            if not message.get("more_body", False):
                break
        if nesting(bytes(body)) > DEEPEST_JSON:
            await _refuse(
                send, 422, "nested-too-deep", "The JSON is nested too deep.", f"body: expected at most {DEEPEST_JSON} levels of brackets"
            )
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)


def nesting(text: bytes) -> int:
    """Deepest level of brackets outside strings; the text needn't be valid JSON.

    >>> nesting(b'{"a": [1, "]]["]}')
    2
    """
    deepest = level = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            level += 1
            deepest = max(deepest, level)
        elif byte in (0x5D, 0x7D):
            level -= 1
    return deepest


async def _refuse(send: Send, status: int, kind: str, title: str, detail: str) -> None:
    content = json.dumps({"type": kind, "title": title, "status": status, "detail": detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
