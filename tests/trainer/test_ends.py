r"""Ends are outputs: what a run tells by ending, or by going on, is on disk before it is told, and nothing of it is told for free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from zetadp.trainer import RuntimeSpec, ZetaDpSgd, child, load_train
from zetadp.trainer.child import report_failure
from zetadp.trainer.engine import publisher, run
from zetadp.trainer.engine.checkpoint import checkpointed_step
from zetadp.trainer.engine.loop import PrivateLoop, TrainingState
from zetadp.trainer.errors import PartFailed, TrainingAborted, TrainingDiverged
from zetadp.trainer.specs.report import CheckpointWritten, Failed, Metrics, Progress, Started, TrainingEvent

SELDOM = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=3600.0)
"""No checkpoint by the clock: as many as the run itself sees a reason for."""
OFTEN = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=0.0)
DIVERGES_AT = 6


@pytest.fixture
def steered(spec_json: dict[str, Any]) -> ZetaDpSgd:
    """A learning rate chosen so that a walk of noise leaves float32's range in the middle of the run: the end tells how far it walked."""
    optimizer = {"kind": "sgd", "learning_rate": 1e37}
    return ZetaDpSgd.model_validate({**spec_json, "optimizer": optimizer, "clipping_bound": 100.0, "steps": 40})


def _run(
    spec: ZetaDpSgd, workdir: Path, report: Callable[[TrainingEvent], None] = lambda _event: None, runtime: RuntimeSpec = SELDOM
) -> None:
    load_train(spec)(spec, spec.plan(), runtime, workdir, report=report, should_stop=lambda: False)


