r"""The gate: looks up a request's key before anything else of it is read. Requests without a key pass, and routes ask for one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast, final

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from zetadp.app.access.audit_log import AuditLog
from zetadp.app.access.caller import Admission, Caller
from zetadp.app.access.errors import AccessError, KeyNeeded
from zetadp.app.access.rates import Rates, address_of
from zetadp.app.access.service import KeyService
from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.kit.errors import TooMuch
from zetadp.app.kit.problems import refusal

UNCOUNTED = ("/livez", "/readyz")
"""A supervisor's requests must be answered however busy an address is, and without a database: their key, if any, isn't looked up."""

LOOKUPS_AT_ONCE = 8
"""Separate from calculations, so that no calculation delays the gate."""


@final
class Gate:
    """ASGI middleware. It sets ``admission`` of the request's state; an invalid key is always refused."""

    def __init__(self, app: ASGIApp, rates: Rates) -> None:
        self._app = app
        self._rates = rates
        self._lookups: CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = address_of(scope)
        refused = partial(self._rates.failed, address)
        try:
            caller = None
            if scope["path"] not in UNCOUNTED:
                caller = await self._caller(scope, refused)
                self._rates.count(caller, address)
        except (AccessError, *UNAVAILABLE) as error:
            if isinstance(error, TooMuch):
                await asyncio.sleep(error.held_seconds)
            await refusal(error, Request(scope))(scope, receive, send)
            return
        scope["state"]["admission"] = Admission(caller, refused)
        await self._app(scope, receive, send)

    async def _caller(self, scope: Scope, refused: partial[AccessError]) -> Caller | None:
        headers = Headers(scope=scope).getlist("authorization")
        if not headers:
            return None
        if self._lookups is None:
            self._lookups = CapacityLimiter(LOOKUPS_AT_ONCE)
        scheme, _, text = headers[0].partition(" ")
        state = scope["app"].state
        try:
            if len(headers) > 1 or scheme.lower() != "bearer":
                raise KeyNeeded
            caller = await to_thread.run_sync(cast("KeyService", state.keys).caller, text.strip(), limiter=self._lookups)
        except KeyNeeded:
            raise refused() from None
        assert caller.key_id is not None  # it has shown its key
        cast("AuditLog", state.audit).used(caller.key_id)
        return caller
