r"""``backup`` and ``restore``: directly on the service's machine, the first also while it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from zetadp.app.cli.console import AsJson, Exit, clear_errors, error, fail, out, print_json, read_settings
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.operations.archive import BackupUnusable, LedgerEnd
from zetadp.app.operations.backup import BackedUp, back_up, note_backup
from zetadp.app.operations.restore import WARNINGS, restore

PIPE = "-"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(backup)
    app.command(name="restore")(restore_backup)


def backup(
    file: Annotated[Path, typer.Argument(help="A file that doesn't exist yet, or - for standard output.", allow_dash=True)],
    job_files: Annotated[bool, typer.Option("--job-files/--no-job-files", help="Include jobs' checkpoints, logs and artifacts.")] = True,
    as_json: AsJson = False,
) -> None:
    """Write a backup: database, keys, manifests, uploads, job folders. The service may keep running. Encrypt it: it holds signing keys."""
    settings = read_settings()
    if not settings.data_dir.is_dir():
        fail(f"ZETADP_DATA_DIR must be the service's data folder, got {str(settings.data_dir)!r}, which isn't there", Exit.USAGE)
    database = Database(settings)
    try:
        with clear_errors():
            if str(file) == PIPE:
                done = back_up(settings, database, sys.stdout.buffer, job_files=job_files)
                sys.stdout.buffer.flush()
            else:
                done = _to_file(settings, database, file, job_files=job_files)
            note_backup(database, done)
    except BackupUnusable as refusal:
        fail(str(refusal), Exit.FAILED)
        raise AssertionError from refusal  # fail() leaves
    finally:
        database.close()
    if as_json and str(file) != PIPE:
        print_json(done)
        return
    error.print(f"{done.rows} rows and {done.files} files were backed up.", markup=False)
    for ledger in done.ledgers:
        error.print(_described(ledger), markup=False)
    error.print(
        "It holds the signing keys, secrets of webhooks and data of tenants: keep it encrypted, away from the service.", style="yellow"
    )


def restore_backup(
    file: Annotated[Path, typer.Argument(help="The backup, or - for standard input.", allow_dash=True)],
    into: Annotated[Path, typer.Option(help="The new data folder: empty or not yet existing.")],
    continue_jobs: Annotated[
        bool,
        typer.Option("--continue-jobs", help="Queue unfinished jobs instead of pausing them. Only if nothing of them is left."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup, all of it or nothing: into the database of ZETADP_DATABASE_URL, which must be empty, or else into the folder.

    What happened after the backup is forgotten, spent budget too: read what it prints.
    """
    settings = read_settings()
    try:
        with clear_errors():
            if str(file) == PIPE:
                done = restore(sys.stdin.buffer, settings, into, jobs_go_on=continue_jobs)
            else:
                with file.open("rb") as source:
                    done = restore(source, settings, into, jobs_go_on=continue_jobs)
    except BackupUnusable as refusal:
        fail(str(refusal), Exit.FAILED)
        raise AssertionError from refusal  # fail() leaves
    if as_json:
        print_json(done)
    else:
        out.print(f"restored into {into}: {done.rows} rows, {done.certificates} certificates with valid signatures", markup=False)
        out.print(f"ledgers, each sound, with its last entry ({len(done.ledgers)}):", markup=False)
        for ledger in done.ledgers:
            out.print(f"  {_described(ledger)}", markup=False)
        state = "queued" if continue_jobs else "paused"
        out.print(f"unfinished jobs, now {state} ({len(done.unfinished_jobs)}): {', '.join(done.unfinished_jobs)}", markup=False)
    error.print(f"\nTHIS IS THE SERVICE OF {done.made}. Everything later is lost:", style="red", markup=False)
    for warning in WARNINGS:
        error.print(f"* {warning}", style="red", markup=False)


def _to_file(settings: Settings, database: Database, file: Path, *, job_files: bool) -> BackedUp:
    """The whole backup under its name, or nothing."""
    if file.exists():
        raise BackupUnusable(f"expected a file that isn't there yet, got {str(file)!r}")
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out_file:
            done = back_up(settings, database, out_file, job_files=job_files)
            out_file.flush()
            os.fsync(out_file.fileno())
        os.link(unfinished, file)  # which replaces nothing
    finally:
        unfinished.unlink(missing_ok=True)
    return done


def _described(ledger: LedgerEnd) -> str:
    return f"{ledger.tenant}/{ledger.name} ({ledger.ledger}): entry {ledger.entries} of {ledger.time:%Y-%m-%d %H:%M:%S} UTC, {ledger.head}"
