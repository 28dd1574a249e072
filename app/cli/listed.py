r"""The list of commands that ``--help`` prints, and a group that imports a command's module only when the command is called.

All modules of commands together take seconds to import, and ``--help`` needs one line of each: it stands here. A test holds every line
against the help of the command itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, final

import typer
from typer.core import TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    # Typer's own copy of Click, which it gives no public name.
    from typer._click import Command, Context

LISTED: dict[str, dict[str, str]] = {
    "house": {
        "serve": "Run the REST service, and print where its documentation is.",
        "worker": "Run one worker: it trains queued jobs, one at a time, each in a process of its own.",
        "demo": "Train a small complex network on handwritten digits with differential privacy, end to end, and check its certificate.",
    },
    "recipes": {
        "recipes": "List the experiments that are ready to run: what their papers printed, what is proved, and whether their data sets are "
        "here.",
    },
    "follow": {
        "submit": "Submit a training job: SUBMISSION is a JSON file like the body of POST /v1/jobs; or name a recipe.",
        "status": "State, progress and epsilon spent of one job.",
        "watch": "Follow a job to its end, with the epsilon spent so far.",
        "cancel": "Cancel a job; what it has released so far stays spent.",
    },
    "control": {
        "pause": "Stop a job at a checkpoint, until it is resumed.",
        "resume": "Let a paused job go on from its checkpoint.",
        "retry": "Run a failed or cancelled job again, from its checkpoint; what it released stays spent.",
        "logs": "Follow what may be told of a job's log, to its end: lines that can't quote data.",
        "label": "Give a job these labels, and no others.",
        "hardware": "List the live workers, what they run on, and whether they are busy.",
    },
    "certify": {
        "certificate": "Save a job's certificate, model and spec to a folder, with the service's public keys, the proof that the "
        "certificate is in its log,\nand the list of revoked keys; print the certificate in words.",
        "verify": "Check a certificate offline: signature, log, revoked keys, digests of the files beside it, and its figures, recomputed.",
        "certificate-page": "Write a certificate as a page or a PDF to read, offline. Its signature is checked; `verify` also recomputes "
        "its figures.",
    },
    "calculate": {
        "profile": 'What guarantee does an event give? EVENT is a JSON file like the "event" of POST /v1/profiles.',
        "calibrate": "How much noise does a guarantee need, or how much sampling, how many steps, how large a clipping bound does it "
        "allow?",
    },
    "backup": {
        "backup": "Write a backup: database, keys, manifests, uploads, job folders. The service may run meanwhile. Encrypt it: it holds "
        "signing keys.",
        "restore": "Bring a backup back, all of it or nothing. With ZETADP_DATABASE_URL into that database, which must be empty; else into "
        "the folder.",
    },
    "certificates": {
        "certificate-keys": "List, rotate and revoke the keys that sign certificates, on the service's machine.",
        "log": "The log of certificates: keep a head, and check that it only grew.",
    },
    "ledger": {"ledger": "Privacy budgets: reserve, commit, release, and check the history."},
    "data": {"data": "Upload files, make data sets of them, list and delete both."},
    "keys": {"keys": "Make, list, rotate and revoke keys, directly on this machine's database."},
    "operations": {"operations": "Dashboard, alerts, and what is deleted after its time."},
}
"""Modules of this package, the commands and groups of commands that each registers, and the first paragraph of their help."""


@final
class ListedGroup(TyperGroup):
    """Puts a command itself in the place of what is listed of it, once it is called."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        for module, commands in LISTED.items():
            if args[0] in commands:
                self.commands.update(registered(module))
        return super().resolve_command(ctx, args)


def list_commands(app: typer.Typer) -> None:
    """Add every command by its name and help alone; ``app`` is made with ``cls=ListedGroup``."""
    for commands in LISTED.values():
        for name, text in commands.items():
            app.command(name, help=text)(_listed_only)


def registered(module: str) -> dict[str, Command]:
    """The commands themselves, by name, that this module of the package registers."""
    own = typer.Typer()
    import_module(f"app.cli.{module}").register(own)
    return dict(get_group(own).commands)


def _listed_only() -> None:
    raise AssertionError  # ListedGroup replaces it before it is called
