r"""The worker of ``zetadp serve --with-worker``: started again, with growing pauses, whenever it ends before the service does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self, final

import structlog

from zetadp.app.cli.exits import Exit
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.waiting import Pauses
from zetadp.app.worker.exits import EXIT_REFUSED

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses before a worker is started again."""
STEADY_SECONDS = 60.0
"""A worker that ran as long as this was well: the next pause is the first one again."""
REFUSED_PAUSE_SECONDS = 600.0
"""The pause after a worker that can't run with these settings. They stay as they are while the service runs, and a disk may not."""
ENDING_SECONDS = 5.0
"""How much longer a worker may take to end than it allows itself."""
REFUSALS = (EXIT_REFUSED, Exit.USAGE)
_log = structlog.get_logger()


@final
class WorkerSupervisor:
    r"""Runs a worker while the context lasts.

    The kernel sends a worker SIGTERM when the thread that started it ends (``die_with_parent``): here a thread that lives as long as the
    context, or the process. So the worker ends with the service even if that is killed.

    Args:
      command: its command line.
      patience_seconds: how long it may take to end once it is asked to; then it is killed.
    """

    def __init__(self, command: Sequence[str], patience_seconds: float) -> None:
        self._command = command
        self._patience_seconds = patience_seconds
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="worker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._tell(subprocess.Popen.terminate)
        self._thread.join(self._patience_seconds)
        self._tell(subprocess.Popen.kill)
        self._thread.join()

    def _tell(self, act: Callable[[subprocess.Popen[bytes]], None]) -> None:
        with self._lock:
            if self._running is not None:
                act(self._running)

    def _watch(self) -> None:
        pauses, restarts = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS), 0
        while True:
            begun = time.monotonic()
            code = self._run()
            if code is None or self._ending.is_set():
                return
            ran = time.monotonic() - begun
            if ran >= STEADY_SECONDS:
                pauses.reset()
            pause = pauses.following() if code not in REFUSALS else REFUSED_PAUSE_SECONDS
            restarts += 1
            _log.warning("worker_ended", exit_code=code, ran_seconds=round(ran, 1), pause_seconds=pause, restarts=restarts)
            if self._ending.wait(pause):
                return

    def _run(self) -> int | None:
        """Start it and wait for its end; its exit code, or None if it isn't wanted any more."""
        with self._lock:
            if self._ending.is_set():
                return None
            try:
                self._running = subprocess.Popen(self._command, env=_without_key())
            except OSError as error:  # no memory or no processes left: perhaps soon
                _log.error("worker_not_started", error=type(error).__name__)
                return Exit.FAILED
        code = self._running.wait()
        with self._lock:
            self._running = None
        return code


def supervised(settings: Settings) -> WorkerSupervisor:
    """A supervisor of one worker with these settings, which ends with this process. A context manager."""
    command = [sys.executable, "-m", "zetadp", "worker", "--parent", str(os.getpid())]
    return WorkerSupervisor(command, settings.stop_grace_seconds + settings.shutdown_seconds + ENDING_SECONDS)


def _without_key() -> dict[str, str]:
    """The environment of a worker: it serves nobody and needs no key."""
    return {name: value for name, value in os.environ.items() if name != "ZETADP_ADMIN_KEY"}
