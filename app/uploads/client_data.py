r"""The Python client's part for uploads and data sets: ``Client.data``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar, final
from urllib.parse import urlencode

from pydantic import BaseModel

from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.resources import DataSet, DataSetPage, Upload, UploadPage
from zetadp.trainer.data.formats import FormatName

PIECE = 2**20
_Model = TypeVar("_Model", bound=BaseModel)


class Answer(Protocol):
    """Sends a request and returns the body of its answer. Raises ServiceUnreachable, RequestRefused."""

    def __call__(
        self, method: str, path: str, content: bytes | Iterable[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> bytes: ...


@final
class DataCalls:
    """Your own files and the data sets made from them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def upload(self, path: Path, format_: FormatName, name: str | None = None, idempotency_key: str | None = None) -> Upload:
        """Upload a file, by default under its own name. The file is read twice: its digest is sent first, and the service compares it."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        asked = urlencode({"format": format_, "name": name or path.name, "sha256": sha256})
        headers = {"Content-Length": str(path.stat().st_size), "Content-Type": "application/octet-stream", **_key(idempotency_key)}
        return Upload.model_validate_json(self._answer("POST", f"/v1/uploads?{asked}", _pieces(path), headers))

    def uploads(self, cursor: str | None = None) -> UploadPage:
        """A page of uploads, newest first."""
        return self._page("/v1/uploads", cursor, UploadPage)

    def delete_upload(self, upload_id: str) -> None:
        """Delete a file. Data sets made from it stay."""
        self._answer("DELETE", f"/v1/uploads/{upload_id}")

    def make(self, definition: DataSetDefinition, idempotency_key: str | None = None) -> DataSet:
        """Make a data set from uploads; put its ``data`` into a training spec."""
        headers = {"Content-Type": "application/json", **_key(idempotency_key)}
        return DataSet.model_validate_json(self._answer("POST", "/v1/data-sets", definition.model_dump_json().encode(), headers))

    def data_sets(self, cursor: str | None = None) -> DataSetPage:
        """A page of data sets, newest first."""
        return self._page("/v1/data-sets", cursor, DataSetPage)

    def data_set(self, data_set_id: str) -> DataSet:
        """One data set."""
        return DataSet.model_validate_json(self._answer("GET", f"/v1/data-sets/{data_set_id}"))

    def manifest(self, data_set_id: str) -> bytes:
        """The bytes whose SHA-256 certificates name, for somebody who may see which data were used."""
        return self._answer("GET", f"/v1/data-sets/{data_set_id}/manifest")

    def delete(self, data_set_id: str) -> None:
        """Delete a data set's arrays; if a certificate names it, its manifest stays."""
        self._answer("DELETE", f"/v1/data-sets/{data_set_id}")

    def _page(self, path: str, cursor: str | None, kind: type[_Model]) -> _Model:
        return kind.model_validate_json(self._answer("GET", path if cursor is None else f"{path}?cursor={cursor}"))


def _key(idempotency_key: str | None) -> dict[str, str]:
    return {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
