r"""Location of data set files: folders under one root that the operator names, and nothing outside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import StringConstraints

from zetadp.mechanisms.errors import InvalidParameter

ROOT_VARIABLE = "ZETADP_DATA_SETS_DIR"

Folder = Annotated[
    str, StringConstraints(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")
]
"""A folder relative to the root: names of letters, digits, dot, dash and underscore, not starting with a dot, joined by slashes."""


_STAYS_INSIDE = "inside the data sets' root, symbolic links followed"


class Stamp(NamedTuple):
    """A file's stamp, which changes when the file does. Its time of modification can be set back; ``changed_ns`` can't."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @property
    def newest_ns(self) -> int:
        """When the file, or anything about it, was last changed, by its file system's clock."""
        return max(self.modified_ns, self.changed_ns)


def root() -> Path:
    """The folder of all data sets' folders, without symbolic links.

    Raises:
      InvalidParameter: the environment variable isn't set, or names no folder.
    """
    named = os.environ.get(ROOT_VARIABLE, "")
    if not named:
        raise InvalidParameter(ROOT_VARIABLE, "set in the environment to the folder that holds the data sets", None)
    path = Path(named).resolve()
    if not path.is_dir():
        raise InvalidParameter(ROOT_VARIABLE, "an existing folder", named)
    return path


def folder_of(folder: str) -> Path:
    """The folder's path, without symbolic links.

    Raises:
      InvalidParameter: it doesn't exist, or a symbolic link leads it out of the root.
    """
    return _inside(root() / folder, folder, wanted_folder=True)


def file_of(folder: str, *names: str) -> Path:
    """The first of ``names`` that exists in the folder.

    Raises:
      InvalidParameter: none exists, or a symbolic link leads it out of the root.
    """
    place = folder_of(folder)
    for name in names:
        if (place / name).is_file():
            return _inside(place / name, f"{folder}/{name}", wanted_folder=False)
    raise InvalidParameter("data.folder", f"a folder with {' or '.join(names)}", folder)


def files_of(folder: str, pattern: str) -> tuple[Path, ...]:
    """The files under the folder that match a glob pattern, in the order of their names; hidden ones are left out.

    Raises:
      InvalidParameter: none matches, or a symbolic link leads one out of the root.
    """
    place = folder_of(folder)
    found = sorted(path for path in place.glob(pattern) if path.is_file() and not path.name.startswith("."))
    if not found:
        raise InvalidParameter("data.folder", f"a folder with files {pattern}", folder)
    top = root()
    folders = {path.parent for path in found}
    # Folders are resolved once, since there may be a hundred thousand files; a link is followed by itself.
    resolved = {inner: inner.resolve() for inner in folders}
    real = tuple(path.resolve() if path.is_symlink() else resolved[path.parent] / path.name for path in found)
    for path, target in zip(found, real, strict=True):
        if not target.is_relative_to(top):
            raise InvalidParameter("data.folder", _STAYS_INSIDE, f"{folder}/{path.relative_to(place)}")
    return real


def stamps(paths: tuple[Path, ...]) -> tuple[Stamp, ...]:
    """Path, size, times and inode of each file.

    Raises:
      InvalidParameter: a file went away.
    """
    try:
        states = [path.stat() for path in paths]
    except OSError as error:
        raise InvalidParameter("data.folder", "a folder whose files stay in place", str(error)) from error
    return tuple(
        Stamp(str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
        for path, state in zip(paths, states, strict=True)
    )


def _inside(path: Path, name: str, *, wanted_folder: bool) -> Path:
    resolved = path.resolve()
    if not resolved.is_relative_to(root()):
        raise InvalidParameter("data.folder", _STAYS_INSIDE, name)
    if wanted_folder and not resolved.is_dir():
        raise InvalidParameter("data.folder", f"an existing folder under {ROOT_VARIABLE}", name)
    return resolved
