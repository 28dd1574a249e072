r"""``operations``: what an operator gives to Prometheus and Grafana, and what is deleted after its time."""

from __future__ import annotations

import sys
from importlib.resources import files

import typer

commands = typer.Typer(
    name="operations", help="Run the service: dashboard, alerts, and what is deleted after its time.", no_args_is_help=True
)


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


def _print(name: str) -> None:
    sys.stdout.write((files("app") / "operations" / name).read_text(encoding="utf-8"))
