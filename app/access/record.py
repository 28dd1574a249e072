r"""Gives every request an id, in its answer, its problems and the log; and writes its audit entry if it needs one."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from typing import Any, cast, final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send

from zetadp.app.access.audit_log import AuditEvent, AuditLog
from zetadp.app.access.caller import Admission
from zetadp.app.access.rates import Rates, address_of
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.database import now
from zetadp.app.kit.key_text import without_secrets

REQUEST_ID = "x-request-id"
_GIVEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READING = ("GET", "HEAD", "OPTIONS")
_log = structlog.get_logger()


@final
class RequestRecord:
    r"""ASGI middleware, the outermost.

    A client's id (``X-Request-ID``) is kept if it is plain; otherwise a fresh one is made. Every write to a tenant's data and every refusal
    is in the audit log before its answer goes out. Of refusals for too many requests, only the first in a minute is logged.
    """

    def __init__(self, app: ASGIApp, rates: Rates) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)  # for this request's task and the threads that work for it
        began = time.monotonic()
        is_answered = False

        async def answering(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                headers = MutableHeaders(raw=message["headers"])
                headers[REQUEST_ID] = request_id
                await self._record(scope, message["status"], headers.get("location"), time.monotonic() - began)
            await send(message)

        try:
            await self._app(scope, receive, answering)
        except Exception:
            # What nobody foresaw is answered further out.
            if not is_answered:
                await self._record(scope, 500, None, time.monotonic() - began)
            raise

    async def _record(self, scope: MutableMapping[str, Any], status: int, made: str | None, seconds: float) -> None:
        state = scope["state"]
        required: Scope | None = state.get("required")
        admission = cast("Admission | None", state.get("admission"))
        caller = None if admission is None else admission.caller
        is_private = required not in (None, Scope.CALCULATE)
        is_write = is_private and scope["method"] not in _READING
        address = address_of(scope)
        who = address if caller is None or caller.key_id is None else caller.key_id
        is_refused = status in (401, 403) or (status == 404 and is_private) or (status == 429 and self._rates.is_first_excess(who))
        if not (is_write or is_refused or _log.is_enabled_for(logging.DEBUG)):
            return  # nobody is told of it
        event = AuditEvent(
            time=now(),
            tenant=None if caller is None else caller.tenant,
            key_id=None if caller is None else caller.key_id,
            address=address,
            action=_operation(scope),
            target=made or scope["path"],
            status=status,
            request_id=state["request_id"],
        )
        level = _log.warning if is_refused else _log.info if is_write else _log.debug
        level(
            "request",
            action=without_secrets(event.action),
            target=without_secrets(event.target),
            status=status,
            milliseconds=round(seconds * 1000),
            tenant=event.tenant,
            key_id=event.key_id,
        )
        audit = cast("AuditLog | None", getattr(scope["app"].state, "audit", None))
        if (is_write or is_refused) and audit is not None:
            await asyncio.wrap_future(audit.record(event))


def _operation(scope: MutableMapping[str, Any]) -> str:
    """The name of the operation; only the method if the request reached none."""
    return getattr(scope.get("endpoint"), "__name__", None) or str(scope["method"])
