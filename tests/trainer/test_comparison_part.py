"""One part of a comparison in a process of its own: stubs in the place of the training, which say and end as the test asks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from zetadp.trainer import RuntimeSpec
from zetadp.trainer.algorithms.comparison.part import MEASURED, Measured, outcome, run_part
from zetadp.trainer.engine import CHECKPOINT, Checkpoint, TrainingState, save_checkpoint
from zetadp.trainer.errors import PartFailed
from zetadp.trainer.request import RESULT, TrainingRequest
from zetadp.trainer.specs.algorithms.comparison import Comparison
from zetadp.trainer.specs.report import Finished, RunReport, TrainingEvent

FINISHED = Finished().model_dump_json()


@pytest.fixture(scope="module")
def request_() -> TrainingRequest:
    return _request(RuntimeSpec(device="cpu"))


def _request(runtime: RuntimeSpec) -> TrainingRequest:
    part = Comparison.example().parts[0].spec
    noise = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 1.0}
    spec = type(part).model_validate(part.model_dump(mode="json", exclude_none=True) | {"privacy": noise})
    return TrainingRequest.model_validate({"spec": spec, "runtime": runtime, "plan": spec.plan()})


def _report(request: TrainingRequest) -> str:
    document = {
        "steps_released": request.plan.steps,
        "event": request.plan.event,
        "noise_std": 1.0,
        "random_origin": "operating_system",
        "generator": "none",
        "resumptions": 0,
        "held_out": "none",
        "metrics": None,
        "test_records": 1,
        "training_records": 1,
        "training_units": 1,
        "checkpoints_released": 0,
        "parameters": 1,
        "versions": {},
        "hardware": "none",
        "training_seconds": 0.0,
    }
    return RunReport.model_validate(document).model_dump_json()


def _stub(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """A shell script in Python's place; its third argument is the part's folder."""
    script = folder / "stub"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


def _ignore(_event: TrainingEvent) -> None:
    pass


def test_memory_is_the_parts_own_and_not_its_parents(tmp_path: Path, request_: TrainingRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process begins with its parent's peak in what wait4 tells of it; this one, with torch in it, has hundreds of MiB.
    _stub(tmp_path, monkeypatch, f"echo '{FINISHED}'", "sleep 0.3")
    assert run_part("a", tmp_path / "a", request_, _ignore, lambda: False) is None
    peak = Measured.model_validate_json((tmp_path / "a" / MEASURED).read_bytes()).peak_mebibytes
    assert 0.1 < peak < 50.0


def test_a_stop_that_comes_when_the_part_has_just_ended_finds_it_ended(
    tmp_path: Path, request_: TrainingRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stub(tmp_path, monkeypatch, f"echo '{FINISHED}'")
    ended: list[TrainingEvent] = []

    def heard(event: TrainingEvent) -> None:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        ended.append(event)

    assert run_part("a", tmp_path / "a", request_, heard, lambda: bool(ended)) is None


def test_a_part_that_is_stopped_at_once_is_where_its_checkpoint_is(
    tmp_path: Path, request_: TrainingRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its earlier attempts executed those steps: 0 would be charged for none of them.
    _stub(tmp_path, monkeypatch, "kill -TERM $$")
    assert run_part("a", tmp_path, request_, _ignore, lambda: False) == 0
    checkpoint = Checkpoint(TrainingState(7, torch.zeros(2), {}, 1.0), resumptions=0, written=1, seconds=0.0, evaluated=None)
    save_checkpoint(tmp_path / CHECKPOINT, checkpoint, "digest")
    assert run_part("a", tmp_path, request_, _ignore, lambda: False) == 7


def test_what_another_request_left_is_never_taken_for_this_ones(
    tmp_path: Path, request_: TrainingRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _request(RuntimeSpec(device="cpu", threads=1))
    _stub(tmp_path, monkeypatch, f"echo '{json.dumps(json.loads(_report(other)))}' > \"$4/{RESULT}\"", f"echo '{FINISHED}'")
    assert run_part("a", tmp_path, other, _ignore, lambda: False) is None
    assert outcome(tmp_path, other) is not None
    assert outcome(tmp_path, request_) is None
    _stub(tmp_path, monkeypatch, "exit 9")
    with pytest.raises(PartFailed, match="part a: its process ended with exit status 9 and without a reason"):
        run_part("a", tmp_path, request_, _ignore, lambda: False)
    assert outcome(tmp_path, request_) is None
