r"""Reads untrusted files in a separate process (``parser.py``), bounded in time, memory and what it may write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import final

import structlog
from pydantic import ValidationError

from zetadp.app.kit.child_environment import child_environment
from zetadp.app.kit.disk import StorageFull
from zetadp.app.kit.settings import Settings
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.parser import REQUEST, RESULT, MadeArrays, ReadableFile, ReadingRequest, ReadingResult
from zetadp.app.uploads.storage import private_folder
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.process import child_command
from zetadp.trainer.data.formats import FILE, Contents, FormatName

SCRATCH = ".reading"
CALM = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HDF5_USE_FILE_LOCKING": "FALSE", "HDF5_PLUGIN_PATH": "::"}
"""Environment of a reading process: threads would count as memory, and no filter of HDF5's comes from a file."""
_log = structlog.get_logger()


@final
class Reader:
    """Starts reading processes and waits for them. After closing, none is left."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def inspect(self, path: Path, format_: FormatName) -> Contents:
        """What a complete file of the declared format contains. Raises InvalidParameter if it isn't one or takes too much."""
        result = self._read(ReadingRequest(limits=self._limits(0), inspect=ReadableFile(path=path, format=format_)))
        assert result.contents is not None  # a result without it was refused
        return result.contents

    def make(self, definition: DataSetDefinition, uploads: Mapping[str, ReadableFile], folder: Path, room: int) -> MadeArrays:
        r"""Writes the arrays of a data set into ``folder``, at most ``room`` bytes each.

        Raises:
          InvalidParameter: the uploads don't give what the definition asks for, or take too much time or memory.
          StorageFull: there is no room.
        """
        result = self._read(ReadingRequest(limits=self._limits(room), definition=definition, uploads=dict(uploads), folder=folder))
        assert result.made is not None  # as above
        return result.made

    def close(self) -> None:
        """End all running processes."""
        self._is_closed = True
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _limits(self, room: int) -> tuple[int, int, int]:
        return round(self._settings.reading_seconds) or 1, self._settings.reading_bytes, room + 2**16

    def _read(self, request: ReadingRequest) -> ReadingResult:
        folder = Path(tempfile.mkdtemp(dir=private_folder(self._settings.uploads_dir / SCRATCH)))
        try:
            (folder / REQUEST).write_text(request.model_dump_json())
            code = self._run(folder)
            return self._result(folder, code)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path) -> int:
        """The exit code of the process; the negative number of the signal that ended it."""
        process = subprocess.Popen(  # noqa: S603 (our own command line; nothing of a request is in it)
            child_command("zetadp.app.uploads.parser", str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # libraries complain there, and may quote what they read
            env=child_environment(os.environ, None) | CALM,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            if self._is_closed:
                process.kill()
            # Its own limit is of processor time; this one is for a process that waits.
            return process.wait(2.0 * self._settings.reading_seconds)
        except subprocess.TimeoutExpired:
            return -signal.SIGXCPU
        finally:
            process.kill()
            process.wait()
            self._running.discard(process)

    def _result(self, folder: Path, code: int) -> ReadingResult:
        try:
            result = ReadingResult.model_validate_json((folder / RESULT).read_bytes())
        except (OSError, ValidationError):
            result = None
        if result is None or code != 0:
            raise self._ended(code)
        if result.refused is not None:
            raise InvalidParameter(result.refused.field, result.refused.expected, result.refused.got)
        if result.is_full:
            raise StorageFull
        return result

    def _ended(self, code: int) -> InvalidParameter:
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return InvalidParameter(
                FILE, f"read within {self._settings.reading_seconds:g} s of processor time", "more, or the service ends"
            )
        if code == MadeArrays.TOO_LARGE:
            return InvalidParameter(FILE, f"read within {self._settings.reading_bytes} bytes of memory", "more")
        _log.error("reading_process_ended", code=code)
        return InvalidParameter(FILE, "readable", "a file that crashed the process reading it")
