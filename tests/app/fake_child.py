r"""A stand-in for the training child, of the same protocol: no torch, so it starts at once, and it does what its environment says.

It takes its orders from two settings that change no result of the real one: ``checkpoint_seconds`` is the time of a step, and
``microbatch_size`` is one of ``Order``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from enum import IntEnum
from pathlib import Path

from app.jobs.document import JobDocument
from mechanisms import RandomOrigin
from trainer.data import data_set_facts
from trainer.report import (
    CheckpointWritten,
    Failed,
    Finished,
    Metrics,
    Progress,
    RunReport,
    Started,
    Stopped,
    TrainingEvent,
)

PR_SET_PDEATHSIG = 1


class Order(IntEnum):
    """How the child is to end."""

    FINISH = 1
    FAIL = 2
    CRASH = 3
    IGNORE_SIGTERM = 4
    RELEASE_TOO_FEW = 5
    LEAVE_NO_REPORT = 6


def say(event: TrainingEvent) -> None:
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()


def main(workdir: Path, parent: int) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 4
    document = JobDocument.model_validate(json.loads((workdir / "request.json").read_text()) | {"labels": {}})
    order, step_seconds = Order(document.runtime.microbatch_size), document.runtime.checkpoint_seconds
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: None if order is Order.IGNORE_SIGTERM else stopping.append(number))
    with (workdir / "pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    checkpoint = workdir / "checkpoint.safetensors"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    steps = document.plan.steps
    say(Started(resumed_from_step=first))
    sys.stdout.write("a line of some library\n")
    for step in range(first + 1, steps + 1):
        time.sleep(step_seconds)
        say(Progress(step=step, steps=steps, epsilon=step / steps, delta=document.plan.delta, seconds=0.1))
        if step % 5 == 0 or stopping:
            checkpoint.write_text(str(step))
            say(CheckpointWritten(step=step))
        if stopping:
            say(Stopped(step=step))
            return 3
        if order is Order.FAIL and step == 5:
            say(Failed(reason="the gradient isn't finite"))
            return 1
        if order is Order.CRASH and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    say(Metrics(step=steps, test_accuracy=0.5))
    write_results(workdir, document, steps - (order is Order.RELEASE_TOO_FEW), with_report=order is not Order.LEAVE_NO_REPORT)
    say(Finished())
    return 0


def write_results(workdir: Path, document: JobDocument, released: int, with_report: bool) -> None:
    (workdir / "artifacts").mkdir(exist_ok=True)
    (workdir / "artifacts" / "model.safetensors").write_bytes(b"model")
    facts = data_set_facts(document.spec.data)
    report = RunReport(
        steps_released=released,
        event=document.plan.event_after(released),
        noise_std=document.plan.mechanism.noise_scale,
        random_origin=RandomOrigin.OPERATING_SYSTEM,
        resumptions=0,
        test_accuracy=0.5,
        test_records=facts.test_records,
        training_records=facts.training_records,
        parameters=10,
        versions={"python": "3.11"},
        hardware="none",
        training_seconds=0.1,
    )
    if with_report:
        (workdir / "result.json").write_text(report.model_dump_json())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
