r"""What a cluster of the tests starts as ``zetadp worker``: the real worker, whose training process is a stand-in unless told otherwise.

python tests/app/launched.py fake|real --job ID ...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import typer

from tests.app import fake_child
from zetadp.app.cli import processes
from zetadp.app.worker import process


def stand_in(workdir: Path) -> list[str]:
    return [sys.executable, "-S", "-E", fake_child.__file__, str(workdir), str(os.getpid())]


def main() -> None:
    if sys.argv.pop(1) == "fake":
        process.main.__defaults__ = (stand_in, *process.main.__defaults__[1:])  # pyright: ignore[reportOptionalSubscript]
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(processes.worker)
    app()


if __name__ == "__main__":
    main()
