r"""Takes machines of a Slurm cluster away from workers, and counts what is lost.

    python -m benchmarks.preemptions [--preemptions 100] [--real] [--seed 0]

A whole cluster of Slurm's runs on this machine (Debian's ``slurm-wlm`` and ``munge``; root), with a service and a launcher beside it. Jobs
run on its two machines; again and again urgent work takes one of them, and Slurm puts the workers there back into its queue. Every tenth
time the workers are killed instead, as if their machine had died. Afterwards every job must have ended, each certificate must state the
steps of the trajectory that was kept, and each ledger entry must have been settled once, at the price of one run.

The training process is a stand-in of the same protocol, or the real one with ``--real``.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import httpx2
from sqlalchemy import select

from benchmarks.kills import STEPS, certified_steps, kept_steps, unfinished
from tests.app.jobs_harness import serving, settings, spec, wait_until
from tests.app.launching_harness import for_launching, launching, logs_of
from tests.app.slurm_harness import MACHINES, missing, preempt, queue_of, slurm_cluster
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import JobEventRow, JobRow

JOBS_IN_HAND = 4
URGENT_SECONDS = 1.0
HARD_EVERY = 10
PATIENCE_SECONDS = 900.0


@final
@dataclass
class Tally:
    """What was counted. ``preempted`` and ``killed`` are workers that had a job in hand."""

    preempted: int = 0
    killed: int = 0
    jobs: int = 0
    states: dict[str, int] = field(default_factory=dict[str, int])
    attempts: int = 0
    wrong_steps: int = 0
    steps_run_again: int = 0
    wrong_charges: int = 0
    double_certificates: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, double or wrong."""
        return not (self.wrong_steps or self.wrong_charges or self.double_certificates) and set(self.states) == {"succeeded"}


def running(environment: dict[str, str], machine: str) -> list[str]:
    """Slurm's ids of the workers that run on this machine."""
    command = ["squeue", "--noheader", "--states=RUNNING", f"--nodelist={machine}", "--partition=low", "--format=%i"]
    # Our own words, and Slurm's commands are wherever the system has them; so below.
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603


def in_hand(database: Database) -> int:
    """How many jobs are being trained."""
    with database.reading() as session:
        return len(session.scalars(select(JobRow.id).where(JobRow.state == "running")).all())


def submitted(client: httpx2.Client, ledger: str, real: bool) -> str:
    """The id of a new job, charged to the ledger."""
    runtime: dict[str, Any] = {"checkpoint_seconds": 0.2, "threads": 1} if real else {"microbatch_size": 1, "checkpoint_seconds": 0.2}
    answer = client.post("/v1/jobs", json={"spec": spec(steps=STEPS), "runtime": runtime, "ledger": ledger})
    answer.raise_for_status()
    return str(answer.json()["id"])


