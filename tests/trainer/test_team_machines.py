r"""A training that two machines share: here two groups of processes with folders of their own, that meet at an address."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.app.forked import Command
from tests.trainer.forked import training
from tests.trainer.test_training_child import EVENT, PATIENCE_SECONDS
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.process import child_command
from zetadp.trainer import RuntimeSpec, ZetaDpSgd
from zetadp.trainer.engine.team import meeting
from zetadp.trainer.engine.team.meeting import Meeting
from zetadp.trainer.request import FAILED, FINISHED, LOST, STOPPED, TrainingRequest
from zetadp.trainer.specs.report import CheckpointWritten, RunReport, Started
from zetadp.trainer.team_place import TEAM_VARIABLE, TeamPlace

PROCESSES = 2


@pytest.fixture
def spec(spec_json: dict[str, Any]) -> ZetaDpSgd:
    """Its randomness is a seed's, so that two runs can be compared."""
    return ZetaDpSgd.model_validate({**spec_json, "steps": 12, "reproducible": True, "seed": 5})


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def requested(workdir: Path, spec: ZetaDpSgd, machine: int | None = None, at: int = 0, host: str = "127.0.0.1") -> dict[str, str]:
    """The environment of one machine's process, whose request is written."""
    workdir.mkdir(parents=True, exist_ok=True)
    runtime = RuntimeSpec(checkpoint_seconds=0.05, threads=1, processes=PROCESSES)
    (workdir / "request.json").write_text(TrainingRequest(spec=spec, runtime=runtime, plan=spec.plan()).model_dump_json())
    environment = dict(os.environ)
    if machine is not None:
        place = TeamPlace(machines=PROCESSES, machine=machine, host=host, port=at, secret="s")
        environment[TEAM_VARIABLE] = place.model_dump_json()
    return environment


