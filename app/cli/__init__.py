r"""The command line, ``python -m app``: the service's processes, jobs, certificates, calculators, ledgers, data and keys."""

from __future__ import annotations

import typer

from zetadp.app.cli.exits import EXIT_CODES
from zetadp.app.cli.listed import ListedGroup, list_commands

app = typer.Typer(
    name="zetadp",
    cls=ListedGroup,
    help="Privacy accounting, noise calibration and private training with certificates.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
list_commands(app)


def main() -> None:
    """Run the command line and exit with its code."""
    app()


__all__ = ["app", "main"]
