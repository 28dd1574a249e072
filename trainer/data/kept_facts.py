r"""Facts of data sets that were read before, kept on disk: large files aren't read again for every job that is planned on them.

They are found by the data set's spec, the stamps of all its files (path, size, times, inode) and the digest of the code that read them,
with the versions of the libraries that it used: once any of these changes, they aren't found any more and the data are read again. A file
that was changed seconds ago could change once more within the same tick of its clock, so nothing is kept of it yet.

Only a plan and the words of a certificate come from here. A training process never looks here: it reads its data and checks that the plan
follows from them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.data.files.location import Stamp

MOST_KEPT = 1000
"""Files in the folder; beyond it, those that weren't used for the longest time are deleted."""
YOUNG_SECONDS = 5.0
"""A file that was changed this recently may change again without another stamp."""
SUFFIX = ".json"
LIBRARIES = ("h5py", "nibabel", "numpy", "scikit-learn", "scipy")
"""Those that data sets are read with."""

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def kept_in(folder: Path) -> Generator[None]:
    """Inside this context, in this thread, facts are looked up and kept in ``folder``, which is made if needed."""
    before = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(before)


def found(spec: str, stamps: Sequence[Stamp]) -> DataSetFacts | None:
    """The facts of this data set as its files are now; None if they aren't known."""
    if (place := _place(spec, stamps)) is None:
        return None
    try:
        facts = DataSetFacts.model_validate_json(place.read_bytes())
        os.utime(place)  # it was used
    except (OSError, ValidationError):
        return None
    return facts


def keep(spec: str, stamps: Sequence[Stamp], facts: DataSetFacts) -> None:
    """Remember the facts, if there is a folder for them. A full disk or a folder that can't be written only costs the next reading."""
    place = _place(spec, stamps)
    if place is None or time.time() - max((stamp.newest_ns for stamp in stamps), default=0) / 1e9 < YOUNG_SECONDS:
        return
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".new", delete=False) as file:
            try:
                file.write(facts.model_dump_json().encode())
                file.close()
                os.replace(file.name, place)
            except OSError:
                os.unlink(file.name)
                raise
        _forget_oldest(place.parent)


def _place(spec: str, stamps: Sequence[Stamp]) -> Path | None:
    """The file of these facts; None without a folder."""
    folder = _folder.get()
    if folder is None:
        return None
    whole = json.dumps([_code(), spec, stamps])
    return folder / (hashlib.sha256(whole.encode()).hexdigest() + SUFFIX)


def _forget_oldest(folder: Path) -> None:
    kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in kept[: max(0, len(kept) - MOST_KEPT)]:
        path.unlink(missing_ok=True)


@cache
def _code() -> str:
    """The digest of everything that reads data sets: another version may read the same files, or its library's own data, differently."""
    libraries: dict[str, str] = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            libraries[name] = version(name)
    digest = hashlib.sha256(json.dumps(libraries).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
