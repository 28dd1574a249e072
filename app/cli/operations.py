r"""``operations``: files for Prometheus and Grafana, and the deletion of what is past its retention time."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Annotated

import typer

from zetadp.app.cli.console import AsJson, clear_errors, out, print_json, read_settings
from zetadp.app.jobs.queue import JobQueue
from zetadp.app.kit.database import Database, now
from zetadp.app.operations.retention import Retention

commands = typer.Typer(name="operations", help="Dashboard, alerts, and deletion after the retention time.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(commands)


@commands.command()
def dashboard() -> None:
    """Print the Grafana dashboard, as JSON to import."""
    _print("grafana.json")


@commands.command()
def alerts() -> None:
    """Print the alerting rules for Prometheus, as YAML."""
    _print("alerts.yaml")


@commands.command()
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what is older than the ZETADP_KEEP_... settings allow, on this machine. The service does the same every hour.

    Certificates and entries of ledgers are never deleted.
    """
    settings = read_settings()
    database, queue = Database(settings), JobQueue(settings)
    try:
        with clear_errors():
            database.migrate()
            removed = Retention(settings, database, queue).clean(now(), is_rehearsal=dry_run)
    finally:
        queue.close()
        database.close()
    if as_json:
        print_json(removed)
        return
    out.print("would be deleted:" if dry_run else "deleted:", markup=False)
    for name, count in removed.model_dump().items():
        out.print(f"  {name.replace('_', ' ')}: {count}", markup=False)


def _print(name: str) -> None:
    sys.stdout.write((files("zetadp.app") / "operations" / name).read_text(encoding="utf-8"))
