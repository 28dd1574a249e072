r"""The child of a job: a process of its own, so that a crash of it can't take the worker down, and a death of the worker ends it."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self, final

import structlog
from pydantic import TypeAdapter, ValidationError

from app.jobs.document import JobDocument
from trainer.report import TrainingEvent

REQUEST, RESULT, LOG, ARTIFACTS, LOCK = "request.json", "result.json", "training.log", "artifacts", "lock"
EXIT_STOPPED = 3
"""The child's exit code after SIGTERM: its state is in the checkpoint."""
LOCK_POLL_SECONDS = 0.05

DATA_SETS_DIR = "ZETADP_DATA_SETS_DIR"
"""The one setting of the service that a child sees: where the files of data sets lie."""

MEMORY_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(256 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
"""For glibc in a child: blocks up to 256 MiB come from the heap, and the heap gives memory back only beyond 1 GiB.

Every step of a training takes and frees the same activations. As it comes, glibc hands each large one back to the system at once, and
the page faults of taking it again cost as much time as the arithmetic on it (of blocks of 100 MiB, forty times as much as reusing them).
"""

ChildCommand = Callable[[Path], list[str]]
_EVENT: TypeAdapter[TrainingEvent] = TypeAdapter(TrainingEvent)
_log = structlog.get_logger()


def training_command(workdir: Path) -> list[str]:
    """The command line of the child that trains."""
    return [sys.executable, "-m", "trainer.child", str(workdir), "--parent", str(os.getpid())]


def calculation_command(workdir: Path) -> list[str]:
    """The command line of the child that calculates."""
    return [sys.executable, "-m", "app.jobs.calculator", str(workdir), "--parent", str(os.getpid())]


def write_request(workdir: Path, document: JobDocument) -> None:
    """Write ``request.json`` whole or not at all. The same at every attempt."""
    workdir.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = workdir / f"{REQUEST}.new"
    unfinished.write_text(document.child_request())
    unfinished.replace(workdir / REQUEST)


@contextmanager
def sole_user(workdir: Path, give_up: Callable[[], bool]) -> Generator[int | None]:
    """Hold the folder's lock, or None where ``give_up`` said so first. A child inherits the lock: the child of a worker that was killed
    holds it until it is gone too, so two children never write the same checkpoint."""
    with (workdir / LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if give_up():
                    yield None
                    return
                time.sleep(LOCK_POLL_SECONDS)
                continue
            yield lock.fileno()
            return


@final
class JobChild:
    r"""A running child and the events it prints, one JSON line each. A context manager: on leaving, the child is gone.

    Args:
      command: its command line.
      workdir: its folder; what it writes to stderr is appended to ``training.log`` there.
      lock: descriptor of the folder's lock, which the child inherits.
      data_sets_dir: folder of the data sets, told to the child as ``ZETADP_DATA_SETS_DIR``; None where there is none.
    """

    def __init__(self, command: Sequence[str], workdir: Path, lock: int, data_sets_dir: Path | None) -> None:
        with (workdir / LOG).open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command line; nothing of a request is in it)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(os.environ, data_sets_dir),
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C is for the worker, which then stops its child in good order
            )
        assert self._process.stdout is not None  # stdout=PIPE
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        self._output_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self._process.wait()
        self._reader.join()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether it has ended and all it said was read."""
        if self._process.poll() is None:
            return False
        self.kill()  # whatever it started and left behind still holds the pipe
        return self._output_ended

    def events(self, timeout_seconds: float) -> list[TrainingEvent]:
        """What it said since the last call; waits for at most ``timeout_seconds`` for the first."""
        if self._output_ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_seconds)
            return []
        lines: list[bytes] = []
        try:
            line = self._lines.get(timeout=timeout_seconds)
            while line is not None:
                lines.append(line)
                line = self._lines.get_nowait()
            self._output_ended = True
        except queue.Empty:
            pass
        return [event for line in lines if (event := _parsed(line)) is not None]

    def stop(self) -> None:
        """Ask it to write a checkpoint and end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it, and whatever it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        """Its exit code; negative for the signal that killed it. Waits for its end."""
        return self._process.wait()


def child_environment(environment: Mapping[str, str], data_sets_dir: Path | None) -> dict[str, str]:
    """The service's environment without its settings, which may hold a password; but with the folder of the data sets.

    Memory is kept as ``MEMORY_KEPT`` says, unless the operator set either of its variables.

    >>> child_environment({"PATH": "/bin", "ZETADP_DATABASE_URL": "secret", "MALLOC_TRIM_THRESHOLD_": "0"}, Path("/data"))
    {'PATH': '/bin', 'MALLOC_TRIM_THRESHOLD_': '0', 'ZETADP_DATA_SETS_DIR': '/data'}
    """
    found = {name: value for name, value in environment.items() if not name.startswith("ZETADP_")}
    if MEMORY_KEPT.keys().isdisjoint(found):
        # Both or neither: setting one alone also switches off how glibc adapts the other.
        found |= MEMORY_KEPT
    return found if data_sets_dir is None else {**found, DATA_SETS_DIR: str(data_sets_dir.absolute())}


def _read_lines(pipe: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put(None)


def _parsed(line: bytes) -> TrainingEvent | None:
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        # Something printed by a library. Its text could hold data, so only its length is logged.
        _log.warning("training_line_ignored", length=len(line))
        return None
