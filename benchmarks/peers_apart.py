r"""Peers that run in a process of their own, which measures itself; what isn't installed is left out, and said to be.

``make peers`` makes build/peers, with a newer Python than this one may be, and puts what installs beside zetadp there.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

from benchmarks.compare import Ratio, seconds

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / "build" / "peers" / "bin" / "python"
SCRIPT = Path(__file__).with_name("peer_process.py")
LIMIT_SECONDS = 120.0
"""Of wall time for one answer."""

OPAKE = "opake-accounting, grid 1e-4"

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


class Peer(NamedTuple):
    """A library in another process."""

    name: str
    library: str
    package: str
    python: Path


PEERS = (
    Peer(OPAKE, "opake", "opake", PEERS_PYTHON),
    Peer("prv-accountant, error 0.1", "prv", "prv_accountant", PEERS_PYTHON),
    Peer("opacus prv", "opacus_prv", "opacus", Path(sys.executable)),
    Peer("opacus RDP", "opacus_rdp", "opacus", Path(sys.executable)),
    Peer("jax-privacy Monte Carlo", "jax_privacy", "jax_privacy", PEERS_PYTHON),
)


class Answer(NamedTuple):
    """A number or an error, and CPU seconds."""

    value: float
    error: str
    seconds: float


def missing(peer: Peer) -> str | None:
    """Why the peer can't be asked, or None."""
    if not peer.python.exists():
        return f"{peer.name} is left out: {peer.python.relative_to(ROOT)} isn't there; make peers installs it"
    command = [str(peer.python), "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{peer.package}') is None)"]
    if subprocess.run(command, check=False, cwd="/", capture_output=True).returncode:  # noqa: S603 - of this project's environments
        return f"{peer.name} is left out: it isn't installed; make peers installs it"
    return None


class Asked:
    """A running peer; started again after what took too long."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._process: subprocess.Popen[str] | None = None

    def ask(self, probability: float, multiplier: float, count: int, delta: float) -> Answer:
        """Epsilon; an error where the peer has none."""
        if self._process is None:
            command, environment = [str(self.peer.python), str(SCRIPT), self.peer.library], {**os.environ, **_ONE_THREAD}
            self._process = subprocess.Popen(  # noqa: S603 - of this project's environments
                command, cwd="/", env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        sent.write(json.dumps([probability, multiplier, count, delta]) + "\n")
        sent.flush()
        if not _is_ready(received) or not (line := received.readline()):
            self.close()
            return Answer(math.nan, f"no answer in {LIMIT_SECONDS:g} s, or the process ended", math.nan)
        found = json.loads(line)
        value = float(found.get("answer", math.nan))
        return Answer(value, found.get("error", "" if math.isfinite(value) else f"answers {value}"), found["seconds"])

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _is_ready(stream: IO[str]) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(LIMIT_SECONDS))


def ratio(ours: Callable[[], object], theirs: Callable[[], Answer], rounds: int) -> tuple[Ratio | None, Answer]:
    """As ``compare.ratio``, of a peer that measures itself: in turn, after one uncounted answer of each. None where it has no answer."""
    answer = theirs()
    if answer.error:
        return None, answer
    ours()
    calls = max(1, round(0.02 / max(seconds(ours), 1e-7)))
    pairs = [(seconds(ours, calls), theirs().seconds) for _ in range(rounds)]
    factor = median(b / a for a, b in pairs)
    return Ratio(factor, median(a for a, _ in pairs), median(b for _, b in pairs)), answer
