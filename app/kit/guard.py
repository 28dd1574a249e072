r"""Guards in front of every request: only known host names, bounded bodies and bounded nesting, before any parser."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Collection
from functools import lru_cache
from typing import final

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 2**20
"""Bytes of a JSON body; an event of some thousands of different mechanisms fits."""

LARGEST_BATCH_BODY = 4 * LARGEST_BODY
"""A thousand events of twenty different mechanisms each fit. Read into Python's objects a body takes up to 25 times its size."""

BATCHES = "/v1/profiles/batch"

UPLOADS = "/v1/uploads"
"""Paths whose bodies are files: those are bounded where they are received, and aren't JSON."""

DEEPEST_JSON = 200
"""Levels of brackets in a body; an event of the deepest accepted nesting (64) has about 130."""


# Possessive, and closed by the end of the text too: it never goes back, so the time is linear whatever is sent.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")


@final
class HostGuard:
    """ASGI middleware that refuses foreign host names (names with a dot that the operator hasn't allowed) with problem+json."""

    def __init__(self, app: ASGIApp, allowed: Collection[str] = ()) -> None:
        self._app = app
        # An empty name would allow requests that name no host.
        self._allowed = frozenset(name for name in allowed if name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if not is_local_name(host) and host.partition(":")[0].lower().rstrip(".") not in self._allowed:
                detail = f"host: expected an address, a name without a dot, or one of ZETADP_ALLOWED_HOSTS, got {host[:100]!a}"
                await _refuse(scope, send, 400, "foreign-host", "The service doesn't answer requests for this host name.", detail)
                return
        await self._app(scope, receive, send)


@final
class BodyGuard:
    """ASGI middleware that refuses bodies that are too large or nested too deep, with problem+json."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == UPLOADS
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS") or is_file:
            await self._app(scope, receive, send)
            return
        largest = LARGEST_BATCH_BODY if scope["path"] == BATCHES else LARGEST_BODY
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > largest:
                await _refuse(scope, send, 413, "body-too-large", "The body is too large.", f"expected at most {largest} bytes")
                return
            if not message.get("more_body", False):
                break
        # So few brackets can't be nested deeper.
        if body.count(b"[") + body.count(b"{") > DEEPEST_JSON and nesting(bytes(body)) > DEEPEST_JSON:
            detail = f"body: expected at most {DEEPEST_JSON} levels of brackets"
            await _refuse(scope, send, 422, "nested-too-deep", "The JSON is nested too deep.", detail)
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)


@lru_cache(maxsize=1024)
def is_local_name(host: str) -> bool:
    r"""Whether a Host header names an IP address or a name without a dot, with or without a port.

    A page on the internet can point its own domain at this machine and then read our answers (DNS rebinding); its domain has a dot.

    >>> [is_local_name(host) for host in ("127.0.0.1:8000", "localhost", "[::1]:80", "attacker.example", "attacker.example.", "")]
    [True, True, True, False, False, False]
    """
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.isascii() and name.replace("-", "").isalnum()
    return True


def nesting(text: bytes) -> int:
    """Deepest level of brackets outside strings; the text needn't be valid JSON.

    >>> nesting(b'{"a": [1, "]]["]}')
    2
    """
    steps = np.frombuffer(_STRING.sub(b"", text).translate(_STEPS, _NOT_BRACKETS), dtype=np.int8)
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


async def _refuse(scope: Scope, send: Send, status: int, kind: str, title: str, detail: str) -> None:
    problem = {"type": kind, "title": title, "status": status, "detail": detail, "request_id": scope.get("state", {}).get("request_id")}
    content = json.dumps(problem).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
