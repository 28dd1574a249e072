r"""The log over HTTP. Heads and consistency proofs are for everybody: they contain only hashes, and a log is there to be checked."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.log.checkpoint import LARGEST_LOG
from zetadp.app.certificates.log.merkle_proofs import ConsistencyProof, Proofs, SignedHead, encode
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.log.service import consistency_proof, proofs_of, signed_head
from zetadp.app.certificates.log.storing import stored_envelope
from zetadp.app.certificates.signing.jws import MEDIA_TYPE
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

router = APIRouter(tags=["certificates"])

JSON = "application/json"
REVOCATIONS_PATH = "/.well-known/zetadp-revocations.jws"

Size = Annotated[int | None, Query(ge=0, le=LARGEST_LOG, description="Size of the log, in entries; its current size if absent.")]


def settings_of(request: Request) -> Settings:
    """The service's settings."""
    return cast("Settings", request.app.state.settings)


def database_of(request: Request) -> Database:
    """The service's database."""
    return cast("Database", request.app.state.database)


@router.get("/v1/log", response_class=Response, responses={200: {"model": SignedHead}})
def get_log_head(
    database: Annotated[Database, Depends(database_of)], settings: Annotated[Settings, Depends(settings_of)], size: Size = None
) -> Response:
    """The signed head of the log of certificates (RFC 9162): its size and root as a C2SP checkpoint. Keep one to check later."""
    with database.reading() as session:
        return Response(encode(signed_head(session, settings, size)), media_type=JSON)


@router.get("/v1/log/consistency", response_class=Response, responses={200: {"model": ConsistencyProof}})
def get_consistency(
    first: Annotated[int, Query(ge=0, le=LARGEST_LOG, description="Size of the head that you kept.")],
    database: Annotated[Database, Depends(database_of)],
    settings: Annotated[Settings, Depends(settings_of)],
    second: Size = None,
) -> Response:
    """Proves that the log only grew between two sizes: nothing in it was changed or removed."""
    with database.reading() as session:
        return Response(encode(consistency_proof(session, settings, first, second)), media_type=JSON)


@router.get("/v1/certificates/{certificate_id}/proofs", response_class=Response, responses={200: {"model": Proofs}})
def get_proofs(
    certificate_id: str,
    database: Annotated[Database, Depends(database_of)],
    settings: Annotated[Settings, Depends(settings_of)],
    caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))],
    size: Size = None,
) -> Response:
    """Proves that a certificate is in the log and its plan was before the first step, with the time stamps on the log's head.

    Save the bytes unchanged; `verify --proofs` checks them offline.
    """
    with database.reading() as session:
        stored_envelope(session, certificate_id, caller.tenant)  # 404 for another tenant's
        return Response(encode(proofs_of(session, settings, certificate_id, size)), media_type=JSON)


@router.get(
    REVOCATIONS_PATH,
    response_class=Response,
    responses={200: {"description": "A compact JWS of the list.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}},
)
def get_revocations(settings: Annotated[Settings, Depends(settings_of)]) -> Response:
    """The revoked keys, with when, why, and the log at that time; signed by a key that isn't revoked. For `verify --revocations`."""
    return Response(signed_revocations(settings), media_type=MEDIA_TYPE)
