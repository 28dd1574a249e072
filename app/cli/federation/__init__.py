r"""``federation``: what a coordinator and its sites do by hand. Neither needs a service."""

from __future__ import annotations

import typer

from zetadp.app.cli.federation import coordinator, rehearsal, site, statements

commands = typer.Typer(
    name="federation", help="Federations over Flower or NVFLARE: keys, proposals, a site, its statements.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (
        coordinator.key,
        coordinator.flower,
        coordinator.nvflare,
        coordinator.propose,
        rehearsal.rehearse,
        site.agree,
        site.site,
        site.status,
        statements.statements,
    ):
        commands.command()(command)
    app.add_typer(commands)