def start(
    workdir: Path, spec: ZetaDpSgd, machine: int | None = None, at: int = 0, host: str = "127.0.0.1", where: str | None = None
) -> subprocess.Popen[str]:
    """One machine's process, in this network namespace; without a number it is the only one, with as many members."""
    environment = requested(workdir, spec, machine, at, host)
    inside = [] if where is None else ["ip", "netns", "exec", where]
    command = [*inside, *child_command("zetadp.trainer.child", str(workdir))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output + errors


def forked(workdir: Path, spec: ZetaDpSgd, machine: int, at: int) -> Command:
    """One machine's process as ``start`` makes it, but without Python's start and torch's."""
    environment = requested(workdir, spec, machine, at)
    return Command(workdir.with_name(f"{workdir.name}, streams at {at}"), str(workdir), env=environment, program=training)


def done(process: Command) -> tuple[int, str]:
    code = process.wait(PATIENCE_SECONDS)
    return code, process.stdout + process.stderr


def wait_for_a_checkpoint(process: Command) -> None:
    while not any(isinstance(EVENT.validate_json(line), CheckpointWritten) for line in process.stdout.splitlines(keepends=True)[:-1]):
        assert process.is_running, f"ended without a checkpoint: {process.stderr}"
        time.sleep(0.02)


@pytest.mark.slow
def test_two_machines_train_the_model_that_one_does_and_only_the_first_tells(tmp_path: Path, spec: ZetaDpSgd) -> None:
    alone, at = start(tmp_path / "alone", spec), port()
    machines = [forked(tmp_path / f"machine {machine}", spec, machine, at) for machine in (0, 1)]
    for (code, said), tells in zip((ended(alone), *map(done, machines)), (True, True, False), strict=True):
        assert code == FINISHED, said
        assert bool([line for line in said.splitlines() if line.startswith("{")]) is tells
    models = [(tmp_path / name / "artifacts" / "model.safetensors").read_bytes() for name in ("alone", "machine 0")]
    assert models[0] == models[1]
    assert not (tmp_path / "machine 1" / "artifacts").exists()
    assert sorted(path.name for path in (tmp_path / "machine 0").iterdir() if path.name.startswith("team-")) == []


@pytest.fixture
def hosts() -> Generator[tuple[str, str]]:
    """Two network namespaces with a cable between them: hosts of their own, as far as connections go."""
    made = [
        "ip netns add zetadp-a && ip netns add zetadp-b && ip link add zetadp-va type veth peer name zetadp-vb",
        "ip link set zetadp-va netns zetadp-a && ip link set zetadp-vb netns zetadp-b",
        "ip -n zetadp-a addr add 10.77.0.1/24 dev zetadp-va && ip -n zetadp-b addr add 10.77.0.2/24 dev zetadp-vb",
        "ip -n zetadp-a link set zetadp-va up && ip -n zetadp-b link set zetadp-vb up",
        "ip -n zetadp-a link set lo up && ip -n zetadp-b link set lo up",
    ]
    done = subprocess.run(["sh", "-c", " && ".join(made)], capture_output=True, text=True, check=False)
    try:
        if done.returncode:
            pytest.skip(f"no network namespaces can be made here: {done.stderr.strip()}")
        yield "zetadp-a", "zetadp-b"
    finally:
        subprocess.run(["sh", "-c", "ip netns del zetadp-a; ip netns del zetadp-b"], capture_output=True, check=False)


@pytest.mark.slow
def test_two_hosts_train_the_model_that_one_does(tmp_path: Path, spec: ZetaDpSgd, hosts: tuple[str, str]) -> None:
    at = port()
    machines = [start(tmp_path / f"host {machine}", spec, machine, at, host="10.77.0.1", where=hosts[machine]) for machine in (0, 1)]
    assert [ended(process)[0] for process in machines] == [FINISHED, FINISHED]
    alone = start(tmp_path / "alone", spec)
    assert ended(alone)[0] == FINISHED
    models = [(tmp_path / name / "artifacts" / "model.safetensors").read_bytes() for name in ("alone", "host 0")]
    assert models[0] == models[1]


@pytest.mark.slow
def test_a_machine_without_the_checkpoint_goes_on_from_the_first_ones(tmp_path: Path, spec: ZetaDpSgd) -> None:
    longer, at = spec.model_copy(update={"steps": 150}), port()
    machines = [forked(tmp_path / f"machine {machine}", longer, machine, at) for machine in (0, 1)]
    wait_for_a_checkpoint(machines[0])
    machines[0].terminate()
    assert [done(process)[0] for process in machines] == [STOPPED, FINISHED]  # both stop after the same step
    at = port()
    again = [forked(tmp_path / "machine 0", longer, 0, at), forked(tmp_path / "another machine", longer, 1, at)]
    codes = [done(process) for process in again]
    assert [code for code, _ in codes] == [FINISHED, FINISHED], codes
    started = next(EVENT.validate_json(line) for line in codes[0][1].splitlines() if '"started"' in line)
    assert isinstance(started, Started)
    assert started.resumed_from_step > 0
    alone = start(tmp_path / "alone", longer)
    assert ended(alone)[0] == FINISHED
    models = [(tmp_path / name / "artifacts" / "model.safetensors").read_bytes() for name in ("alone", "machine 0")]
    assert models[0] == models[1]
    report = RunReport.model_validate_json((tmp_path / "machine 0" / "result.json").read_bytes())
    assert (report.steps_released, report.resumptions) == (150, 1)


def test_a_machine_that_is_lost_ends_the_attempt_and_not_the_job(tmp_path: Path, spec: ZetaDpSgd) -> None:
    longer, at = spec.model_copy(update={"steps": 5000}), port()
    machines = [forked(tmp_path / f"machine {machine}", longer, machine, at) for machine in (0, 1)]
    wait_for_a_checkpoint(machines[0])
    machines[1].kill()
    code, said = done(machines[0])
    assert code == LOST, said
    assert "another machine of the team was lost" in said


def test_machines_with_different_requests_release_nothing(tmp_path: Path, spec: ZetaDpSgd) -> None:
    at = port()
    machines = [forked(tmp_path / "0", spec, 0, at), forked(tmp_path / "1", spec.model_copy(update={"steps": 13}), 1, at)]
    code, said = done(machines[0])
    assert code == FAILED, said
    failed = json.loads(next(line for line in said.splitlines() if '"failed"' in line))
    assert failed["reason"].startswith("data must be the same data and the same software on every machine")
    assert not (tmp_path / "0" / "checkpoint.safetensors").exists()
    done(machines[1])


def test_processes_are_spread_evenly_or_refused(tmp_path: Path) -> None:
    place = TeamPlace(machines=3, machine=2)
    assert list(Meeting(6, place, tmp_path, round=0).here) == [4, 5]
    with pytest.raises(InvalidParameter, match=r"runtime\.processes must be a multiple of the 3 machines, got 4"):
        Meeting(4, place, tmp_path, round=0)
    with pytest.raises(ValidationError, match="machine must be below 3"):
        TeamPlace(machines=3, machine=3)


def test_the_first_machines_name_is_waited_for_until_the_cluster_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def known_late(host: str) -> str:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return "127.0.0.1"

    monkeypatch.setattr(meeting, "NAME_POLL_SECONDS", 0.0)
    monkeypatch.setattr(socket, "gethostbyname", known_late)
    assert meeting.interface_towards("job-0.job", 29500) == "lo"
    assert asked == ["job-0.job"] * 3
    monkeypatch.setattr(meeting, "NAME_SECONDS", -1.0)
    asked.clear()
    with pytest.raises(socket.gaierror):
        meeting.interface_towards("job-0.job", 29500)
