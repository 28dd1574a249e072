r"""Where the service asks its calculating processes: recent answers are given again at once, and nobody waits for an asker who has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, TypeVar, final

from starlette.types import Receive

from zetadp.app.access.caller import Admission
from zetadp.app.access.rates import address_of
from zetadp.app.computing.answers import Answer, Answers, digest
from zetadp.app.computing.frames import Frame
from zetadp.app.computing.pool import Pool
from zetadp.app.kit.settings import Settings

_Result = TypeVar("_Result")


@final
class Desk:
    """The pool of an application, its recent answers, and how much one asker may ask at once."""

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self.pool = pool
        self._settings = settings
        self._answers = Answers(settings.profile_cache_bytes)

    async def answer(self, scope: dict[str, Any], head: dict[str, Any], body: bytes, *, is_kept: bool = True) -> AsyncGenerator[Frame]:
        r"""The frames of the answer: one of kind ``start``, then its parts.

        Args:
          scope: of the request that asks, as the gate has left it.
          is_kept: an answer with status 200 is given again to whoever asks the same.
        Raises:
          TooManyCalculations: this address or key has asked for too much already.
          CalculatorsBusy, CalculatorLost: as ``Pool.answer``.
        """
        key = digest(head, body)
        if is_kept and (kept := self._answers.found(key)) is not None:
            yield kept.start
            yield Frame("part", 0, {}, kept.body)
            return
        who, most = self._asker(scope)
        start: Frame | None = None
        parts: list[bytes] = []
        with self.pool.asked_by(who, most):
            async with aclosing(self.pool.answer(who, head, body)) as frames:
                async for frame in frames:
                    if frame.kind == "start":
                        start = frame
                    elif is_kept:
                        parts.append(frame.body)
                    yield frame
        if is_kept and start is not None and start.head["status"] == 200:
            self._answers.keep(key, Answer(start, b"".join(parts)))

    def _asker(self, scope: dict[str, Any]) -> tuple[str, int]:
        admission: Admission = scope["state"]["admission"]
        caller = admission.caller
        if caller is None or caller.key_id is None:
            return address_of(scope), self._settings.calculations_per_address
        return caller.key_id, self._settings.calculations_per_key


async def unless_left(receive: Receive, answering: Awaitable[_Result]) -> _Result | None:
    """The result; None, and no more work for it, once the client has gone. Its request was read to the end."""
    answer = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not answer.done():
            answer.cancel()
            await asyncio.wait((answer,))
    return None if answer.cancelled() else answer.result()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