def storm(
    client: httpx2.Client, database: Database, environment: dict[str, str], tally: Tally, wanted: int, chance: random.Random, real: bool
) -> None:
    """Take machines until so many workers have lost theirs; then let every job end, and count."""
    budget = {"kind": "rdp", "orders": [8.0], "values": [1e6]}
    definition = {"name": "storm", "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    answer = client.post("/v1/ledgers", json=definition)
    answer.raise_for_status()
    ledger, jobs, rounds = str(answer.json()["id"]), list[str](), 0
    while tally.preempted + tally.killed < wanted:
        while len(unfinished(database)) < JOBS_IN_HAND:
            jobs.append(submitted(client, ledger, real))
        wait_until(lambda: in_hand(database) > 0, PATIENCE_SECONDS, lambda: queue_of(environment))
        time.sleep(chance.uniform(0.2, 2.0))
        machine, rounds = chance.choice(MACHINES), rounds + 1
        hit = running(environment, machine)
        if not hit:
            continue
        if rounds % HARD_EVERY == 0:
            for one in hit:
                subprocess.run(["scancel", "--full", "--signal=KILL", one], env=environment, check=False)  # noqa: S603, S607
            tally.killed += len(hit)
        else:
            preempt(environment, URGENT_SECONDS, machine)
            wait_until(lambda hit=hit, machine=machine: not set(hit) & set(running(environment, machine)), 120.0)
            tally.preempted += len(hit)
    wait_until(lambda: not unfinished(database), PATIENCE_SECONDS, lambda: queue_of(environment))
    count(client, database, ledger, jobs, tally)


def count(client: httpx2.Client, database: Database, ledger: str, jobs: list[str], tally: Tally) -> None:
    """Look at every job."""
    tally.jobs = len(jobs)
    prices: list[str] = []
    for job_id in jobs:
        job = client.get(f"/v1/jobs/{job_id}").json()
        tally.states[job["state"]] = tally.states.get(job["state"], 0) + 1
        tally.attempts += job["attempt"]
        with database.reading() as session:
            certificates = list(session.scalars(select(CertificateRow).where(CertificateRow.job_id == job_id)))
        tally.double_certificates += len(certificates) != (job["state"] == "succeeded")
        if certificates:
            tally.wrong_steps += kept_steps(database, job_id) != certified_steps(certificates[0])
        tally.steps_run_again += run_again(database, job_id)
        found = client.get(f"/v1/ledgers/{ledger}/reservations/{job['charge']['reservation']}").json()
        tally.wrong_charges += found["state"] != "committed"
        prices.append(str(found["spent"]))
    tally.wrong_charges += len(set(prices)) - 1  # they are all the same training
    entries = client.get(f"/v1/ledgers/{ledger}").json()["head"]["number"]
    tally.wrong_charges += entries != 1 + 2 * len(jobs)  # its opening; of each job, what was reserved and what was spent


def run_again(database: Database, job_id: str) -> int:
    """Steps that were told and then run again by a later attempt, since no checkpoint had them yet."""
    query = select(JobEventRow.kind, JobEventRow.data).where(JobEventRow.job_id == job_id, JobEventRow.kind.in_(("started", "progress")))
    with database.reading() as session:
        rows = session.execute(query.order_by(JobEventRow.number)).all()
    reached = again = 0
    for kind, data in rows:
        if kind == "started":
            again += max(0, reached - data["resumed_from_step"])
            reached = data["resumed_from_step"]
        else:
            reached = data["step"]
    return again


def main() -> None:
    """Run and print; ends with 1 where anything was lost."""
    configure_logs("error")
    parser = argparse.ArgumentParser(description="Take machines of a Slurm cluster away from workers, and count what is lost.")
    parser.add_argument("--preemptions", type=int, default=100, help="workers that lose their machine with a job in hand")
    parser.add_argument("--real", action="store_true", help="train for real instead of with the stand-in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="where to keep what launcher and workers wrote")
    options = parser.parse_args()
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    tally, begun = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zetadp-preemptions-") as name, ExitStack() as stack:
        folder = Path(name)
        environment = stack.enter_context(slurm_cluster(folder / "slurm"))
        own = Settings.model_validate(dict(settings(folder / "service")) | {"stop_grace_seconds": 10.0, "shutdown_seconds": 15.0})
        # A job here may well lose its machine without a warning more often than three times: that limit is tested elsewhere.
        of = for_launching(own, "slurm", "real" if options.real else "fake", maximum_worker_deaths=100, slurm_options="--partition=low")
        client = stack.enter_context(serving(of))
        stack.enter_context(launching(of, {**os.environ, **environment}))
        database = Database(of)
        stack.callback(database.close)
        try:
            storm(client, database, environment, tally, options.preemptions, random.Random(options.seed), options.real)  # noqa: S311
        finally:
            if options.log is not None:
                options.log.write_text(f"{queue_of(environment)}\n{logs_of(of)}")
    tally.seconds = time.monotonic() - begun
    print(tally)  # noqa: T201
    raise SystemExit(0 if tally.is_clean else 1)


if __name__ == "__main__":
    main()
