r"""The secret key of one run, to which its plan was committed: everything random in the run follows from it and from public labels.

Without such a key every stream has a key of its own from the operating system, which nobody can open. With it an auditor who is given the
key repeats the run: each stream's key is HMAC-SHA256 of its label under the run's key, with 16 bytes that each process of the run draws
anew, so that a step that is run again in another process gets other noise. Whoever learns the run's key can take the noise away.

The run writes down the digest of what it releases, in ``releases.txt``: a line for each process, and one for each release of a step.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import final

from zetadp.mechanisms.sampling.source import RandomOrigin, RandomStream
from zetadp.trainer.request import NOISE_KEY, RELEASES
from zetadp.trainer.specs.base import RuntimeSpec


@final
class RunKey:
    r"""A run's key in one process.

    Args:
      secret: 32 bytes.
      start: the process's own 16 bytes; drawn if None, given to repeat a run.
      releases: where the digests of releases are written.
    """

    def __init__(self, secret: bytes, start: bytes | None, releases: Path) -> None:
        self._secret, self._start, self._releases = secret, start or os.urandom(16), releases
        self._asked: dict[str, int] = {}
        self._write("start", self._start.hex())

    def stream(self, label: str) -> RandomStream:
        """The stream of this label; asked again, another one."""
        number = self._asked[label] = self._asked.get(label, 0) + 1
        return self._of(f"{label} {number}" if number > 1 else label)

    def noise(self, site: int, step: int) -> RandomStream:
        """The stream of the noise of a step at a site: the same each time, since some of it may have been drawn ahead and dropped."""
        found = self._of(f"noise {site} {step}")
        found.observed = lambda released: self._write("release", f"{site} {step} {hashlib.sha256(released).hexdigest()}")
        return found

    def begins_after(self, step: int) -> None:
        """The process continues after this step: what is written of later ones was never released, and goes."""
        lines = self._releases.read_text().splitlines(keepends=True)
        own = len(lines) - 1 - next(place for place, line in enumerate(reversed(lines)) if line.startswith("start "))
        kept = [line for line in lines[:own] if not line.startswith("release ") or int(line.split()[2]) <= step]
        unfinished = self._releases.with_name(f".{self._releases.name}")
        unfinished.write_text("".join([*kept, *lines[own:]]))
        unfinished.replace(self._releases)
        self._write("from", str(step))

    def _of(self, label: str) -> RandomStream:
        key = hmac.new(self._secret, self._start + label.encode(), hashlib.sha256).digest()
        return RandomStream(key, RandomOrigin.OPERATING_SYSTEM)

    def _write(self, kind: str, text: str) -> None:
        with self._releases.open("a") as file:
            file.write(f"{kind} {text}\n")


_current: ContextVar[RunKey | None] = ContextVar("run_key", default=None)


def run_key() -> RunKey | None:
    """The key of the run in this process; None if its randomness comes from the operating system or from a seed."""
    return _current.get()


@contextmanager
def keyed_in(workdir: Path, runtime: RuntimeSpec, start: bytes | None = None) -> Generator[RunKey | None]:
    """Inside this context the run's randomness follows from the key in its folder, if there is one."""
    path = workdir / NOISE_KEY
    if not path.exists():
        yield None
        return
    releases = workdir / RELEASES
    releases.parent.mkdir(parents=True, exist_ok=True)
    if not releases.exists():
        releases.write_text(f"runtime {runtime.model_dump_json()}\n")
    found = RunKey(path.read_bytes(), start, releases)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)
