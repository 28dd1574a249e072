r"""A folder for each attempt, so that a later attempt never reads what a superseded one still writes.

An attempt takes over the folder of the one before by renaming it, in one step of the file system, and puts a plain file in the old place.
A process that still works there can't write another checkpoint: its path leads nowhere, and the plain file prevents a new folder. This also
holds between machines that share the data folder, where one kernel doesn't see the other's locks.

Why it matters: a step that isn't in the checkpoint that training goes on from is run again with other noise. If the first run of the step
were kept as well, one release would be counted and two would exist.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ATTEMPTS = "attempts"


class FolderTaken(Exception):
    """A later attempt has taken the folder over."""


def attempt_folder(job_folder: Path, number: int) -> Path:
    """The working folder of the attempt with this number, with its checkpoint, result and artifacts."""
    return job_folder / ATTEMPTS / f"{number:06d}"


def take_over(job_folder: Path, number: int) -> Path:
    r"""The folder of a new attempt, with everything that the previous one kept; from now on no earlier attempt can write.

    Raises:
      FolderTaken: a later attempt already has the folder.
      OSError: the folder can't be made.
    """
    own = attempt_folder(job_folder, number)
    own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = False
    # Downwards: nothing can move up past a name that is closed already, so no folder slips through.
    for earlier in range(number - 1, 0, -1):
        found = _closed(attempt_folder(job_folder, earlier), own, found=found) or found
    if not found:
        try:
            own.mkdir(mode=0o700)
        except FileExistsError:
            raise FolderTaken(own) from None
    return own


def _closed(place: Path, own: Path, *, found: bool) -> bool:
    """Close an earlier attempt's place for good; returns whether its folder is now ``own``."""
    moved = False
    while True:
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return moved
        except FileExistsError:
            pass
        if not place.is_dir():
            return moved
        if found or moved:
            # Made by a process that was superseded long ago. What it released after that is on no record, so nobody may keep it.
            shutil.rmtree(place, ignore_errors=True)
            continue
        try:
            place.rename(own)
            moved = True
        except FileNotFoundError:
            continue
        except (NotADirectoryError, FileExistsError):
            raise FolderTaken(own) from None