def _checkpointed(workdir: Path) -> int:
    return checkpointed_step(workdir / "checkpoint.safetensors")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every step that is executed."""
    executed: list[int] = []
    original = PrivateLoop.step

    def step(self: PrivateLoop, state: TrainingState) -> TrainingState:
        executed.append(state.step + 1)
        return original(self, state)

    monkeypatch.setattr(PrivateLoop, "step", step)
    return executed


def test_a_divergence_is_on_disk_before_it_is_told(steered: ZetaDpSgd, tmp_path: Path, steps: list[int]) -> None:
    with pytest.raises(TrainingDiverged) as diverged:
        _run(steered, tmp_path)
    assert diverged.value.step == DIVERGES_AT == steps[-1]
    assert _checkpointed(tmp_path) == DIVERGES_AT


def test_a_divergence_tried_again_is_told_again_and_nothing_is_released(steered: ZetaDpSgd, tmp_path: Path, steps: list[int]) -> None:
    events: list[TrainingEvent] = []
    for _ in range(3):
        events.clear()
        with pytest.raises(TrainingDiverged, match=f"stopped being finite at step {DIVERGES_AT}"):
            _run(steered, tmp_path, events.append)
    assert events == [Started(resumed_from_step=DIVERGES_AT)]
    # With other noise it would have told how two walks end where one is counted.
    assert steps == list(range(1, DIVERGES_AT + 1))


def test_a_divergence_that_is_looked_for_a_step_later_ends_with_its_own_state(
    steered: ZetaDpSgd, tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run.Publisher
    monkeypatch.setattr(publisher, "PROGRESS_SECONDS", 3600.0)
    monkeypatch.setattr(run, "Publisher", lambda **given: made(**{**given, "looks_later": True}))
    for _ in range(3):
        with pytest.raises(TrainingDiverged, match=f"stopped being finite at step {DIVERGES_AT}"):
            _run(steered, tmp_path)
    assert _checkpointed(tmp_path) == DIVERGES_AT
    # Of the step after it nothing is kept, and it isn't run again.
    assert steps == list(range(1, DIVERGES_AT + 2))


def test_the_same_test_catches_a_run_that_tells_what_it_has_not_kept(
    steered: ZetaDpSgd, tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher.Publisher, "_write", lambda *_: None)
    for _ in range(3):
        with pytest.raises(TrainingDiverged, match=f"stopped being finite at step {DIVERGES_AT}"):
            _run(steered, tmp_path)
    # Told three times, released three times, and no file says that anything was.
    assert (len(steps), _checkpointed(tmp_path)) == (3 * DIVERGES_AT, 0)


@pytest.mark.slow
def test_every_process_of_a_team_ends_where_the_first_one_tells_it(steered: ZetaDpSgd, tmp_path: Path) -> None:
    runtime = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=3600.0, processes=2)
    with pytest.raises(TrainingDiverged) as diverged:
        _run(steered, tmp_path, runtime=runtime)
    assert _checkpointed(tmp_path) == diverged.value.step >= 1


def test_a_follower_ends_with_the_publisher(steered: ZetaDpSgd) -> None:
    follower = publisher.Follower(steered.plan(), lambda: False)
    broken = TrainingState(3, torch.tensor([1.0, torch.inf]), {}, 1.0)
    for hear in (follower.start, follower.after_step):
        with pytest.raises(TrainingDiverged, match="at step 3"):
            hear(broken)


def test_the_process_says_how_many_steps_its_end_is_an_output_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[TrainingEvent] = []
    monkeypatch.setattr(child, "_emit", told.append)
    aborted = TrainingAborted(7)
    aborted.__cause__ = OSError(12, "Cannot allocate memory", "a file")
    others = (RuntimeError("out of memory"), OSError(28, "No space left on device", "checkpoint"), PartFailed("a", "its process ended"))
    for error in (TrainingDiverged(6), aborted, PartFailed("a", "it diverged", 40), *others):
        report_failure(type(error), error, None)
    found = [event for event in told if isinstance(event, Failed)]
    assert [event.executed for event in found] == [6, 7, 40, None, None, None]
    assert found[1].reason == "Cannot allocate memory: a file"


def test_a_step_that_an_error_ends_counts_as_executed_and_isnt_run_again(
    spec: ZetaDpSgd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PrivateLoop.step

    def step(self: PrivateLoop, state: TrainingState) -> TrainingState:
        if state.step == 7:
            raise RuntimeError("out of memory")
        return original(self, state)

    events: list[TrainingEvent] = []
    monkeypatch.setattr(PrivateLoop, "step", step)
    with pytest.raises(TrainingAborted, match="an error in step 8") as aborted:
        _run(spec, tmp_path, events.append)
    assert isinstance(aborted.value.__cause__, RuntimeError)
    assert _checkpointed(tmp_path) == aborted.value.step == 8
    executed: list[int] = []

    def watched(self: PrivateLoop, state: TrainingState) -> TrainingState:
        executed.append(state.step + 1)
        return original(self, state)

    monkeypatch.setattr(PrivateLoop, "step", watched)
    _run(spec, tmp_path, events.append)
    assert [event for event in events if isinstance(event, Started)] == [Started(resumed_from_step=0), Started(resumed_from_step=8)]
    # The noise of step 8 may have been released with the error: with other noise it would be released twice and counted once.
    assert executed == list(range(9, spec.steps + 1))


@pytest.mark.parametrize("runtime", [SELDOM, OFTEN], ids=["seldom", "often"])
def test_an_error_while_a_step_is_told_leaves_that_step_on_disk(spec: ZetaDpSgd, tmp_path: Path, runtime: RuntimeSpec) -> None:
    def report(event: TrainingEvent) -> None:
        if isinstance(event, Progress) and event.step >= 1:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(TrainingAborted) as aborted:
        _run(spec, tmp_path, report, runtime)
    assert _checkpointed(tmp_path) == aborted.value.step


def test_the_count_of_a_last_step_that_an_error_ended_is_made_up_for(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = {"kind": "private_accuracy", "noise_std": 5.0, "every_steps": 5}
    spec = ZetaDpSgd.model_validate({**spec_json, "evaluation": evaluation})
    original = PrivateLoop.step

    def step(self: PrivateLoop, state: TrainingState) -> TrainingState:
        if state.step == spec.steps - 1:
            raise RuntimeError("out of memory")
        return original(self, state)

    monkeypatch.setattr(PrivateLoop, "step", step)
    with pytest.raises(TrainingAborted):
        _run(spec, tmp_path)
    events: list[TrainingEvent] = []
    _run(spec, tmp_path, events.append)
    assert [event.step for event in events if isinstance(event, Metrics)][-1] == spec.steps


def test_an_error_that_is_a_full_disk_is_told_as_itself(spec: ZetaDpSgd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PrivateLoop.step

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    def step(self: PrivateLoop, state: TrainingState) -> TrainingState:
        if state.step == 7:
            monkeypatch.setattr("zetadp.trainer.engine.checkpoint.write_atomically", full)
            raise RuntimeError("out of memory")
        return original(self, state)

    monkeypatch.setattr(PrivateLoop, "step", step)
    with pytest.raises(RuntimeError, match="out of memory"):
        _run(spec, tmp_path)


def test_progress_is_told_of_steps_in_a_checkpoint_only(spec: ZetaDpSgd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Going on is told too: that the parameters were still finite after so many steps.
    monkeypatch.setattr(publisher, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(publisher, "ACCOUNTING_SHARE", 1e9)
    monkeypatch.setattr(publisher, "WRITING_SHARE", 1e9)
    told: list[tuple[int, int]] = []

    def report(event: TrainingEvent) -> None:
        if isinstance(event, Progress):
            told.append((event.step, _checkpointed(tmp_path)))

    _run(spec, tmp_path, report)
    assert told == [(step, step) for step in range(1, 13)]


def test_progress_alone_writes_checkpoints_no_oftener_than_their_share_of_the_time(
    spec: ZetaDpSgd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(publisher, "ACCOUNTING_SHARE", 1e9)
    monkeypatch.setattr(publisher, "WRITING_SHARE", 1e-9)
    events: list[TrainingEvent] = []
    _run(spec, tmp_path, events.append)
    for kind in (CheckpointWritten, Progress):
        assert [event.step for event in events if isinstance(event, kind)] == [1, 12]
