r"""``train``, ``gpu-selftest`` and ``tune``: trainings and checks in this process, without a service."""

from __future__ import annotations

import typer

from zetadp.app.cli.local import train, tune


def register(app: typer.Typer) -> None:
    """Add these commands."""
    train.register(app)
    tune.register(app)
