r"""Certificates over HTTP: read one, verify one, and the keys that signed them."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response

from app.access.caller import Caller, Scope, requires
from app.certificates.envelope import MAXIMUM_BYTES, MEDIA_TYPE
from app.certificates.keys import PublicKeySet, jwks
from app.certificates.report import VerificationReport
from app.certificates.tables import stored_envelope
from app.certificates.verification import verify
from app.database import Database
from app.settings import Settings

router = APIRouter(tags=["certificates"])

_ENVELOPE_CONTENT = {
    "application/json": {"schema": {"type": "object", "required": ["payload", "payloadType", "signatures"]}},
    MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
}


async def _body(request: Request) -> bytes:
    """The body as it came, and no more than the largest envelope and a byte: its layout is part of what is verified."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > MAXIMUM_BYTES:
            break
    return bytes(received)


def _settings(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)


def _database(request: Request) -> Database:
    return cast("Database", request.app.state.database)


@router.get(
    "/v1/certificates/{certificate_id}",
    response_class=Response,
    responses={200: {"description": "The DSSE envelope as it was signed.", "content": {MEDIA_TYPE: {}}}},
)
def get_certificate(
    certificate_id: str, database: Annotated[Database, Depends(_database)], caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))]
) -> Response:
    """One certificate: a DSSE envelope around an in-toto statement. Save the bytes as they come; their layout is verified too."""
    with database.reading() as session:
        return Response(stored_envelope(session, certificate_id, caller.tenant), media_type=MEDIA_TYPE)


@router.post("/v1/certificates/verify", openapi_extra={"requestBody": {"required": True, "content": _ENVELOPE_CONTENT}})
def verify_certificate(body: Annotated[bytes, Depends(_body)], settings: Annotated[Settings, Depends(_settings)]) -> VerificationReport:
    """Verify an envelope against this service's own keys and recompute its figures. Always 200: the report's ``verdict`` is the answer.

    Files aren't looked at here; ``python -m app verify`` compares their digests offline, with keys that the reader trusts.
    """
    return verify(body, jwks(settings), None)


@router.get("/.well-known/jwks.json")
def get_keys(settings: Annotated[Settings, Depends(_settings)]) -> PublicKeySet:
    """Every public key that certificates of this service were signed with, the newest first (RFC 7517)."""
    return jwks(settings)
