r"""The log over HTTP. Heads and consistency proofs are for everybody: they contain only hashes, and a log is there to be checked."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.errors import TileNotFound
from zetadp.app.certificates.log.checkpoint import LARGEST_LOG
from zetadp.app.certificates.log.merkle_proofs import ConsistencyProof, Proofs, SignedHead, encode
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.log.service import consistency_proof, newest_head, proofs_of, signed_head
from zetadp.app.certificates.log.storing import stored_envelope
from zetadp.app.certificates.log.tiles import entry_bundle, hash_tile, place_in
from zetadp.app.certificates.signing.jws import MEDIA_TYPE
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

router = APIRouter(tags=["certificates"])

JSON = "application/json"
REVOCATIONS_PATH = "/.well-known/zetadp-revocations.jws"

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Bytes.", "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
TilePlace = Annotated[str, Path(max_length=60, description="As C2SP tlog-tiles writes it: `000`, `x001/234`, `000.p/17`.")]
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


@router.get("/v1/log/checkpoint", response_class=PlainTextResponse)
def get_checkpoint(
    database: Annotated[Database, Depends(database_of)], settings: Annotated[Settings, Depends(settings_of)]
) -> PlainTextResponse:
    """The log's head as a C2SP checkpoint, with the witnesses' signatures if they have signed it. Part of the tiled log (tlog-tiles)."""
    with database.reading() as session:
        return PlainTextResponse(newest_head(session, settings), headers={"cache-control": "max-age=1"})


@router.get("/v1/log/tile/entries/{place:path}", response_class=Response, responses=_BYTES)
def get_entries(place: TilePlace, database: Annotated[Database, Depends(database_of)]) -> Response:
    """Entries of the log, each after its length in two bytes (C2SP tlog-tiles): `000` has the first 256, `000.p/5` the first five."""
    named = place_in(place)
    with database.reading() as session:
        return _tile(place, None if named is None else entry_bundle(session, named))


@router.get("/v1/log/tile/{level}/{place:path}", response_class=Response, responses=_BYTES)
def get_tile(level: Annotated[int, Path(ge=0, le=63)], place: TilePlace, database: Annotated[Database, Depends(database_of)]) -> Response:
    """Hashes of the log's tree (C2SP tlog-tiles), 256 to a tile: on level 0 those of entries, above each that of a full tile below."""
    named = place_in(place)
    with database.reading() as session:
        return _tile(place, None if named is None else hash_tile(session, level, named))


def _tile(place: str, content: bytes | None) -> Response:
    if content is None:
        raise TileNotFound(place)
    # What it says never changes.
    return Response(content, media_type="application/octet-stream", headers={"cache-control": "public, max-age=31536000, immutable"})


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
    """Proves that a certificate is in the log and its plan was before it, with the time stamps on the plan's head.

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
