r"""Commands in processes that are forked from one that has loaded the service: a start takes milliseconds of processor time, not seconds.

For tests that aren't about the start itself. A command has its own standard input, output, errors, environment and exit code, as if it
had been started by ``subprocess``.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import final

from zetadp.app import cli

PRELOADED = ["tests.app.preloaded"]
"""What every process of the tests that is forked finds loaded. All of them share one fork server, whoever starts it."""

PATIENCE_SECONDS = 120.0
"""No command of the tests takes longer, however busy the machine is."""
STREAMS = ("stdin", "stdout", "stderr")


def run_command(*arguments: str, text: str = "", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What ``zetadp`` does with these arguments, once it has ended."""
    with tempfile.TemporaryDirectory(prefix="zetadp-command-") as name:
        command = Command(Path(name), *arguments, text=text, env=env)
        try:
            code = command.wait()
        finally:
            command.kill()
        return subprocess.CompletedProcess(arguments, code, command.stdout, command.stderr)


@final
class Command:
    """A command that runs. Its streams are files of a folder.

    Args:
      folder: where it keeps them.
      arguments: those after ``zetadp``.
      text: its standard input.
      env: its environment; that of this process if None.
      program: what runs with these arguments, importable by name.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        text: str = "",
        env: Mapping[str, str] | None = None,
        program: Callable[[], None] = cli.main,
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stdin").write_text(text, encoding="utf-8")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        variables = dict(os.environ if env is None else env)
        self._process: BaseProcess = context.Process(target=_run, args=(program, arguments, folder, variables), daemon=True)
        self._process.start()

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self._written("stdout")

    @property
    def stderr(self) -> str:
        """What it has complained of so far."""
        return self._written("stderr")

    def first_line(self) -> str:
        """The first line of its output, once it is there; fails where it ends without one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "\n" not in self.stdout:
            assert self._process.exitcode is None, f"it ended without a line: {self.stderr}"
            assert time.monotonic() < deadline, "it wrote no line"
            time.sleep(0.01)
        return self.stdout.partition("\n")[0]

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it has ended; negative for the signal that ended it."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"it still runs after {timeout} s: {self.stdout} {self.stderr}"
        return self._process.exitcode

    @property
    def is_running(self) -> bool:
        return self._process.exitcode is None

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """At once, and wait for its end. Nothing happens where it has ended."""
        self._process.kill()
        self._process.join()

    def _written(self, stream: str) -> str:
        path = self._folder / stream
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _run(program: Callable[[], None], arguments: tuple[str, ...], folder: Path, variables: Mapping[str, str]) -> None:
    """A command's life, in a process of its own."""
    os.environ.clear()
    os.environ.update(variables)
    for number, name in enumerate(STREAMS):
        file = os.open(folder / name, os.O_CREAT | (os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY))
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (for as long as the process lives)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["zetadp", *arguments]
    program()
