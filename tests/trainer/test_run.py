r"""The lifecycle that all algorithms share, with a made-up algorithm that notes when each part of it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS, RuntimeSpec
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine import CHECKPOINT, MODEL, Evaluation, TrainingState, load_checkpoint
from zetadp.trainer.engine.checkpoint import checkpointed_step
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting, run
from zetadp.trainer.errors import CheckpointRefused, TrainingAborted, TrainingStopped
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.network_training import NetworkTraining
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.report import RunReport, TrainingEvent

STEPS = 4
RUNTIME = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=3600.0)
SPEC = NonPrivateTraining.model_validate(NonPrivateTraining.example().model_dump(mode="json", exclude_none=True) | {"steps": STEPS})
PLAN = SPEC.plan_for(data_set_facts(SPEC.data))


@dataclass(frozen=True)
class Counting:
    """Adds 1 to one parameter in every step; ``at_step`` is called in each before it does."""

    noted: list[str]
    steps_release: bool = True
    at_step: Callable[[int], None] = lambda _step: None
    spec: TrainingSpec = SPEC
    plan: Plan = field(default=PLAN)

    def prepare(self, setting: Setting) -> PreparedRun:
        self.noted.append(f"prepare from {setting.resumed_from}")
        return Prepared(self, setting)


class Prepared(PreparedRun):
    def __init__(self, of: Counting, setting: Setting) -> None:
        self.of, self.setting = of, setting

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation("public", lambda state: {"accuracy": state.parameters.item() / 10.0})

    def initial_state(self) -> TrainingState:
        return TrainingState(0, torch.zeros(1), {}, 1.0)

    def begin(self, start: TrainingState) -> None:
        path = self.setting.workdir / CHECKPOINT
        counted = load_checkpoint(path, self.setting.digest, self.setting.device).resumptions if path.exists() else 0
        self.of.noted.append(f"begin at {start.step} resumed {counted}")

    def step(self, state: TrainingState) -> TrainingState:
        self.of.at_step(state.step + 1)
        return TrainingState(state.step + 1, state.parameters + 1.0, {}, 1.0)

    def model(self, state: TrainingState) -> Model:
        assert checkpointed_step(self.setting.workdir / CHECKPOINT) == state.step
        self.of.noted.append("model")
        return Model({"weight": state.parameters}, "{}")

    def finish(self, state: TrainingState) -> Ending:
        del state
        assert (self.setting.workdir / MODEL).exists()
        self.of.noted.append("finish")
        return Ending(RandomOrigin.OPERATING_SYSTEM, "nothing", 1)


def _run(algorithm: Counting, workdir: Path, runtime: RuntimeSpec = RUNTIME, stop: Callable[[], bool] = lambda: False) -> RunReport:
    def report(event: TrainingEvent) -> None:
        if event.event not in {"progress", "metrics"}:
            algorithm.noted.append(event.event)

    return run(algorithm, runtime, workdir, report=report, should_stop=stop)


def test_everything_comes_in_its_order(tmp_path: Path) -> None:
    noted: list[str] = []
    report = _run(Counting(noted), tmp_path)
    assert [name for name in noted if name != "checkpoint"] == ["prepare from None", "begin at 0 resumed 0", "started", "model", "finish"]
    assert (report.steps_released, report.metrics, report.resumptions) == (STEPS, {"accuracy": STEPS / 10.0}, 0)


def test_a_resumption_is_on_disk_before_the_algorithm_releases_or_tells_anything(tmp_path: Path) -> None:
    stops = iter([False, False, True])
    with pytest.raises(TrainingStopped):
        _run(Counting([]), tmp_path, stop=lambda: next(stops))
    noted: list[str] = []
    report = _run(Counting(noted), tmp_path)
    assert noted[:3] == ["prepare from 2", "begin at 2 resumed 1", "started"]
    assert (report.resumptions, report.metrics) == (1, {"accuracy": STEPS / 10.0})


def _fail(step: int) -> None:
    if step == 3:
        raise RuntimeError("out of memory")


def test_an_error_in_a_step_that_may_have_released_something_counts_it(tmp_path: Path) -> None:
    with pytest.raises(TrainingAborted, match="an error in step 3"):
        _run(Counting([], at_step=_fail), tmp_path)
    assert checkpointed_step(tmp_path / CHECKPOINT) == 3


def test_an_error_in_a_step_that_releases_nothing_is_told_as_itself_and_the_step_is_run_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        _run(Counting([], steps_release=False, at_step=_fail), tmp_path)
    assert checkpointed_step(tmp_path / CHECKPOINT) < 3
    report = _run(Counting([], steps_release=False), tmp_path)
    assert report.metrics == {"accuracy": STEPS / 10.0}


def test_a_stop_in_the_middle_of_a_step_keeps_the_state_before_it(tmp_path: Path) -> None:
    def stop(step: int) -> None:
        if step == 4:
            raise TrainingStopped(3)

    with pytest.raises(TrainingStopped, match="after step 3"):
        _run(Counting([], at_step=stop), tmp_path)
    assert checkpointed_step(tmp_path / CHECKPOINT) == 3
    digest = request_digest(SPEC, PLAN, data_set_facts(SPEC.data))
    assert load_checkpoint(tmp_path / CHECKPOINT, digest, torch.device("cpu")).state.parameters.item() == 3.0


def test_another_runs_checkpoint_is_refused_before_anything_is_prepared(tmp_path: Path) -> None:
    _run(Counting([]), tmp_path)
    noted: list[str] = []
    other = NonPrivateTraining.model_validate(SPEC.model_dump(mode="json", exclude_none=True) | {"batch_size": 63})
    with pytest.raises(CheckpointRefused, match="another spec, plan or data set"):
        _run(Counting(noted, spec=other), tmp_path)
    assert not noted


def test_another_plan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    other = NonPrivateTraining.model_validate(SPEC.model_dump(mode="json", exclude_none=True) | {"steps": STEPS + 1})
    noted: list[str] = []
    with pytest.raises(InvalidParameter, match="plan must be the one that follows from the spec"):
        _run(Counting(noted, spec=other), tmp_path / "run")
    assert not noted
    assert not (tmp_path / "run").exists()


ALONE = [known for known in ALGORITHMS if not issubclass(known, NetworkTraining) and known.algorithm_name() != "comparison"]


@pytest.mark.parametrize("algorithm", ALONE, ids=lambda known: known.algorithm_name())
def test_what_cant_be_shared_is_refused_in_several_processes(algorithm: type[TrainingSpec]) -> None:
    spec = algorithm.example()
    spec.check_runtime(RUNTIME)
    with pytest.raises(InvalidParameter) as refused:
        spec.check_runtime(RuntimeSpec(processes=2))
    assert str(refused.value) == f"runtime.processes must be 1 for {spec.runs_alone}, got 2"


def test_networks_share_a_run_unless_it_has_canaries() -> None:
    for algorithm in (known for known in ALGORITHMS if issubclass(known, NetworkTraining)):
        spec = algorithm.example()
        spec.check_runtime(RuntimeSpec(processes=2))
        audited = algorithm.model_validate(spec.model_dump(mode="json") | {"audit": {"kind": "canaries", "canaries": 100}})
        with pytest.raises(InvalidParameter, match=r"runtime\.processes must be 1 for a run with canaries, got 2"):
            audited.check_runtime(RuntimeSpec(processes=2))
