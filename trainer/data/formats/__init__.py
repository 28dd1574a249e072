r"""The registry of formats for uploaded files. To add one, write a module with a ``Format`` and list it here.

A format is recognised by a file's content, never by its name, and must be the declared one.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Literal

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats.base import FILE, ArrayFacts, Contents, Format
from zetadp.trainer.data.formats.csv_tables import Csv
from zetadp.trainer.data.formats.hdf5 import SIGNATURE, Hdf5
from zetadp.trainer.data.formats.idx import Idx, is_idx
from zetadp.trainer.data.formats.mat import Matlab, is_matlab
from zetadp.trainer.data.formats.nifti import Nifti, byte_order
from zetadp.trainer.data.formats.numpy_files import Npy, Npz
from zetadp.trainer.data.formats.packed import BROKEN, GZIP
from zetadp.trainer.data.formats.wav_archive import WavArchive

FormatName = Literal["npz", "npy", "idx", "csv", "wav_zip", "hdf5", "mat", "nifti"]
FORMATS: dict[FormatName, Format] = {
    "npz": Npz(),
    "npy": Npy(),
    "idx": Idx(),
    "csv": Csv(),
    "wav_zip": WavArchive(),
    "hdf5": Hdf5(),
    "mat": Matlab(),
    "nifti": Nifti(),
}
START = 1024
"""Number of bytes by which a format is recognised."""
ZIP = b"PK\x03\x04"


def recognised(path: Path) -> FormatName | None:
    """The format of a file by its content; None if it has none of these."""
    with path.open("rb") as file:
        start = file.read(START)
    if start.startswith(ZIP):
        return _of_archive(path)
    is_packed = start.startswith(GZIP)
    if is_packed:
        try:
            with gzip.open(path) as file:
                start = file.read(START)
        except (OSError, EOFError, zlib.error):
            return None
    known: tuple[tuple[FormatName, bool], ...] = (
        ("npy", start.startswith(b"\x93NUMPY") and not is_packed),
        ("hdf5", start.startswith(SIGNATURE) and not is_packed),
        ("mat", is_matlab(start) and not is_packed),
        ("nifti", byte_order(start) is not None),
        ("idx", is_idx(start)),
        ("csv", bool(start) and b"\0" not in start and not is_packed and _is_text(start)),
    )
    return next((name for name, fits in known if fits), None)


def declared(path: Path, name: FormatName) -> Format:
    """The declared format, which the content must be in. Raises InvalidParameter."""
    found = recognised(path)
    if found != name:
        raise InvalidParameter("format", f"the format of the file's content, {found or 'which is none of ' + ', '.join(FORMATS)}", name)
    return FORMATS[name]


def _of_archive(path: Path) -> FormatName | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except BROKEN:
        return None
    # One file of another kind among many isn't overlooked: it is refused by its format.
    if names and names[0].lower().endswith(".wav"):
        return "wav_zip"
    return "npz" if names and names[0].endswith(".npy") else None


def _is_text(start: bytes) -> bool:
    try:
        # The last character may be cut.
        start[: start.rfind(b"\n") + 1 or len(start)].decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


__all__ = ["FILE", "FORMATS", "ArrayFacts", "Contents", "Format", "FormatName", "declared", "recognised"]
