r"""The REST interface of uploads and data sets. Only slow operations are asynchronous, since all others share the threads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, status

from zetadp.app.kit.parameters import ID_PATTERN, IdempotencyKey
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.data_sets import DataSetService
from zetadp.app.uploads.lifecycle import data_set_service, turns, upload_service
from zetadp.app.uploads.receiving import Turns, content_digest, made, received
from zetadp.app.uploads.resources import DataSet, DataSetManifest, DataSetPage, Upload, UploadPage
from zetadp.app.uploads.service import UploadAsked, UploadService
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats import FormatName

Uploads = Annotated[UploadService, Depends(upload_service)]
DataSets = Annotated[DataSetService, Depends(data_set_service)]
UploadId = Annotated[str, Path(max_length=64, description="Id of the upload.")]
DataSetId = Annotated[str, Path(max_length=64, description="Id of the data set.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN, description="The `next` of the previous page.")]
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, of any size up to the service's limit; it is never held in memory.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "a,b\n1.0,2.0\n"}},
    }
}

router = APIRouter(prefix="/uploads", tags=["data"])
data_sets = APIRouter(prefix="/data-sets", tags=["data"])


@router.post("", status_code=status.HTTP_201_CREATED, summary="Upload a file", openapi_extra=BODY)
async def upload_file(
    *,
    request: Request,
    service: Uploads,
    turns: Annotated[Turns, Depends(turns)],
    response: Response,
    format: Annotated[FormatName, Query(description="The file's format; its content has to match.")],  # noqa: A002 (the parameter's name)
    name: Annotated[str, Query(min_length=1, max_length=200, description="A label; it isn't used for look-ups.")],
    sha256: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$", description="Digest of the file; the upload must match it.")] = None,
    content_digest_: Annotated[str | None, Header(alias="Content-Digest", max_length=1000, description="Likewise (RFC 9530).")] = None,
    idempotency_key: IdempotencyKey = None,
) -> Upload:
    """The body is the file. It is kept only if all of it arrived, its digest matches, and it is a complete file of its format: then the
    answer lists the arrays in it, never a value."""
    if not name.isprintable():
        raise InvalidParameter("name", "of printable characters", name)
    length = request.headers.get("content-length")
    asked = UploadAsked(
        name=name,
        format=format,
        length=None if length is None else int(length),
        digests=(*(() if sha256 is None else (sha256,)), *content_digest(content_digest_)),
        key=idempotency_key,
    )
    made_of_it = await received(request, service, turns, asked)
    response.headers["Location"] = f"/v1/uploads/{made_of_it.id}"
    return made_of_it


@router.get("", summary="List uploads, newest first")
def list_uploads(service: Uploads, limit: Limit = 50, cursor: Cursor = None) -> UploadPage:
    """One page; follow `next` for older uploads."""
    return service.page(cursor, limit)


@router.get("/{upload_id}", summary="Read an upload")
def read_upload(upload_id: UploadId, service: Uploads) -> Upload:
    """Name, size, digest and the arrays in it."""
    return service.get(upload_id)


@router.delete("/{upload_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete an upload")
def delete_upload(upload_id: UploadId, service: Uploads) -> None:
    """Deletes its file. Data sets made from it stay."""
    service.delete(upload_id)


@data_sets.post("", status_code=status.HTTP_201_CREATED, summary="Create a data set from uploads")
async def make_data_set(
    *,
    definition: DataSetDefinition,
    service: DataSets,
    turns: Annotated[Turns, Depends(turns)],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> DataSet:
    """You say which array is what and state all constants: nothing is taken from the data. Put its `data` into a training spec."""
    made_of_it = await made(service, turns, definition, idempotency_key)
    response.headers["Location"] = f"/v1/data-sets/{made_of_it.id}"
    return made_of_it


@data_sets.get("", summary="List data sets, newest first")
def list_data_sets(service: DataSets, limit: Limit = 50, cursor: Cursor = None) -> DataSetPage:
    """One page; follow `next` for older data sets."""
    return service.page(cursor, limit)


@data_sets.get("/{data_set_id}", summary="Read a data set")
def read_data_set(data_set_id: DataSetId, service: DataSets) -> DataSet:
    """What it was made from and what is known about it."""
    return service.get(data_set_id)


@data_sets.get("/{data_set_id}/manifest", response_model=DataSetManifest, summary="Download a data set's manifest")
def read_manifest(data_set_id: DataSetId, service: DataSets) -> Response:
    """The bytes whose SHA-256 certificates name. They show which data were used: keep them to yourself until you want to show that."""
    return Response(service.manifest(data_set_id), media_type="application/json")


@data_sets.delete("/{data_set_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete a data set")
def delete_data_set(data_set_id: DataSetId, service: DataSets) -> None:
    """Deletes its arrays; 409 while a job that hasn't ended uses it. If a certificate names it, its manifest stays."""
    service.delete(data_set_id)
