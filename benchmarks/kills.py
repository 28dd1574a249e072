r"""Kills workers at random moments and counts what is lost.

    python -m benchmarks.kills [--kills 200] [--database sqlite|postgresql] [--storage folder|s3] [--real]

Three workers take jobs; at random moments one of them gets SIGKILL and is started again a little later. Afterwards every job must have
ended, each certificate must state the steps of the trajectory that was kept, no job may have two certificates, and no training process may
be left. A worker that ends by itself is started again, as a service does, and the tally says how it ended.
The training process is a stand-in of the same protocol (tests/app/fake_child.py), or the real one with ``--real``.
Workers are forked from a process that has loaded the libraries: how long Python takes for that is no matter of leases.

With ``--storage s3`` service and workers have a data folder each, as on machines of their own: what they share is a PostgreSQL database and
a bucket, of moto's server unless ``ZETADP_STORAGE_URL`` names one.

Then two figures: how long a job stands still when its worker is killed and another lives, and when its worker is started again alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import func, select

from tests.app.forked import PRELOADED
from tests.app.jobs_harness import child_pids, environment, is_alive, postgresql_server, serving, settings, spec, wait_until, work
from tests.app.s3_harness import credentials, fresh_url, s3_server
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificates import CertificateRow
from zetadp.app.tables.jobs import ExecutorRow, JobEventRow, JobRow

STEPS = 40
STEP_SECONDS = 0.05
WORKERS = ("a", "b", "c")
PAUSES = {"fake": (0.05, 1.5), "real": (0.2, 5.0)}
"""Seconds between two kills, from and to. A real training loads torch for seconds: with shorter pauses few kills would meet its steps."""
PATIENCE_SECONDS = 900.0
LOG_LINES = 40


@dataclass
class Tally:
    """What was counted."""

    kills: int = 0
    jobs: int = 0
    states: dict[str, int] = field(default_factory=dict[str, int])
    attempts: int = 0
    wrong_steps: int = 0
    double_commits: int = 0
    orphans: int = 0
    ended: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


@dataclass
class Fleet:
    """An API, its workers, and the database they share."""

    of: Settings
    client: httpx2.Client
    child: str
    workers: dict[str, BaseProcess] = field(default_factory=dict[str, BaseProcess])
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    ended: list[str] = field(default_factory=list[str])

    def machine(self, name: str) -> Settings:
        """The settings of this worker's machine: with a storage elsewhere it has a disk of its own, and the service's signing keys."""
        if not self.of.storage_url:
            return self.of
        own = self.of.data_dir.with_name(f"machine-{name}")
        if not own.exists():
            own.mkdir(mode=0o700)
            shutil.copytree(self.of.data_dir / "keys", own / "keys")
        return Settings.model_validate(self.of.model_dump() | {"data_dir": own})

    def start(self, name: str) -> None:
        """Start this worker."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        own = {**os.environ, **environment(self.machine(name)), "ZETADP_EXECUTOR_ID": name}
        self.workers[name] = context.Process(target=work, args=(own, self.child, None), daemon=True)
        self.workers[name].start()

    def kill(self, name: str, database: Database) -> None:
        """SIGKILL."""
        self.tokens[name] = registered(database).get(name, "")
        worker = self.workers.pop(name)
        worker.kill()
        worker.join()

    def restart_ended(self) -> None:
        """Start those again that ended by themselves, and note how: exit code and last line of the log that names them."""
        for name, worker in list(self.workers.items()):
            if worker.exitcode is not None:
                lines = (self.of.data_dir / "worker.log").read_text().splitlines()
                told = next((line for line in reversed(lines) if f'"{name}"' in line or f"'{name}'" in line), "nothing")
                self.ended.append(f"{name} with code {worker.exitcode}: {told}")
                self.start(name)

    def ready(self, database: Database) -> list[str]:
        """Names of the workers that have a lease of their own, not that of the process before."""
        return [name for name, token in registered(database).items() if token != self.tokens.get(name)]

    def submit(self, steps: int = STEPS, step_seconds: float = STEP_SECONDS) -> str:
        """The id of a new job."""
        # A real training ignores microbatch_size 1's meaning to the stand-in, and writes a checkpoint that often.
        runtime: dict[str, Any] = {"microbatch_size": 1, "checkpoint_seconds": step_seconds}
        if self.child == "real":
            runtime = {"checkpoint_seconds": 0.2, "threads": 1}
        answer = self.client.post("/v1/jobs", json={"spec": spec(steps=steps), "runtime": runtime})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def waits(self, what: str, condition: Callable[[], bool], database: Database, seconds: float = 60.0) -> None:
        """Wait until it is so; where it isn't, the error says what was waited for and how everything stands."""

        def holds() -> bool:
            self.restart_ended()
            return condition()

        wait_until(holds, seconds, lambda: f"{what}; {self.standing(database)}")

    def standing(self, database: Database) -> str:
        """Jobs that haven't ended, leases, processes and the last lines of the workers' log."""
        with database.reading() as session:
            rows = session.execute(select(JobRow.id, JobRow.state, JobRow.attempt, JobRow.holder).where(JobRow.finished.is_(None)))
            jobs = [f"{job_id} {state} attempt {attempt} holder {holder}" for job_id, state, attempt, holder in rows]
            leases = [
                f"{row.id} {row.token} beat {row.beat} renewed {row.renewed} job {row.job_id}"
                for row in session.scalars(select(ExecutorRow))
            ]
        processes = [f"{name} pid {worker.pid} exit code {worker.exitcode}" for name, worker in self.workers.items()]
        places = sorted({self.machine(name).data_dir for name in WORKERS})
        log = [line for place in places for line in (place / "worker.log").read_text().splitlines()[-LOG_LINES:]]
        parts = {"ended by themselves": self.ended, "jobs": jobs, "leases": leases, "tokens before": self.tokens, "processes": processes}
        return "\n".join([*(f"{name}: {part}" for name, part in parts.items()), "log:", *log])

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as the API tells it."""
        return self.client.get(f"/v1/jobs/{job_id}").json()


def registered(database: Database) -> dict[str, str]:
    """The tokens of the leases, by worker."""
    with database.reading() as session:
        return {row.id: row.token for row in session.scalars(select(ExecutorRow))}


def storm(fleet: Fleet, database: Database, kills: int, chance: random.Random) -> Tally:
    """Kill workers until there were so many kills; then let everything end, and count."""
    tally, begun = Tally(), time.monotonic()
    jobs: list[str] = []
    while tally.kills < kills:
        while len(unfinished(database)) < 2 * len(WORKERS):
            jobs.append(fleet.submit())
        time.sleep(chance.uniform(*PAUSES[fleet.child]))
        fleet.restart_ended()
        if ready := fleet.ready(database):
            name = chance.choice(sorted(ready))
            fleet.kill(name, database)
            tally.kills += 1
            fleet.start(name)
    fleet.waits("every job has ended", lambda: not unfinished(database), database, PATIENCE_SECONDS)
    count(fleet, database, jobs, tally)
    tally.ended = fleet.ended
    tally.seconds = time.monotonic() - begun
    return tally


def unfinished(database: Database) -> list[str]:
    """Ids of the jobs that have not ended."""
    with database.reading() as session:
        return list(session.scalars(select(JobRow.id).where(JobRow.finished.is_(None))))


def count(fleet: Fleet, database: Database, jobs: Sequence[str], tally: Tally) -> None:
    """Look at every job."""
    tally.jobs = len(jobs)
    for job_id in jobs:
        job = fleet.job(job_id)
        tally.states[job["state"]] = tally.states.get(job["state"], 0) + 1
        tally.attempts += job["attempt"]
        with database.reading() as session:
            certificates = list(session.scalars(select(CertificateRow).where(CertificateRow.job_id == job_id)))
            ends = session.scalar(
                select(func.count()).where(
                    JobEventRow.job_id == job_id, JobEventRow.kind == "state", JobEventRow.data["state"].as_string() == "succeeded"
                )
            )
        succeeded = job["state"] == "succeeded"
        tally.double_commits += (len(certificates) != succeeded) + (ends != succeeded)
        if succeeded:
            tally.wrong_steps += kept_steps(database, job_id) != certified_steps(certificates[0])
        tally.orphans += sum(is_alive(pid) for pid in child_pids(fleet.of, job_id))


def certified_steps(certificate: CertificateRow) -> int:
    """Steps that the certificate says were released."""
    return int(json.loads(b64decode(str(certificate.envelope["payload"])))["predicate"]["run"]["steps_released"])


def kept_steps(database: Database, job_id: str) -> int:
    """Steps of the trajectory that was kept, from the history: each attempt adds what it did after the step it was resumed from."""
    with database.reading() as session:
        rows = session.execute(
            select(JobEventRow.kind, JobEventRow.data)
            .where(JobEventRow.job_id == job_id, JobEventRow.kind.in_(("started", "progress", "checkpoint")))
            .order_by(JobEventRow.number)
        ).all()
    reached = 0
    for kind, data in rows:
        if kind == "started":
            if data["resumed_from_step"] > STEPS:
                return -1
            reached = data["resumed_from_step"]
        elif kind == "progress":
            if data["step"] <= reached:
                return -1  # a step twice in one attempt
            reached = data["step"]
    return reached


def standstills(fleet: Fleet, database: Database, repetitions: int, *, alone: bool) -> list[float]:
    """Seconds from the kill of a job's worker to the job's next start: by the same worker started again, where it is ``alone``."""
    found: list[float] = []
    for _ in range(repetitions):
        job_id = fleet.submit(steps=4000, step_seconds=0.05)
        fleet.waits(f"progress of {job_id}", lambda job_id=job_id: fleet.job(job_id)["progress"] is not None, database)
        with database.reading() as session:
            name = session.scalar(select(ExecutorRow.id).where(ExecutorRow.job_id == job_id))
        assert name is not None
        time.sleep(random.uniform(0.0, 1.0))  # noqa: S311 (anywhere between two beats)
        fleet.kill(name, database)
        killed = time.time()
        if alone:
            fleet.start(name)
        fleet.waits(f"second start of {job_id}", lambda job_id=job_id: _starts(database, job_id) == 2, database)
        with database.reading() as session:
            times = session.scalars(
                select(JobEventRow.time).where(JobEventRow.job_id == job_id, JobEventRow.kind == "started").order_by(JobEventRow.number)
            ).all()
        found.append(times[1].timestamp() - killed)
        fleet.client.post(f"/v1/jobs/{job_id}/cancel")
        fleet.waits(f"cancellation of {job_id}", lambda job_id=job_id: fleet.job(job_id)["state"] == "cancelled", database)
        if not alone:
            fleet.start(name)
            fleet.waits("every worker has a lease again", lambda: len(fleet.ready(database)) == len(WORKERS), database)
    return found


def _starts(database: Database, job_id: str) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).where(JobEventRow.job_id == job_id, JobEventRow.kind == "started")) or 0


@contextmanager
def bucket(storage: str) -> Generator[str]:
    """The URL of a storage elsewhere, in whose environment this process is until the end; empty for a folder."""
    if storage == "folder":
        yield ""
    elif found := os.environ.get("ZETADP_STORAGE_URL"):
        yield found
    else:
        with s3_server() as endpoint, credentials(endpoint):
            yield fresh_url()


def run(which: str, storage: str, kills: int, repetitions: int, child: str, seed: int) -> Tally:
    """One database: the storm, then the two figures."""
    with (
        tempfile.TemporaryDirectory(prefix="zetadp-kills-") as folder,
        postgresql_server() if which == "postgresql" else nullcontext(None) as url,
        bucket(storage) as storage_url,
        ExitStack() as stack,
    ):
        # A job here may well lose its worker more often than three times: that limit is tested elsewhere.
        changes = {
            "database_url": url,
            "storage_url": storage_url,
            "maximum_worker_deaths": 100,
            "lease_seconds": 6.0,
            "resubmit_seconds": 1.0,
        }
        os.environ["FAKE_CHILD_PIDS"] = str(Path(folder) / "pids")
        (Path(folder) / "pids").mkdir()
        of = Settings.model_validate(settings(Path(folder) / "service").model_dump() | changes)
        of.data_dir.mkdir(mode=0o700)
        jwks(of)  # makes the service's signing key, which its workers get a copy of
        client = stack.enter_context(serving(of))
        database = Database(of)
        stack.callback(database.close)
        fleet = Fleet(of, client, child)
        for name in WORKERS:
            fleet.start(name)
        fleet.waits("every worker has a lease", lambda: len(fleet.ready(database)) == len(WORKERS), database, 120.0)
        tally = storm(fleet, database, kills, random.Random(seed))  # noqa: S311 (moments)
        print(f"{which}, {storage}: {tally}", flush=True)  # noqa: T201
        if repetitions:
            fleet.waits("every worker has a lease", lambda: len(fleet.ready(database)) == len(WORKERS), database, 120.0)
            others = standstills(fleet, database, repetitions, alone=False)
            for name in WORKERS[1:]:
                fleet.kill(name, database)
            fleet.waits("one worker is left", lambda: len(registered(database)) == 1, database)
            again = standstills(fleet, database, repetitions, alone=True)
            for what, seconds in (("another worker alive", others), ("restarted", again)):
                figures = f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s of {len(seconds)}"
                print(f"{which}: resume, {what}: {figures}", flush=True)  # noqa: T201
        return tally


def main() -> None:
    """Run and print; ends with 1 where anything was lost."""
    configure_logs("error")
    parser = argparse.ArgumentParser(description="Kill workers at random moments and count what is lost.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=10, help="kills for each of the two figures")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    parser.add_argument("--storage", choices=("folder", "s3"), default="folder")
    parser.add_argument("--real", action="store_true", help="train for real instead of with the stand-in")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tallies = [
        run(which, options.storage, options.kills, options.repetitions, "real" if options.real else "fake", options.seed)
        for which in options.database or (("sqlite", "postgresql") if options.storage == "folder" else ("postgresql",))
    ]
    lost = [tally for tally in tallies if tally.wrong_steps or tally.double_commits or tally.orphans or set(tally.states) != {"succeeded"}]
    raise SystemExit(1 if lost else 0)


if __name__ == "__main__":
    main()
