r"""A stand-in for the training child, of the same protocol: standard library only, so it starts at once, and it ends as ordered.

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
from typing import Any

PR_SET_PDEATHSIG = 1
FIRST_ATTEMPT = "000001"
TEST_RECORDS = 181
"""Of the digits with a fifth held out."""
METRICS = {"accuracy": 0.5, "roc_auc": 0.75}


class Order(IntEnum):
    """How the child is to end."""

    FINISH = 1
    FAIL = 2
    CRASH = 3
    IGNORE_SIGTERM = 4
    RELEASE_TOO_FEW = 5
    LEAVE_NO_REPORT = 6
    COMPLAIN = 7
    HOLD = 8
    COMPLAIN_AND_HOLD = 9
    SWELL = 10


HOLDING = (Order.HOLD, Order.COMPLAIN_AND_HOLD)
"""The first attempt of these ends when it is told to and never by itself, however long a busy machine takes to tell it."""
SWOLLEN_BYTES = 400 * 2**20
"""What a child that swells holds before its first step, until it is ended."""
HELD_STEP = 7
"""The step that they wait at, between two checkpoints."""


def say(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def pids_of(workdir: Path) -> Path:
    """Where the processes that worked on the job are listed: in its folder, or where a test wants them that outlive the folder."""
    job = workdir.parents[1]  # each attempt has a folder of its own in it
    kept = os.environ.get("FAKE_CHILD_PIDS")
    return job / "pids" if kept is None else Path(kept) / job.name


def main(workdir: Path, parent: int) -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 4
    request = json.loads((workdir / "request.json").read_text())
    plan, runtime = request["plan"], request["runtime"]
    order = Order(runtime["microbatch_size"])
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: None if order is Order.IGNORE_SIGTERM else stopping.append(number))
    with pids_of(workdir).open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    checkpoint = workdir / "checkpoint.safetensors"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    say("started", resumed_from_step=first)
    sys.stdout.write("a line of some library\n")
    if order in (Order.COMPLAIN, Order.COMPLAIN_AND_HOLD):
        sys.stderr.write('Traceback (most recent call last):\n  File "/x/train.py", line 3, in step\n    check(record)\n')
        sys.stderr.write("ValueError: the record of Jane Doe is wrong\n" + "x" * 100_000 + "\n")
        sys.stderr.flush()
    swollen = b"x" * SWOLLEN_BYTES if order is Order.SWELL else b""
    while swollen and not stopping:
        time.sleep(0.02)
    for step in range(first + 1, plan["steps"] + 1):
        time.sleep(runtime["checkpoint_seconds"])
        say("progress", step=step, steps=plan["steps"], epsilon=step / plan["steps"], delta=plan["delta"], seconds=0.1)
        while order in HOLDING and step == HELD_STEP and workdir.name == FIRST_ATTEMPT and not stopping:
            time.sleep(0.02)
        if step % 5 == 0 or stopping:
            checkpoint.with_name(".checkpoint.tmp").write_text(str(step))
            checkpoint.with_name(".checkpoint.tmp").replace(checkpoint)
            say("checkpoint", step=step)
        if stopping:
            say("stopped", step=step)
            return 3
        if order is Order.FAIL and step == 5:
            say("failed", reason="the gradient isn't finite", executed=step)
            return 1
        if order is Order.CRASH and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    say("metrics", step=plan["steps"], held_out="public", metrics=METRICS)
    (workdir / "artifacts").mkdir(exist_ok=True)
    (workdir / "artifacts" / "model.safetensors").write_bytes(b"model")
    if order is not Order.LEAVE_NO_REPORT:
        (workdir / "result.json").write_text(json.dumps(report(plan, plan["steps"] - (order is Order.RELEASE_TOO_FEW))))
    say("finished")
    return 0


def report(plan: dict[str, Any], released: int) -> dict[str, object]:
    """What a run of this plan reports that released this many steps."""
    sampling, mechanism = plan["sampling"], plan["mechanism"]
    release = {"kind": "release", "mechanism": mechanism}
    sampled = {"kind": "poisson_sampled", "probability": sampling["expected_batch_size"] / sampling["records"], "event": release}
    return {
        "steps_released": released,
        "event": {"kind": "repeated", "count": released, "event": sampled},
        "noise_std": mechanism["std"],
        "random_origin": "operating_system",
        "generator": "AES-256-CTR",
        "resumptions": 0,
        "held_out": "public",
        "metrics": METRICS,
        "test_records": TEST_RECORDS,
        "training_records": sampling["records"],
        "training_units": sampling["records"],
        "checkpoints_released": 1,
        "parameters": 10,
        "versions": {},
        "hardware": "none",
        "training_seconds": 0.1,
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
