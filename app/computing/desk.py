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
        self.answers = Answers(settings.profile_cache_bytes)
        self._settings = settings

    def asked(self, scope: dict[str, Any], head: dict[str, Any], body: bytes, *, is_kept: bool = True) -> Question:
        r"""A question to the calculating processes.

        Args:
          scope: of the request that asks, as the gate has left it.
          is_kept: an answer with status 200 is given again to whoever asks the same.
        """
        admission: Admission = scope["state"]["admission"]
        caller = admission.caller
        if caller is None or caller.key_id is None:
            return Question(self, address_of(scope), self._settings.calculations_per_address, head, body, is_kept)
        return Question(self, caller.key_id, self._settings.calculations_per_key, head, body, is_kept)


@final
class Question:
    """One question of one asker. Ask ``at_once`` first: it makes no task and holds nothing up."""

    def __init__(self, desk: Desk, who: str, most: int, head: dict[str, Any], body: bytes, is_kept: bool) -> None:
        self._pool, self._answers = desk.pool, desk.answers
        self._who, self._most = who, most
        self._head, self._body = head, body
        self._key = digest(head, body) if is_kept else None
        self._is_tried = not self._pool.is_tried(body)

    async def at_once(self) -> Answer | None:
        r"""The answer, if it is known or if a quick process is free and needs only a moment for it; nobody need look whether the asker is
        still there.

        Raises:
          TooManyCalculations: this address or key has asked for too much already.
          CalculatorLost: as ``Pool.at_once``.
        """
        if self._key is not None and (known := self._answers.found(self._key)) is not None:
            return known
        return await self._tried() if self._pool.has_turn(self._body) else None

    async def frames(self) -> AsyncGenerator[Frame]:
        r"""The frames of the answer: one of kind ``start``, then its parts.

        Raises:
          TooManyCalculations: this address or key has asked for too much already.
          CalculatorsBusy, CalculatorLost: as ``Pool.slowly``.
        """
        answer = None if self._is_tried else await self.at_once() or await self._tried()
        if answer is not None:
            yield answer.start
            yield Frame("part", 0, {}, answer.body)
            return
        start: Frame | None = None
        parts: list[bytes] = []
        with self._pool.asked_by(self._who, self._most):
            async with aclosing(self._pool.slowly(self._who, self._head, self._body)) as frames:
                async for frame in frames:
                    if frame.kind == "start":
                        start = frame
                    elif self._key is not None:
                        parts.append(frame.body)
                    yield frame
        if start is not None:
            self._keep(Answer(start, b"".join(parts)))

    async def _tried(self) -> Answer | None:
        """The answer by a quick process, asked once."""
        if self._is_tried:
            return None
        with self._pool.asked_by(self._who, self._most):
            frames = await self._pool.at_once(self._who, self._head, self._body)
        self._is_tried = True
        if frames is None:
            return None
        return self._keep(Answer(frames[0], b"".join(frame.body for frame in frames[1:])))

    def _keep(self, answer: Answer) -> Answer:
        if self._key is not None and answer.start.head["status"] == 200:
            self._answers.keep(self._key, answer)
        return answer


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
