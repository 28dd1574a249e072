r"""Every request's time and status, counted where the answer begins."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from typing import Any, final

from starlette.types import ASGIApp, Message, Receive, Send

from zetadp.app.operations.metrics import Metrics


@final
class Measured:
    """ASGI middleware, around everything that can answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        begun = time.monotonic()
        is_answered = False

        async def answering(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start" and not is_answered:
                is_answered = True
                self._metrics.answered(scope, message["status"], time.monotonic() - begun)
            await send(message)

        try:
            await self._app(scope, receive, answering)
        except Exception:
            if not is_answered:
                scope["state"]["problem"] = "internal-error"  # it is answered further out
                self._metrics.answered(scope, 500, time.monotonic() - begun)
            raise
