r"""Untrusted ZIP archives and gzipped files: their stated sizes are checked before anything is unpacked, and again during unpacking."""

from __future__ import annotations

import gzip
import stat
import struct
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats.base import FILE, HIGHEST_RATIO, MOST_UNPACKED, PIECE, Format

GZIP = b"\x1f\x8b"
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, LookupError, NotImplementedError, RuntimeError)
"""Errors of zipfile, gzip and NumPy for malformed files; RuntimeError means an encrypted member, LookupError one
without a name."""
ENCRYPTED = 0x1


@contextmanager
def archive(path: Path, format_: Format, most_members: int) -> Generator[tuple[zipfile.ZipFile, Sequence[zipfile.ZipInfo]]]:
    r"""An open ZIP archive and its files, folders left out.

    Raises:
      InvalidParameter: it isn't a whole one, or holds names that leave it, links, encrypted or oddly packed files, too many, or too much.
    """
    try:
        with zipfile.ZipFile(path) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            if not 0 < len(members) <= most_members:
                raise InvalidParameter(FILE, f"an archive of 1 to {most_members} files", len(members))
            _check(members, path.stat().st_size)
            yield opened, members
    except InvalidParameter:
        raise
    except BROKEN as error:
        raise format_.broken(f"an archive that can't be read ({type(error).__name__})") from error


def _check(members: Sequence[zipfile.ZipInfo], file_size: int) -> None:
    names = {member.filename for member in members}
    if len(names) != len(members):
        raise InvalidParameter(FILE, "an archive whose files have different names", "a name that occurs twice")
    for member in members:
        parts = member.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0] or not member.filename.isprintable():
            raise InvalidParameter(FILE, "an archive whose file names stay inside it", member.filename)
        mode = member.external_attr >> 16
        if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
            raise InvalidParameter(FILE, "an archive of plain files (no links, no devices)", member.filename)
        if member.flag_bits & ENCRYPTED:
            raise InvalidParameter(FILE, "an archive without encrypted files", member.filename)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidParameter(FILE, "an archive of stored or deflated files", member.filename)
        if member.file_size > HIGHEST_RATIO * max(member.compress_size, 1):
            raise InvalidParameter(FILE, "an archive with sizes that its compression can reach", member.filename)
    if (total := sum(member.file_size for member in members)) > MOST_UNPACKED:
        raise InvalidParameter(FILE, f"at most {MOST_UNPACKED} bytes unpacked", total)
    if (packed := sum(member.compress_size for member in members)) > file_size:
        # Members that lie over each other: one small file that counts a thousand times.
        raise InvalidParameter(FILE, f"an archive whose files fit into its {file_size} bytes without overlapping", packed)


@contextmanager
def unpacked(path: Path, format_: Format) -> Generator[IO[bytes]]:
    """The content of a file, gzipped or not. Raises InvalidParameter if reading it fails."""
    try:
        with path.open("rb") as plain:
            is_packed = plain.read(len(GZIP)) == GZIP
        with gzip.open(path, "rb") if is_packed else path.open("rb") as stream:
            yield stream  # pyright: ignore[reportReturnType] (a gzip file reads like any other)
    except InvalidParameter:
        raise
    except BROKEN as error:
        raise format_.broken(f"a file that is cut off or damaged ({type(error).__name__})") from error


def pass_over(stream: IO[bytes], most: int, format_: Format) -> int:
    """Reads the rest of a stream piece by piece, keeping none, and returns its bytes. Raises InvalidParameter beyond ``most``."""
    seen = 0
    while piece := stream.read(PIECE):
        seen += len(piece)
        if seen > most:
            raise format_.broken("more bytes than its header says")
    return seen


def read_array(stream: IO[bytes], size: int, dtype: np.dtype[Any], format_: Format) -> NDArray[Any]:
    """An array of ``size`` bytes, flat, read piece by piece. Raises InvalidParameter if the stream ends early."""
    flat = np.empty(size // dtype.itemsize if dtype.itemsize else 0, dtype)
    room, filled = flat.view(np.uint8), 0
    while filled < size:
        piece = stream.read(min(PIECE, size - filled))
        if not piece:
            raise format_.broken("fewer bytes than its header says")
        room[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    return flat
