r"""A launcher in a process of its own, whose workers are those of the tests."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.app import launched
from tests.app.forked import PRELOADED
from tests.app.jobs_harness import Worker, environment
from tests.app.preparing_harness import preparing_here
from zetadp.app.kit.settings import Settings
from zetadp.app.launching import process


def for_launching(of: Settings, launcher: str, child: str = "fake", **changes: object) -> Settings:
    """The settings of a service whose launcher looks often and starts the tests' workers."""
    command = f"{sys.executable} {launched.__file__} {child}"
    return of.model_copy(update={"launcher": launcher, "launcher_seconds": 0.2, "launch_command": command, **changes})


@contextmanager
def launching(of: Settings, variables: Mapping[str, str]) -> Generator[Worker]:
    """A launcher. On leaving, it is gone."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    started = context.Process(target=launch, args=({**variables, **environment(of)},), daemon=True)
    started.start()
    worker = Worker(started, of.data_dir / "launcher.log")
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def launch(variables: dict[str, str]) -> None:
    """A launcher's life, in a process of its own."""
    os.environ.clear()
    os.environ.update(variables)
    of = Settings()
    log = os.open(of.data_dir / "launcher.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    raise SystemExit(process.main(of, preparing_here(of.made_data_sets_dir)))


def logs_of(of: Settings) -> str:
    """What the launcher and its workers have written, for the message of a failure."""
    files = [of.data_dir / "launcher.log", *sorted((of.data_dir / "launches").glob("*.log"))]
    return "\n".join(f"{file.name}: {file.read_text()[-3000:]}" for file in files if Path(file).exists())
