r"""Signs of life of workers and launchers, for health checks: each try to renew a lease touches the lock on the process's name.

They tell whether the process works, not whether its database answers: a worker whose database is away goes on with its training, and must
not be ended for that.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from zetadp.app.kit.settings import Settings
from zetadp.app.worker.naming import lock_file


def beat(settings: Settings, name: str) -> None:
    """A sign of life of the worker that holds this name. Nothing happens if the disk refuses it."""
    moment = time.time()  # this machine's clock, also where the folder is another's
    with suppress(OSError):
        os.utime(lock_file(settings.data_dir, name), (moment, moment))


def patience_seconds(settings: Settings) -> float:
    """How old the last sign of life of a living worker may be: a try to renew the lease may wait for a locked database."""
    return settings.lease_seconds + 2.0 * settings.database_busy_seconds


def last_beat_seconds(settings: Settings) -> float | None:
    """How long ago a worker or a launcher of this machine gave its last sign of life; None if none ever did.

    Of several on one machine it is the last of all. With ``executor_id`` only the one of that name counts.
    """
    pattern = lock_file(settings.data_dir, settings.executor_id or "*")
    host, found = socket.gethostname(), list[float]()
    for file in pattern.parent.glob(pattern.name):
        with suppress(OSError):  # it may go while it is read
            if file.read_text(encoding="utf-8", errors="replace") == host:
                found.append(file.stat().st_mtime)
    return None if not found else max(0.0, time.time() - max(found))
