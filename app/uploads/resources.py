r"""What the REST interface shows of uploads and data sets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, final

from pydantic import StringConstraints

from zetadp.app.uploads.data_set_definition import DataSetDefinition, UploadId
from zetadp.mechanisms.base import Count, Value
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.data.formats import ArrayFacts, FormatName
from zetadp.trainer.data.uploaded import DataSetId, Sha256, Uploaded

Nonce = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


@final
class Upload(Value):
    r"""An uploaded file.

    Attributes:
      name: a label.
      sha256: of its bytes.
      arrays: the arrays in it, without values.
      left_out: names of other contents that can't be used.
    """

    id: UploadId
    name: str
    format: FormatName
    bytes: int
    sha256: Sha256
    created: datetime
    arrays: tuple[ArrayFacts, ...]
    left_out: tuple[str, ...]


@final
class UploadPage(Value):
    """Uploads, newest first; ``next`` is the cursor of the page after, null on the last."""

    uploads: tuple[Upload, ...]
    next: str | None


@final
class DataSet(Value):
    r"""A data set made from uploads. It never changes.

    Attributes:
      state: ``deleted`` if its arrays are gone and only what certificates name of it is left.
      bytes: size of its arrays; 0 if deleted.
      definition: as it was requested.
      facts: what plans and certificates need to know. The digest is for the owner only: certificates have ``manifest_sha256`` instead.
      manifest_sha256: of the manifest (``GET /v1/data-sets/{id}/manifest``), which reveals the data that a certificate refers to.
      data: the value for ``data`` in a training spec.
    """

    id: DataSetId
    state: Literal["ready", "deleted"]
    created: datetime
    deleted: datetime | None
    bytes: int
    definition: DataSetDefinition
    facts: DataSetFacts
    manifest_sha256: Sha256
    data: Uploaded


@final
class DataSetPage(Value):
    """Data sets, newest first; ``next`` is the cursor of the page after, null on the last."""

    data_sets: tuple[DataSet, ...]
    next: str | None


@final
class ManifestUpload(Value):
    """An upload that a data set was made from."""

    id: UploadId
    format: FormatName
    bytes: Count
    sha256: Sha256


@final
class DataSetManifest(Value):
    r"""Opens a certificate's commitment to a data set: private to its owner, who may show it.

    Attributes:
      definition: as requested, with the owner's description.
      arrays_sha256: of all arrays, held-out ones included.
      nonce: 256 random bits, without which the manifest's digest would let anyone check a guess of all the data.
    """

    id: DataSetId
    created: datetime
    definition: DataSetDefinition
    uploads: tuple[ManifestUpload, ...]
    facts: DataSetFacts
    arrays_sha256: Sha256
    nonce: Nonce
