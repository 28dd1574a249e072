r"""The command line, ``zetadp``: the service's processes, jobs, certificates, calculators, ledgers, data and keys."""

from __future__ import annotations

from typing import Annotated

import typer

from zetadp.app.cli.exits import EXIT_CODES
from zetadp.app.cli.listed import ListedGroup, list_commands
from zetadp.version import VERSION

app = typer.Typer(
    name="zetadp",
    cls=ListedGroup,
    help="Privacy accounting, noise calibration and private training with certificates.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
list_commands(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"zetadp {VERSION}")
        raise typer.Exit


@app.callback()
def _general(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line and exit with its code."""
    app()


__all__ = ["app", "main"]
