r"""Certificates are verified by the calculating processes: what it takes is what was certified, and anybody may ask."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import final

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import Base64Bytes

from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import Examination
from zetadp.app.certificates.verification.within import examined_within
from zetadp.app.computing.desk import Desk, unless_left
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.base import Value

CLIENT_GONE = 499
"""For the log and the metrics: nobody is there to read it."""
PATH = "/examinations"
"""Only in the calculating processes."""

router = APIRouter()


@final
class Asked(Value):
    """A certificate, the keys that it is examined with, and the most processor time for that."""

    certificate: Base64Bytes
    keys: PublicKeySet
    seconds: float


@router.post(PATH)
def examine(asked: Asked) -> Response:
    """The examination, in the process that makes it."""
    found = examined_within(asked.seconds, asked.certificate, asked.keys)
    return Response(found.model_dump_json(), media_type="application/json")


async def examined_apart(request: Request, certificate: bytes, keys: PublicKeySet, settings: Settings) -> Examination | Response:
    """As ``examined_within``, in a calculating process if the application has any; what it found before it knows at once. Or the answer
    with which such a process refused it.

    Raises:
      VerificationTooLong: it takes more than ``verification_seconds``.
      TooManyCalculations, CalculatorsBusy, CalculatorLost: as ``Question.frames``.
    """
    desk: Desk | None = getattr(request.app.state, "desk", None)
    if desk is None:
        return await to_thread.run_sync(examined_within, settings.verification_seconds, certificate, keys)
    asked = Asked.model_construct(certificate=certificate, keys=keys, seconds=settings.verification_seconds)
    head = {
        "method": "POST",
        "path": PATH,
        "query": "",
        "headers": [["content-type", "application/json"]],
        "request_id": request.state.request_id,
        "seconds": settings.verification_seconds,
    }
    found = await unless_left(request.receive, _whole(desk, request, head, asked.model_dump_json().encode()))
    if found is None:
        return Response(status_code=CLIENT_GONE)
    status, content = found
    if status == 200:
        return Examination.model_validate_json(content)
    request.state.problem = json.loads(content).get("type")
    return Response(content, status, media_type="application/problem+json")


async def _whole(desk: Desk, request: Request, head: dict[str, object], body: bytes) -> tuple[int, bytes]:
    status, content = 500, b""
    async with aclosing(desk.asked(dict(request.scope), head, body).frames()) as frames:
        async for frame in frames:
            if frame.kind == "start":
                status = frame.head["status"]
            else:
                content += frame.body
    return status, content
