r"""``alive``: the health check of workers and launchers, for containers and service managers."""

from __future__ import annotations

import typer

from zetadp.app.cli.console import Exit, fail, out, read_settings
from zetadp.app.worker.heartbeat import last_beat_seconds, patience_seconds


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command()(alive)


def alive() -> None:
    """Tell whether a worker or a launcher of this machine is alive: one that tried to renew its lease of late. The exit code says it.

    It asks no database: a worker whose database is away is alive, and goes on with its training.
    """
    settings = read_settings()
    passed = last_beat_seconds(settings)
    if passed is None:
        fail("no worker or launcher of this machine has run on this data folder", Exit.FAILED)
    elif passed > patience_seconds(settings):
        fail(f"the last sign of life is {passed:.0f} s old, expected at most {patience_seconds(settings):.0f} s", Exit.FAILED)
    else:
        out.print(f"alive, by a sign of {passed:.0f} s ago", markup=False)
