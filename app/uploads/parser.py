r"""The reading process: inspects an uploaded file, or makes a data set from several. Files aren't trusted, so the kernel bounds it.

    python -m zetadp.process zetadp.app.uploads.parser FOLDER --parent PID

Reads ``FOLDER/request.json`` and writes ``FOLDER/result.json``. Ends with 0, with 3 if memory didn't suffice, with 4 if its parent is
gone, and with 1 or by a signal if a library failed on the file.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
from pathlib import Path
from typing import ClassVar, final

from zetadp.app.kit.disk import is_full
from zetadp.app.uploads.data_set_definition import DataSetDefinition, UploadId
from zetadp.app.uploads.making import Readable, made
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.data.formats import Contents, FormatName, declared
from zetadp.trainer.data.uploaded import Sha256, store
from zetadp.trainer.parent import die_with_parent

REQUEST, RESULT = "request.json", "result.json"
DONE, ORPHANED = 0, 4


@final
class ReadableFile(Value):
    """A file and its declared format."""

    path: Path
    format: FormatName


@final
class ReadingRequest(Value):
    r"""A task: ``inspect`` a file, or make a data set of ``uploads`` in ``folder``.

    Attributes:
      limits: seconds of processor time, bytes of memory, bytes of one file that is written.
    """

    limits: tuple[int, int, int]
    inspect: ReadableFile | None = None
    definition: DataSetDefinition | None = None
    uploads: dict[UploadId, ReadableFile] | None = None
    folder: Path | None = None


@final
class MadeArrays(Value):
    """The arrays of a finished data set: see ``StoredDataSet``."""

    TOO_LARGE: ClassVar[int] = 3

    facts: DataSetFacts
    arrays_sha256: Sha256
    rebuilds_itself: bool


@final
class Refusal(Value):
    """An InvalidParameter on its way to the parent."""

    field: str
    expected: str
    got: str | int | None


@final
class ReadingResult(Value):
    """Exactly one field is given."""

    contents: Contents | None = None
    made: MadeArrays | None = None
    refused: Refusal | None = None
    is_full: bool = False


def done(request: ReadingRequest) -> ReadingResult:
    """The request's result. Raises MemoryError, and any error of a library."""
    try:
        if request.inspect is not None:
            return ReadingResult(contents=declared(request.inspect.path, request.inspect.format).inspect(request.inspect.path))
        assert request.definition is not None  # the other kind of request
        assert request.uploads is not None
        assert request.folder is not None
        data, facts = made(request.definition, {name: Readable(one.path, one.format) for name, one in request.uploads.items()})
        digest, itself = store(request.folder, data)
        return ReadingResult(made=MadeArrays(facts=facts, arrays_sha256=digest, rebuilds_itself=itself))
    except InvalidParameter as refused:
        got = refused.got if isinstance(refused.got, str | int | None) else repr(refused.got)
        return ReadingResult(refused=Refusal(field=refused.field, expected=refused.expected, got=got))
    except OSError as error:
        if is_full(error):
            return ReadingResult(is_full=True)
        raise


def main(arguments: list[str]) -> int:
    """Handles one request and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m zetadp.process zetadp.app.uploads.parser", description="Read uploaded files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int, required=True, help="process id that this one must not outlive")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if not die_with_parent(options.parent, signal.SIGKILL):
        return ORPHANED
    os.umask(0o077)
    request = ReadingRequest.model_validate_json((folder / REQUEST).read_bytes())
    seconds, memory, file_size = request.limits
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    try:
        result = done(request)
    except MemoryError:
        return MadeArrays.TOO_LARGE
    unfinished = folder / f".{RESULT}.new"
    unfinished.write_text(result.model_dump_json())
    unfinished.replace(folder / RESULT)
    return DONE
