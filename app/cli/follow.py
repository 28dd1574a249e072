r"""``submit``, ``status``, ``watch`` and ``cancel``: jobs of a running service."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from zetadp.app.cli.console import (
    DEFAULT_ADDRESS,
    Address,
    AsJson,
    Exit,
    Key,
    OptionalJsonFile,
    clear_errors,
    error,
    fail,
    out,
    print_json,
    read_json,
)
from zetadp.app.cli.recipes import recipe_submission
from zetadp.app.client import Client
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.tables.job_states import JobState
from zetadp.trainer.progress import ProgressBar, cost, metrics_line

JobId = Annotated[str, typer.Argument(help="Id of the job.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(submit)
    app.command()(status)
    app.command()(watch)
    app.command()(cancel)


def submit(
    submission: OptionalJsonFile = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe of the service instead of a file; see `recipes`.")] = None,
    changes: Annotated[
        list[str], typer.Option("--set", metavar="PATH=VALUE", help="Change the recipe, for example spec.steps=100 (repeatable).")
    ] = [],
    address: Address = DEFAULT_ADDRESS,
    follow: Annotated[bool, typer.Option("--watch", help="Follow the job to its end.")] = False,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="If sent again, you get the same job instead of a second one.")
    ] = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Submit a training job: SUBMISSION is a JSON file like the body of POST /v1/jobs. Or name a recipe."""
    with clear_errors(), Client(address, key) as client:
        if recipe is None and submission is not None and not changes:
            body = read_json(submission, JobSubmission)
        elif recipe is not None and submission is None:
            body = recipe_submission(client, recipe, changes)
        else:
            fail("submit: give a file, or a recipe with --recipe (which --set then changes)", Exit.USAGE)
            raise AssertionError  # fail() leaves
        job = client.submit(body, idempotency_key)
        if not follow:
            print_job(job, as_json=as_json)
            return
        error.print(f"job {job.id}", markup=False)
        _finish(follow_to_end(client, job.id), as_json=as_json)


def status(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Print one job's state, progress and epsilon spent."""
    with clear_errors(), Client(address, key) as client:
        print_job(client.job(job_id), as_json=as_json)


def watch(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Follow a job to its end, with the epsilon spent so far."""
    with clear_errors(), Client(address, key) as client:
        _finish(follow_to_end(client, job_id), as_json=as_json)


def cancel(job_id: JobId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Cancel a job; what it has released so far stays spent."""
    with clear_errors(), Client(address, key) as client:
        print_job(client.cancel(job_id), as_json=as_json)


def follow_to_end(client: Client, job_id: str) -> Job:
    """Show a job's progress (on stderr) until it ends; returns it then."""
    with ProgressBar(error, doing="preparing") as bar:
        for record in client.events(job_id):
            data = record.data
            if data.event != "state":
                bar.show(data)
                continue
            bar.do(str(data.state))
            if data.reason is not None:
                bar.say(data.reason)
    return client.job(job_id)


def _finish(job: Job, *, as_json: bool) -> None:
    print_job(job, as_json=as_json)
    if job.state is JobState.FAILED:
        fail(f"job {job.id} failed: {job.failure}", Exit.FAILED)
    if job.state is JobState.CANCELLED:
        fail(f"job {job.id} was cancelled", Exit.CANCELLED)


def print_job(job: Job, *, as_json: bool) -> None:
    """One job, in lines or as JSON."""
    if as_json:
        print_json(job)
        return
    out.print(f"job {job.id}  {job.state}", markup=False)
    if job.waits_for is not None:
        out.print(job.waits_for, markup=False)
    if job.progress is not None:
        spent = job.progress
        out.print(f"step {spent.step}/{spent.steps}  {cost(spent.epsilon, spent.delta, None)}", markup=False)
        for line in () if math.isinf(spent.epsilon) else job.caveats:
            out.print(f"  note: {line}", markup=False)
    if job.metrics is not None:
        out.print(metrics_line(job.metrics), markup=False)
    if job.failure is not None:
        out.print(f"why: {job.failure}", markup=False)
    if job.certificate is not None:
        out.print(f"certificate {job.certificate}", markup=False)
