r"""The demonstration: starts a service and a worker, trains privately over HTTP, and verifies the certificate offline."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from zetadp.app.cli.certify import CERTIFICATE_FILE, save_artifacts
from zetadp.app.cli.console import Exit, fail, out
from zetadp.app.cli.follow import follow_to_end
from zetadp.app.client import Client
from zetadp.app.jobs.events import JobState
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.kit.key_text import KeyText
from zetadp.mechanisms.numerics.rounding import fixed_up
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.progress import metrics_line
from zetadp.trainer.recipes import DIGITS_DEMO

START_SECONDS = 60.0
STOP_SECONDS = 15.0


def run_demo(folder: Path) -> Exit:
    """Run it and print each step; returns the exit code. All processes are stopped in any case."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zetadp-demo-") as data_dir:
        with _service(Path(data_dir)) as (address, key), Client(address, key) as client:
            out.print(f"service and worker are up at {address} (database: SQLite in {data_dir})", markup=False)
            job = client.submit(JobSubmission(spec=DIGITS_DEMO, runtime=RuntimeSpec(threads=1)))
            _announce(job)
            job = follow_to_end(client, job.id)
            if job.state is not JobState.SUCCEEDED:
                fail(f"the job ended {job.state}: {job.failure}", Exit.FAILED)
            target = folder / f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{job.id[:8]}"
            save_artifacts(client, job.id, target)
        out.print("service and worker are stopped; what follows needs neither", markup=False)
        _tell_result(job, target)
        # A process of its own, as any holder of the folder would run it.
        verified = subprocess.run([sys.executable, "-m", "zetadp", "verify", str(target / CERTIFICATE_FILE)], check=False)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024.0
    out.print(f"\nmodel, certificate and keys are in {target}", markup=False)
    out.print(f"took {time.monotonic() - began:.1f} s; largest process used {peak:.0f} MiB", markup=False)
    return Exit.OK if verified.returncode == 0 else Exit.FAILED


def _announce(job: Job) -> None:
    asked = DIGITS_DEMO
    out.print(f"submitted job {job.id}: {asked.algorithm} on {asked.data.kind}, {asked.steps} noisy steps", markup=False)


def _tell_result(job: Job, target: Path) -> None:
    assert job.progress is not None  # a job that succeeded has it
    if job.metrics is not None:
        out.print(metrics_line(job.metrics), markup=False)
    out.print(
        f"epsilon {fixed_up(job.progress.epsilon, 6)} at delta {job.progress.delta:g} was spent on the training records", markup=False
    )
    for line in job.caveats:
        out.print(f"  note: {line}", markup=False)
    out.print(f"verifying {target / CERTIFICATE_FILE} offline:\n", markup=False)


@contextmanager
def _service(data_dir: Path) -> Generator[tuple[str, str]]:
    """A service with one worker on a free loopback port; yields its address and admin key. Everything is stopped on exit."""
    key = KeyText.fresh().text
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ZETADP_")}
    environment |= {"ZETADP_DATA_DIR": str(data_dir), "ZETADP_LOG_LEVEL": "warning", "ZETADP_ADMIN_KEY": key}
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", "--with-worker"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None  # stdout=PIPE
        line = process.stdout.readline()
        if not line.startswith("zetadp is at "):
            fail("the service didn't start; its own lines above say why", Exit.FAILED)
        address = line.removeprefix("zetadp is at ").strip()
        _await(address, process)
        yield address, key
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(address: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    with Client(address) as client:
        while not client.is_alive():
            if process.poll() is not None or time.monotonic() > deadline:
                fail("the service didn't answer in time; its own lines above say why", Exit.FAILED)
            time.sleep(0.1)
