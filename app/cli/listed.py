r"""The list of commands that ``--help`` prints, and a group that imports a command's module only when the command is called.

Importing all modules of commands takes seconds, while ``--help`` needs only one line of each, which is given here. A test compares every
line with the help of the command itself.
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
    "processes": {
        "serve": "Run the REST service and print the address of its documentation.",
        "worker": "Run one worker. It trains queued jobs, one at a time, each in its own process.",
        "launcher": "Run the launcher: it starts a worker for each queued job where its resources are (ZETADP_LAUNCHER).",
        "demo": "Train a small complex network on handwritten digits with differential privacy, end to end, and check its certificate.",
    },
    "alive": {
        "alive": "Tell whether a worker or a launcher of this machine is alive: one that tried to renew its lease of late. The exit code "
        "says it.",
    },
    "recipes": {
        "recipes": "List the experiments that are ready to run: what their papers printed, what is proven, and whether their "
        "data are available.",
    },
    "follow": {
        "submit": "Submit a training job: SUBMISSION is a JSON file like the body of POST /v1/jobs. Or name a recipe.",
        "status": "Print one job's state, progress and epsilon spent.",
        "watch": "Follow a job to its end, with the epsilon spent so far.",
        "cancel": "Cancel a job; what it has released so far stays spent.",
    },
    "control": {
        "pause": "Stop a job at a checkpoint until you resume it.",
        "resume": "Continue a paused job from its checkpoint.",
        "retry": "Run a failed or cancelled job again from its checkpoint; what it released stays spent.",
        "logs": "Follow a job's log to its end, restricted to lines that can't quote data.",
        "label": "Replace a job's labels with these.",
        "hardware": "List the live workers, what they run on, and whether they are busy.",
    },
    "local": {
        "train": "Run FILE, a Python program that calls zetadp.train, and show its progress. After Ctrl-C the same command goes on.",
        "gpu-selftest": "Compare what a device computes with known answers, the processor's and float64's: cipher, noise, products, sums.",
        "tune": "Try settings on public data, in this process, and tell what a private selection among them would cost instead.",
    },
    "certify": {
        "certificate": "Save a job's certificate, model and spec to a folder, with the service's public keys, the proofs that it and its "
        "plan are in\nits log, and the list of revoked keys; print the certificate in words.",
        "verify": "Check certificates offline: signature, log, revoked keys, digests of the files next to them, and recomputed figures.",
        "report": "Write a report for an evaluator, offline: factors and hazards of NIST SP 800-226, answered or marked open, and the "
        "certificate.",
        "noise-key": "Open the noise key of a job, on the service's machine, for an auditor. The job's guarantee doesn't hold against "
        "whoever has it.",
        "rerun": "Repeat a certified training with its opened noise key, where its data are, and compare every release to the bit.",
        "certificate-page": "Write a certificate as a page or PDF, offline. This checks its signature; `verify` also recomputes its "
        "figures.",
    },
    "questions": {
        "epsilon": "What epsilon has DP-SGD, or one Gaussian release, with this noise?",
        "noise": "What noise multiplier does DP-SGD, or one Gaussian release, need for this epsilon?",
    },
    "calculate": {
        "profile": 'What guarantee does an event give? EVENT is a JSON file like the "event" of POST /v1/profiles.',
        "calibrate": "How much noise does a guarantee need? Or how much sampling, how many steps, how large a clipping bound does it "
        "allow?",
    },
    "backup": {
        "backup": "Write a backup: database, keys, manifests, uploads, job folders. The service may keep running. Encrypt it: it "
        "holds signing keys.",
        "restore": "Restore a backup, all of it or nothing: into the database of ZETADP_DATABASE_URL, which must be empty, or else into "
        "the folder.",
    },
    "certificates": {
        "annex": "Write the annex of a data protection assessment, offline, in plain words; and, if asked, an entry for the registry of "
        "deployments.",
        "certificate-keys": "List, rotate and revoke the keys that sign certificates, on the service's machine.",
        "log": "The log of certificates: keep a head and check that the log only grew.",
        "witness": "Run a witness of logs: it signs a log's head if the log only grew, and never a second history.",
    },
    "ledger": {"ledger": "Privacy budgets: reserve, commit, release, and check the history."},
    "federation": {"federation": "Federations over Flower or NVFLARE: keys, proposals, a site, its statements."},
    "data": {"data": "Upload files, make data sets from them, list and delete both."},
    "keys": {"keys": "Make, list, rotate and revoke keys, directly on this machine's database."},
    "operations": {"operations": "Dashboard, alerts, and deletion after the retention time."},
}
"""Modules of this package, the commands and groups of commands that each registers, and the first paragraph of their help."""


@final
class ListedGroup(TyperGroup):
    """Replaces a listed entry with the command itself once it is called."""

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
    import_module(f"zetadp.app.cli.{module}").register(own)
    return dict(get_group(own).commands)


def _listed_only() -> None:
    raise AssertionError  # ListedGroup replaces it before it is called
