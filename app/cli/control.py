r"""``pause``, ``resume``, ``retry``, ``logs``, ``label`` and ``hardware``: controlling jobs, and the workers that run them."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from zetadp.app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, Key, clear_errors, fail, out, print_json
from zetadp.app.cli.follow import JobId, print_job
from zetadp.app.client import Client
from zetadp.app.jobs.resources import LabelsChange
from zetadp.app.kit.field_errors import field_errors, summary


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (pause, resume, retry, logs, label, hardware):
        app.command()(command)


def pause(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Stop a job at a checkpoint until you resume it."""
    with clear_errors(), Client(address, key) as client:
        print_job(client.pause(job_id), as_json=as_json)


def resume(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Continue a paused job from its checkpoint."""
    with clear_errors(), Client(address, key) as client:
        print_job(client.resume(job_id), as_json=as_json)


def retry(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Run a failed or cancelled job again from its checkpoint; what it released stays spent."""
    with clear_errors(), Client(address, key) as client:
        print_job(client.retry(job_id), as_json=as_json)


def logs(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Follow a job's log to its end, restricted to lines that can't quote data."""
    with clear_errors(), Client(address, key) as client:
        for record in client.log(job_id):
            if as_json:
                print_json(record, indent=None)
            elif record.data.event == "log":
                out.print(f"{record.time:%Y-%m-%d %H:%M:%S}  {record.data.line}", markup=False)


def label(
    job_id: JobId,
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="All labels of the job from now on; none removes all.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Replace a job's labels with these."""
    pairs = [text.partition("=") for text in labels or []]
    for name, sign, _ in pairs:
        if not sign:
            fail(f"label: expected NAME=VALUE, got {name!r}", Exit.USAGE)
    try:
        change = LabelsChange(labels={name: value for name, _, value in pairs})
    except ValidationError as invalid:
        fail("label: " + summary(field_errors(invalid.errors(), {})), Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
    with clear_errors(), Client(address, key) as client:
        print_job(client.label(job_id, change.labels), as_json=as_json)


def hardware(address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """List the live workers, what they run on, and whether they are busy."""
    with clear_errors(), Client(address, key) as client:
        found = client.hardware()
        if as_json:
            print_json(found)
            return
        for worker in found.workers:
            doing = ("busy" if worker.job is None else f"job {worker.job}") if worker.is_busy else "idle"
            out.print(f"{worker.id}  {worker.device}  {worker.hardware}  {doing if worker.alive else 'silent'}", markup=False)
