"""NVFLARE where it is installed, and the environment and the ends of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.trainer.federation_by_hand import Federation

NVFLARE = Path(__file__).parents[2] / "build" / "nvflare"
NEEDS_NVFLARE = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NVFLARE / "bin" / "nvflare").exists(), reason="NVFLARE isn't installed: make build/nvflare/.installed"),
]


def environment_of(federation: Federation) -> dict[str, str]:
    """Of a process that finds NVFLARE and the site of its name, and nothing of this one's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ZETADP_", "PYTHON", "VIRTUAL_ENV"))}
    return kept | {
        "PATH": f"{NVFLARE / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "ZETADP_SITE_SOCKET": str(federation.folder / "{site}" / "socket"),
    }


def killed(process: subprocess.Popen[bytes]) -> None:
    """With all of its own processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
