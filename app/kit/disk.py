r"""Disk space: how much is left, and which errors mean that it is full. Large writes check first."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from zetadp.app.kit.errors import ProblemType, ServiceError
from zetadp.app.kit.settings import Settings

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_POSTGRESQL = "53100"
"""SQLSTATE ``disk_full``."""


class StorageFull(ServiceError):
    """There is no room for the request; nothing of it was stored."""

    problem = ProblemType(507, "storage-full", "The service's disk is full.")

    def __init__(self, free_bytes: int | None = None, needed_bytes: int | None = None) -> None:
        self.free_bytes = free_bytes
        self.needed_bytes = needed_bytes
        detail = "" if free_bytes is None else f": expected at least {needed_bytes} bytes free, got {free_bytes}"
        super().__init__(f"the service's disk is full{detail}; nothing was stored")


def is_full(error: BaseException) -> bool:
    """Whether a file system, SQLite or PostgreSQL said that there is no room."""
    if isinstance(error, DBAPIError):
        own = error.orig
        return getattr(own, "sqlite_errorname", None) == "SQLITE_FULL" or getattr(own, "sqlstate", None) == _FULL_POSTGRESQL
    return isinstance(error, StorageFull) or (isinstance(error, OSError) and error.errno in _FULL)


def disk(folder: Path) -> tuple[int, int]:
    """Bytes that the service may still write there, and of the whole disk."""
    usage = shutil.disk_usage(folder)
    return usage.free, usage.total


def check_room(settings: Settings, more_bytes: int = 0) -> None:
    """Refuse a write that would leave less than ``minimum_free_bytes``. Raises StorageFull."""
    free, needed = disk(settings.data_dir)[0], settings.minimum_free_bytes + more_bytes
    if free < needed:
        raise StorageFull(free, needed)
