r"""A client that closes an event stream in the middle is no error of ours."""

from __future__ import annotations

from typing import final

from anyio import BrokenResourceError
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@final
class Disconnects:
    """ASGI middleware, the innermost: forgives what the end of a stream raises whose client has gone.

    FastAPI closes the channel between a stream's source and its sender before it ends the task that writes to it; an event on its way at
    that moment breaks the channel.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_gone = False

        async def receiving() -> Message:
            nonlocal has_gone
            message = await receive()
            has_gone = has_gone or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, receiving, send)
        except* BrokenResourceError:
            if not has_gone:
                raise
