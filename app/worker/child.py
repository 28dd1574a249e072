r"""A job's child process: its crash can't take the worker down, and the worker's death ends it."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import IO, Self, final

import structlog
from pydantic import TypeAdapter, ValidationError

from zetadp.app.jobs.document import JobDocument
from zetadp.app.jobs.events import Logged
from zetadp.app.kit.child_environment import child_environment
from zetadp.app.worker.hardware import VISIBLE
from zetadp.app.worker.log_lines import LogLines
from zetadp.process import child_command
from zetadp.trainer.specs.report import TrainingEvent
from zetadp.trainer.team_place import TEAM_VARIABLE, TeamPlace

REQUEST, LOG, LOCK = "request.json", "training.log", "lock"
EXIT_STOPPED = 3
"""The child's exit code after SIGTERM: its state is in the checkpoint."""
LOCK_POLL_SECONDS = 0.05
LARGEST_LOG = 2**20
"""Bytes of ``training.log``; anything beyond is dropped."""
LONGEST_READ = 2**16

ChildEvent = TrainingEvent | Logged
ChildCommand = Callable[[Path], list[str]]
_EVENT: TypeAdapter[TrainingEvent] = TypeAdapter(TrainingEvent)
_log = structlog.get_logger()


def training_command(workdir: Path) -> list[str]:
    """The command line of the child that trains."""
    return child_command("zetadp.trainer.child", str(workdir))


def calculation_command(workdir: Path) -> list[str]:
    """The command line of the child that calculates."""
    return child_command("zetadp.app.worker.calculator", str(workdir))


def write_request(workdir: Path, document: JobDocument) -> None:
    """Write ``request.json`` atomically. The content is the same at every attempt."""
    unfinished = workdir / f"{REQUEST}.new"
    unfinished.write_text(document.child_request())
    unfinished.replace(workdir / REQUEST)


@contextmanager
def sole_user(folder: Path, give_up: Callable[[], bool], patience_seconds: float) -> Generator[int | None]:
    r"""Hold the lock of a job's folder; None if ``give_up`` was true first. A child inherits the lock: the child of a killed worker holds
    it until it is gone too, so on one machine two children don't share a device.

    It is a courtesy, not a fence (``app/jobs/folders.py`` is): a child that hangs with its worker would hold it for ever, so after
    ``patience_seconds`` this goes on without.
    """
    deadline = time.monotonic() + patience_seconds
    with (folder / LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if give_up():
                    yield None
                    return
                if time.monotonic() < deadline:
                    time.sleep(LOCK_POLL_SECONDS)
                    continue
                _log.warning("lock_not_free", folder=folder.name)
            yield lock.fileno()
            return


@final
class JobChild:
    r"""A running child and the events it prints, one JSON line each. A context manager: on leaving, the child is gone.

    Args:
      command: its command line.
      log: its stderr is appended to this file, up to a limit; the lines that may be shown are among the events.
      lock: descriptor of the job's lock, which the child inherits.
      data_sets_dir: folder of the data sets, which the child gets as ``ZETADP_DATA_SETS_DIR``; None if there is none.
      uploaded_dir: folder of the data sets made from uploads, which it gets as ``ZETADP_UPLOADED_DIR``.
      accelerators: the numbers or ids of the accelerators that the child may see; None for those that the worker sees.
      team: the place of this machine among those that share the training; None if it is the only one.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        lock: int,
        data_sets_dir: Path | None,
        accelerators: str | None,
        uploaded_dir: Path | None = None,
        team: TeamPlace | None = None,
    ) -> None:
        environment = child_environment(os.environ, data_sets_dir, uploaded_dir)
        if accelerators is not None:
            environment[VISIBLE] = accelerators
        if team is not None:
            environment[TEAM_VARIABLE] = team.model_dump_json()
        self._process = subprocess.Popen(  # noqa: S603 (our own command line; nothing of a request is in it)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=(lock,),
            start_new_session=True,  # Ctrl-C is for the worker, which then stops its child in good order
        )
        assert self._process.stdout is not None  # stdout=PIPE
        assert self._process.stderr is not None  # stderr=PIPE
        self._output: queue.SimpleQueue[ChildEvent | None] = queue.SimpleQueue()
        self._readers = [
            # Each in a copy of this context, which says in every line of the worker's log whose process it is.
            threading.Thread(target=copy_context().run, args=(_read_events, self._process.stdout, self._output), daemon=True),
            threading.Thread(target=copy_context().run, args=(_read_log, self._process.stderr, log, self._output), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._outputs_open = len(self._readers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether it has ended and all its output was read."""
        if self._process.poll() is None:
            return False
        self.kill()  # whatever it started and left behind still holds the pipe
        return self._outputs_open == 0

    def events(self, timeout_seconds: float) -> list[ChildEvent]:
        """Its events since the last call; waits at most ``timeout_seconds`` for the first."""
        if self._outputs_open == 0:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_seconds)
            return []
        events: list[ChildEvent] = []
        with suppress(queue.Empty):
            output = self._output.get(timeout=timeout_seconds)
            while True:
                if output is None:
                    self._outputs_open -= 1
                else:
                    events.append(output)
                output = self._output.get_nowait()
        return events

    def stop(self) -> None:
        """Ask it to write a checkpoint and to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and its own children at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        """Its exit code; negative for the signal that killed it. Waits for its end."""
        return self._process.wait()


def _read_events(pipe: IO[bytes], output: queue.SimpleQueue[ChildEvent | None]) -> None:
    try:
        with pipe:
            for line in pipe:
                if (event := _parsed(line)) is not None:
                    output.put(event)
    finally:
        output.put(None)  # whatever happened: nobody would ever find that the child has ended


def _read_log(pipe: IO[bytes], log: Path, output: queue.SimpleQueue[ChildEvent | None]) -> None:
    lines = LogLines()
    try:
        with pipe, ExitStack() as stack:
            keep = _keeper(log, stack)
            while line := pipe.readline(LONGEST_READ):
                keep = keep if keep(line) else _drop
                for safe in lines.safe(line.decode("utf-8", "replace")):
                    output.put(Logged(line=safe))
            for safe in lines.end():
                output.put(Logged(line=safe))
    finally:
        output.put(None)  # as above


def _keeper(log: Path, stack: ExitStack) -> Callable[[bytes], bool]:
    """Appends to the log; False once it is full or can't be written: the child's work matters more than its log."""
    try:
        file = stack.enter_context(log.open("ab", buffering=0))
        room = max(0, LARGEST_LOG - file.tell())
    except OSError as error:
        _log.warning("training_log_not_kept", error=type(error).__name__)
        return _drop

    def keep(line: bytes) -> bool:
        nonlocal room
        try:
            room -= file.write(line[:room])
        except OSError as error:
            _log.warning("training_log_not_kept", error=type(error).__name__)
            return False
        return room > 0

    return keep


def _drop(_line: bytes) -> bool:
    return False


def _parsed(line: bytes) -> TrainingEvent | None:
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        # Something printed by a library. Its text could hold data, so only its length is logged.
        _log.warning("training_line_ignored", length=len(line))
        return None
