"""The training process of a job, forked from one that has loaded the libraries: it starts in milliseconds, not seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Any, final

from tests.app.forked import Command
from zetadp.trainer import child
from zetadp.trainer.request import FAILED

PATIENCE_SECONDS = 120.0


def training() -> None:
    """The training process's program, in a process whose parent is the fork server."""
    try:
        code = child.main([sys.argv[1], "--parent", str(os.getppid())])
    except Exception:
        child.report_failure(*sys.exc_info())  # pyright: ignore[reportArgumentType]
        code = FAILED
    sys.exit(code)


@final
class ForkedPopen:
    """In the place of ``subprocess.Popen`` where it starts a training that runs to its end: what it writes is there when it has ended.

    Args:
      command: Python's; the folder of the training is named after the module.
    """

    def __init__(self, command: list[str], **_: Any) -> None:
        folder = Path(command[command.index("zetadp.trainer.child") + 1])
        self._command = Command(folder / "streams", str(folder), program=training)
        self.returncode = self._command.wait(PATIENCE_SECONDS)
        self.pid = os.getpid()  # whose memory is read, as that of any process
        self.stdout: IO[bytes] = (folder / "streams" / "stdout").open("rb")

    def wait(self) -> int:
        return self.returncode

    def kill(self) -> None:
        """It has ended."""

    def send_signal(self, _number: int) -> None:
        """It has ended."""
