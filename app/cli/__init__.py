r"""The command line, ``python -m app``: processes of the service, jobs, certificates, calculators, ledgers, data and keys."""

from __future__ import annotations

import typer

from app.cli import backup, calculate, certificates, certify, control, data, follow, house, keys, ledger, operations, recipes
from app.cli.console import EXIT_CODES

app = typer.Typer(
    name="zetadp",
    help="Privacy accounting, noise calibration and private training with certificates.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _module in (house, recipes, follow, control, certify, certificates, calculate, ledger, data, keys, operations, backup):
    _module.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    app()


__all__ = ["main"]
