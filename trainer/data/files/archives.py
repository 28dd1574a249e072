r"""Reads untrusted archives: sizes are bounded before anything is unpacked, names can't leave the archive, nothing is unpickled."""

from __future__ import annotations

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

LARGEST_MEMBER = 8 * 2**30
"""Bytes of one unpacked array."""
LARGEST_FILE = 2**22
"""Bytes of one unpacked small file, such as a recording: a minute and more at 16 kHz."""
LARGEST_ARCHIVE = 64 * 2**30
"""Bytes of an unpacked archive."""
MAT_COMPRESSED = 15
"""The type of a compressed variable in a MATLAB file of version 5."""
MAT_PIECE = 2**20
HIGHEST_RATIO = 1100
"""Deflate can't shrink more than 1032 times: a larger ratio is a forged size."""

BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)
"""Errors of zipfile and NumPy for malformed files; RuntimeError means an encrypted member."""


def npz_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named arrays of a NumPy archive.

    Raises:
      InvalidParameter: it isn't one, is cut off, lacks an array, holds Python objects, or is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, path, LARGEST_MEMBER)
            present = set(archive.namelist())
            missing = [name for name in names if f"{name}.npy" not in present]
            if missing:
                raise InvalidParameter(path.name, f"an archive with the arrays {', '.join(names)}", f"none of {', '.join(missing)}")
            return {name: _npy_array(archive.read(f"{name}.npy"), f"{path.name}:{name}") for name in names}
    except InvalidParameter:
        raise
    except BROKEN as error:
        raise InvalidParameter(path.name, "a whole NumPy archive (.npz)", str(error)) from error


def _npy_array(raw: bytes, name: str) -> NDArray[Any]:
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise InvalidParameter(name, "an array of numbers (Python objects are never unpickled)", str(dtype))
    # Before the array is made: a forged header could ask for any amount of memory.
    if math.prod(shape) * dtype.itemsize != len(raw) - stream.tell():
        raise InvalidParameter(name, f"as long as its header says, {dtype} of shape {shape}", len(raw))
    return np.frombuffer(raw, dtype, offset=stream.tell()).reshape(shape, order="F" if fortran else "C")


def zip_files(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted small file of a ZIP archive, in the order of their names.

    Raises:
      InvalidParameter: it isn't one, is cut off, has a name that leaves the archive, or a file that is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, path, LARGEST_FILE)
            for name in sorted(name for name in archive.namelist() if wanted(name)):
                yield name, archive.read(name)
    except InvalidParameter:
        raise
    except BROKEN as error:
        raise InvalidParameter(path.name, "a whole ZIP archive", str(error)) from error


def _check_members(archive: zipfile.ZipFile, path: Path, largest: int) -> None:
    total = 0
    for member in archive.infolist():
        parts = member.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0]:
            raise InvalidParameter(path.name, "an archive whose file names stay inside it", member.filename)
        if member.file_size > largest or member.file_size > HIGHEST_RATIO * max(member.compress_size, 1):
            raise InvalidParameter(path.name, f"an archive of files of at most {largest} bytes", f"{member.filename}: {member.file_size}")
        total += member.file_size
    if total > LARGEST_ARCHIVE:
        raise InvalidParameter(path.name, f"at most {LARGEST_ARCHIVE} bytes unpacked", total)


def check_mat_size(path: Path, largest: int) -> None:
    """Unpacks the compressed variables of a MATLAB file (version 5) piece by piece, keeping none, to check that it isn't a zip bomb.

    Raises:
      InvalidParameter: they are more than ``largest`` bytes, or one is cut off.
    """
    raw = path.read_bytes()
    if 0 in raw[:4]:
        return  # version 4, which doesn't compress
    order: Literal["little", "big"] = "little" if raw[126:128] == b"IM" else "big"
    place, total = 128, 0
    while place + 8 <= len(raw):
        kind, size = (int.from_bytes(raw[start : start + 4], order) for start in (place, place + 4))
        place += 8 + size
        if kind != MAT_COMPRESSED:
            continue
        packed, unpacker = raw[place - size : place], zlib.decompressobj()
        while packed and not unpacker.eof:
            try:
                total += len(unpacker.decompress(packed, MAT_PIECE))
            except zlib.error as error:
                raise InvalidParameter(path.name, "a whole MATLAB file", str(error)) from error
            if total > largest:
                raise InvalidParameter(path.name, f"at most {largest} bytes unpacked", f"more than {largest}")
            packed = unpacker.unconsumed_tail


def idx_array(path: Path, magic: int) -> NDArray[Any]:
    """The unsigned bytes of an IDX file, gzipped or not, in its shape.

    The header, big-endian: the magic number, whose last byte is the number of dimensions, then the dimensions.

    Raises:
      InvalidParameter: another magic number, or not exactly as many bytes as the header says.
    """
    dimensions = magic & 0xFF
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            header = np.frombuffer(stream.read(4 * (1 + dimensions)), dtype=">u4")
            if len(header) != 1 + dimensions or header[0] != magic:
                raise InvalidParameter(path.name, f"an IDX file with magic number {magic}", header[:1].tolist())
            shape = tuple(int(size) for size in header[1:])
            size = math.prod(shape)
            if size > LARGEST_MEMBER:
                raise InvalidParameter(path.name, f"at most {LARGEST_MEMBER} bytes unpacked", size)
            raw = stream.read(size + 1)
    except InvalidParameter:
        raise
    except BROKEN as error:
        raise InvalidParameter(path.name, "a whole IDX file", str(error)) from error
    if len(raw) != size:
        raise InvalidParameter(path.name, f"as long as its header says, {size} bytes of shape {shape}", len(raw))
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
