r"""The training process: real subprocesses on real digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.app.forked import Command
from tests.trainer.forked import training
from zetadp.mechanisms.errors import CalibrationFailed
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.child import failure_reason
from zetadp.trainer.request import FAILED, FINISHED, ORPHANED, STOPPED, TrainingRequest
from zetadp.trainer.specs.report import CheckpointWritten, Failed, Finished, Metrics, Progress, RunReport, Started, Stopped, TrainingEvent

EVENT: TypeAdapter[TrainingEvent] = TypeAdapter(TrainingEvent)
PATIENCE_SECONDS = 120


def _write_request(workdir: Path, spec: ZetaDpSgd) -> None:
    workdir.mkdir(parents=True, exist_ok=True)
    runtime = RuntimeSpec(checkpoint_seconds=0.1, threads=1)
    (workdir / "request.json").write_text(TrainingRequest(spec=spec, runtime=runtime, plan=spec.plan()).model_dump_json())


def _command(workdir: Path, parent: int) -> list[str]:
    return [sys.executable, "-m", "zetadp.process", "zetadp.trainer.child", str(workdir), "--parent", str(parent)]


def _start(workdir: Path, parent: int | None = None) -> subprocess.Popen[str]:
    command = _command(workdir, os.getpid() if parent is None else parent)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> tuple[list[TrainingEvent], str, int]:
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return [EVENT.validate_json(line) for line in output.splitlines()], errors, process.returncode


def _wait_for(process: subprocess.Popen[str], kind: type[TrainingEvent]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if isinstance(EVENT.validate_json(line), kind):
            return
    pytest.fail(f"ended without {kind.__name__}: {process.communicate()[1]}")


@pytest.fixture
def longer(spec_json: dict[str, Any]) -> ZetaDpSgd:
    """Long enough to be interrupted: some seconds."""
    return ZetaDpSgd.model_validate({**spec_json, "steps": 150})


@pytest.fixture
def public(spec_json: dict[str, Any]) -> ZetaDpSgd:
    """Its held-out records are declared public."""
    return ZetaDpSgd.model_validate({**spec_json, "evaluation": {"kind": "public_held_out"}})


@pytest.fixture
def finished(public: ZetaDpSgd, tmp_path: Path) -> tuple[Path, list[TrainingEvent]]:
    _write_request(tmp_path, public)
    events, errors, status = _finish(_start(tmp_path))
    assert status == FINISHED, errors
    return tmp_path, events


@pytest.mark.slow
def test_a_job_on_real_digits_runs_to_its_report_and_model(finished: tuple[Path, list[TrainingEvent]], public: ZetaDpSgd) -> None:
    workdir, events = finished
    assert events[0] == Started(resumed_from_step=0)
    assert events[-1] == Finished()
    assert {type(event) for event in events} == {Started, CheckpointWritten, Metrics, Progress, Finished}
    report = RunReport.model_validate_json((workdir / "result.json").read_bytes())
    assert report.event == public.plan().event
    assert (workdir / "artifacts" / "model.safetensors").exists()
    assert not list(workdir.rglob("*.tmp"))


@pytest.mark.slow
def test_sigterm_leaves_a_checkpoint_from_which_the_run_ends_as_if_uninterrupted(longer: ZetaDpSgd, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    _write_request(parts, longer)
    interrupted = _start(parts)
    _wait_for(interrupted, Progress)
    interrupted.send_signal(signal.SIGTERM)
    events, _, status = _finish(interrupted)
    assert status == STOPPED
    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    assert 0 < stopped.step < 150
    assert not (parts / "result.json").exists()
    events, errors, status = _finish(_start(parts))
    assert status == FINISHED, errors
    assert events[0] == Started(resumed_from_step=stopped.step)
    load_train(longer)(longer, longer.plan(), RuntimeSpec(threads=1), whole, report=lambda _event: None, should_stop=lambda: False)
    models = [(workdir / "artifacts" / "model.safetensors").read_bytes() for workdir in (whole, parts)]
    assert models[0] == models[1]


@pytest.mark.slow
def test_a_killed_process_continues_from_its_last_checkpoint(longer: ZetaDpSgd, tmp_path: Path) -> None:
    _write_request(tmp_path, longer)
    killed = _start(tmp_path)
    _wait_for(killed, CheckpointWritten)
    killed.kill()
    _finish_quietly(killed)
    events, errors, status = _finish(_start(tmp_path))
    assert status == FINISHED, errors
    assert isinstance(events[0], Started)
    assert events[0].resumed_from_step >= 1
    report = RunReport.model_validate_json((tmp_path / "result.json").read_bytes())
    assert (report.steps_released, report.resumptions) == (150, 1)


def _finish_quietly(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=PATIENCE_SECONDS)


def test_a_misspelled_field_fails_with_its_name_on_one_line(spec: ZetaDpSgd, tmp_path: Path) -> None:
    _write_request(tmp_path, spec)
    request = json.loads((tmp_path / "request.json").read_text())
    request["spec"]["clipping_bonud"] = request["spec"].pop("clipping_bound")
    (tmp_path / "request.json").write_text(json.dumps(request))
    process = Command(tmp_path / "streams", str(tmp_path), program=training)
    assert process.wait() == FAILED
    events = [EVENT.validate_json(line) for line in process.stdout.splitlines()]
    assert events == [Failed(reason="request.json: spec.zeta_dp_sgd.clipping_bound: Field required")]
    assert "Traceback" in process.stderr


@pytest.mark.slow
def test_a_process_that_is_not_the_parents_child_does_nothing(spec: ZetaDpSgd, tmp_path: Path) -> None:
    _write_request(tmp_path, spec)
    events, errors, status = _finish(_start(tmp_path, parent=1))
    assert (events, status) == ([], ORPHANED)
    assert errors == "process 1 isn't the parent: not started\n"
    assert [path.name for path in tmp_path.iterdir()] == ["request.json"]


@pytest.fixture
def parent_and_child(longer: ZetaDpSgd, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that started a training child, and the child's id."""
    _write_request(tmp_path, longer)
    code = (
        "import os, subprocess, sys; command = [*sys.argv[1:], str(os.getpid())];"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL);"
        "print(child.pid, child.stdout.readline(), flush=True); child.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *_command(tmp_path, 0)[:-1]], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline().split()[0])
    yield parent, child
    parent.kill()
    parent.communicate()


def test_the_child_dies_with_a_parent_that_is_killed(parent_and_child: tuple[subprocess.Popen[str], int]) -> None:
    parent, child = parent_and_child
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(child)


def _is_running(process: int) -> bool:
    try:
        # "Z" is a dead process that nobody has waited for yet.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_reason_of_our_own_errors_is_their_text_on_one_line() -> None:
    assert (
        failure_reason(CalibrationFailed("no noise\nmeets the target", (1.0, 2.0))) == "no noise meets the target (searched scales 1 to 2)"
    )


def test_reason_of_a_missing_file_names_it() -> None:
    assert (
        failure_reason(FileNotFoundError(2, "No such file or directory", "/x/request.json")) == "No such file or directory: /x/request.json"
    )


def test_reason_of_an_unknown_error_never_quotes_it() -> None:
    # torch's own text here names a label.
    reason = failure_reason(IndexError("Target 7 is out of bounds."))
    assert reason == "internal error (IndexError); the traceback is in the job's log"


def test_reason_of_broken_json_says_where() -> None:
    with pytest.raises(ValidationError) as caught:
        TrainingRequest.model_validate_json(b"{")
    assert failure_reason(caught.value).startswith("request.json: the whole: Invalid JSON")
