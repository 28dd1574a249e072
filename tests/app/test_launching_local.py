r"""Workers that a launcher starts on its own machine: as many as there are accelerators for, and one that needs none."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.app.jobs_harness import serving, settings, submit, wait_for_state, wait_until
from tests.app.launching_harness import for_launching, launching, logs_of
from zetadp.app.jobs.needs import Needs
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Found, LaunchRefused, LaunchState, Order
from zetadp.app.launching.local import Local


def script(folder: Path, text: str) -> str:
    """The launch command of a worker that does what ``text`` says."""
    path = folder / "worker.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Local]:
    """With two accelerators; its workers wait until they are ended."""
    # The shell waits in the foreground's stead, so that SIGTERM ends it at once.
    command = script(tmp_path, f'echo "$2 $ZETADP_DEVICE" >> {tmp_path}/started; trap "exit 7" TERM; sleep 600 & wait')
    local = Local(Settings(data_dir=tmp_path, device="cuda:0,1", launch_command=command))
    yield local
    local.close()


def order(name: str, gpus: int) -> Order:
    needs = Needs(device="cuda" if gpus else "auto", gpus=gpus, gpu_kind=None, memory_bytes=None, machines=1)
    return Order(name=name, job_id=name, needs=needs, cpus=1, seconds=None, grace_seconds=1.0)


def states(machine: Local, *names: str) -> dict[str, str]:
    return {name: found.state.value for name, found in machine.found(names).items()}


def test_each_worker_has_accelerators_of_its_own_and_the_next_waits_for_them(machine: Local, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        machine.start(order(name, 1))
    machine.start(order("b", 1))  # once, however often it is asked for
    assert states(machine, "a", "b", "c", "d") == {"a": "running", "b": "running", "c": "waiting"}
    started = tmp_path / "started"
    wait_until(lambda: started.exists() and len(started.read_text().splitlines()) == 2)
    assert sorted(started.read_text().splitlines()) == ["a cuda:0", "b cuda:1"]
    machine.end("b")
    wait_until(lambda: states(machine, "b", "c") == {"b": "ended", "c": "running"})
    assert machine.found(["b"])["b"] == Found(state=LaunchState.ENDED, reason="it ended with code 7")
    wait_until(lambda: "c cuda:1" in started.read_text())


@pytest.mark.slow
def test_jobs_without_accelerators_follow_one_another_beside_the_others(machine: Local) -> None:
    for name, gpus in (("a", 2), ("b", 0), ("c", 0)):
        machine.start(order(name, gpus))
    assert states(machine, "a", "b", "c") == {"a": "running", "b": "running", "c": "waiting"}
    machine.end("c")
    assert states(machine, "c") == {"c": "ended"}


def test_what_this_machine_can_never_have_is_refused(machine: Local) -> None:
    with pytest.raises(LaunchRefused, match="at most 2 accelerators"):
        machine.start(order("a", 3))


def test_a_launcher_on_one_machine_prepares_and_runs_what_is_submitted(tmp_path: Path) -> None:
    of = for_launching(settings(tmp_path), "local", device="cpu")
    with serving(of) as client, launching(of, dict(os.environ)) as launcher:
        jobs = [submit(client) for _ in range(2)]
        wait_until((tmp_path / "launcher.log").exists, unless=lambda: launcher.unforeseen_end)
        for job_id in jobs:
            try:
                wait_for_state(client, job_id, "succeeded")
            except BaseException as error:
                raise AssertionError(logs_of(of)) from error
        wait_until(lambda: client.get(f"/v1/jobs/{jobs[0]}").json()["launch"] is None)
        # Those of the jobs go when they have ended.
        wait_until(lambda: [one["id"] for one in client.get("/v1/hardware").json()["workers"]] == ["launcher"])
