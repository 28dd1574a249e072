r"""A whole run in this process: what it tells, what it writes, how it resumes, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tests.selection import thinned
from zetadp import accountants
from zetadp.accountants.events import leaves
from zetadp.mechanisms import ComplexGaussian, Gaussian, NoiseSource, RandomOrigin, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ExecutionPlan, RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.errors import CheckpointRefused, TrainingAborted, TrainingDiverged, TrainingStopped
from zetadp.trainer.specs.execution_plan import FlatClipping, PrivateEvaluation
from zetadp.trainer.specs.report import CheckpointWritten, Metrics, Progress, RunReport, Started, TrainingEvent
from zetadp.trainer.specs.sampling import PoissonSampling

RUNTIME = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
PUBLIC = {"kind": "public_held_out"}
COUNTS = {"kind": "private_accuracy", "noise_std": 5.0, "every_steps": 5}
ADAPTIVE = {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.05}


def _run(
    spec: ZetaDpSgd,
    workdir: Path,
    events: list[TrainingEvent] | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    runtime: RuntimeSpec = RUNTIME,
    plan: ExecutionPlan | None = None,
) -> RunReport:
    found: list[TrainingEvent] = [] if events is None else events
    return load_train(spec)(spec, plan or spec.plan(), runtime, workdir, report=found.append, should_stop=should_stop)


def _stop_after(events: list[TrainingEvent], step: int) -> Callable[[], bool]:
    # Asked after a step, before its own checkpoint is written: the step before is the last one in ``events``.
    return lambda: any(isinstance(event, CheckpointWritten) and event.step >= step - 1 for event in events)


def _model(workdir: Path) -> bytes:
    return (workdir / "artifacts" / "model.safetensors").read_bytes()


def _changed(spec_json: dict[str, Any], **changes: Any) -> ZetaDpSgd:
    return ZetaDpSgd.model_validate({**spec_json, **changes})


def test_report_states_what_ran(spec: ZetaDpSgd, tmp_path: Path) -> None:
    report = _run(spec, tmp_path)
    assert report.event == spec.plan().event
    assert report.steps_released == 12
    assert report.noise_std == 2.0
    assert report.random_origin is RandomOrigin.USER_SEED
    assert (report.resumptions, report.training_records, report.training_units, report.test_records) == (0, 710, 710, 181)
    assert (report.held_out, report.metrics) == ("none", None)
    assert report.parameters == 2 * (64 * 8 + 8 + 8 * 10 + 10)
    assert set(report.versions) == {"python", "torch", "numpy", "zetadp"}
    assert report.hardware.endswith("1 thread")
    assert RunReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize("declared", thinned([500, 1000], every=2))
def test_a_run_goes_by_the_number_that_was_declared(spec_json: dict[str, Any], tmp_path: Path, declared: int) -> None:
    spec = _changed(spec_json, declared_units=declared)
    report = _run(spec, tmp_path)
    assert (report.training_records, report.training_units) == (710, declared)
    assert report.event == spec.plan().event
    sampled = next(iter(leaves(report.event)))
    assert sampled.probability == 48 / declared


def test_randomness_comes_from_the_operating_system_unless_the_job_is_reproducible(spec_json: dict[str, Any], tmp_path: Path) -> None:
    fresh = {**spec_json, "reproducible": False, "steps": 1}
    del fresh["seed"]
    spec = ZetaDpSgd.model_validate(fresh)
    reports = [_run(spec, tmp_path / name) for name in ("a", "b")]
    assert all(report.random_origin is RandomOrigin.OPERATING_SYSTEM for report in reports)
    assert _model(tmp_path / "a") != _model(tmp_path / "b")


def test_a_network_learns_from_noisy_gradients(spec_json: dict[str, Any], tmp_path: Path) -> None:
    # Ten classes: chance is 0.1.
    report = _run(_changed(spec_json, steps=60, expected_batch_size=128, evaluation=PUBLIC), tmp_path, runtime=RuntimeSpec(threads=1))
    assert report.held_out == "public"
    assert report.metrics is not None
    assert report.metrics["accuracy"] > 0.8


@pytest.mark.slow
def test_microbatch_size_changes_a_run_by_rounding_only(spec: ZetaDpSgd, tmp_path: Path) -> None:
    for size in (5, 64):
        _run(spec, tmp_path / str(size), runtime=RuntimeSpec(microbatch_size=size, threads=1))
    models = [safe_open(str(tmp_path / str(size) / "artifacts" / "model.safetensors"), framework="pt") for size in (5, 64)]
    for name in models[0].keys():  # noqa: SIM118 (not a mapping)
        # Adam's first steps divide by the gradient's own size, which magnifies rounding where a gradient is near 0.
        assert torch.allclose(models[0].get_tensor(name), models[1].get_tensor(name), atol=1e-3)


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(spec: ZetaDpSgd, tmp_path: Path) -> None:
    whole = _run(spec, tmp_path / "whole")
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped, match="stopped after step 5"):
        _run(spec, tmp_path / "parts", events, should_stop=_stop_after(events, 5))
    resumed_events: list[TrainingEvent] = []
    resumed = _run(spec, tmp_path / "parts", resumed_events)
    assert resumed_events[0] == Started(resumed_from_step=5)
    assert _model(tmp_path / "parts") == _model(tmp_path / "whole")
    assert (resumed.steps_released, resumed.event) == (whole.steps_released, whole.event)


def test_resumptions_count_attempts_that_died_before_their_own_checkpoint(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path, events, should_stop=_stop_after(events, 3))

    def crash(event: TrainingEvent) -> None:
        raise RuntimeError("killed here")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="killed here"):
            load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=crash, should_stop=lambda: False)
    assert _run(spec, tmp_path).resumptions == 3


def test_a_state_that_a_killed_attempt_was_writing_is_not_kept(spec_json: dict[str, Any], tmp_path: Path) -> None:
    # Its step is run again with other noise: whoever found both would have two releases where the event counts one.
    left, other = tmp_path / ".checkpoint.safetensors.123.tmp", tmp_path / ".other.tmp"
    for path in (left, other):
        path.write_bytes(b"half a state")
    _run(_changed(spec_json, steps=1), tmp_path)
    assert not left.exists()
    assert other.exists()


def test_a_stop_before_the_first_step_releases_nothing(spec: ZetaDpSgd, tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped, match="stopped after step 0"):
        _run(spec, tmp_path, should_stop=lambda: True)


@pytest.mark.slow
def test_a_finished_run_started_again_writes_the_same_model(spec_json: dict[str, Any], tmp_path: Path) -> None:
    # Killed between its model and its result: with fresh randomness a step run again would be a second release.
    fresh = {**spec_json, "reproducible": False}
    del fresh["seed"]
    spec = ZetaDpSgd.model_validate(fresh)
    _run(spec, tmp_path)
    first = _model(tmp_path)
    assert _run(spec, tmp_path).steps_released == 12
    assert _model(tmp_path) == first


def test_a_checkpoint_of_another_spec_is_refused(spec: ZetaDpSgd, spec_json: dict[str, Any], tmp_path: Path) -> None:
    _run(spec, tmp_path)
    with pytest.raises(CheckpointRefused, match="it was written for another spec, plan or data set"):
        _run(_changed(spec_json, optimizer={"kind": "adam", "learning_rate": 0.03}), tmp_path)


def test_metrics_of_public_records_are_published_only_of_a_state_in_the_checkpoint(spec_json: dict[str, Any], tmp_path: Path) -> None:
    spec = _changed(spec_json, evaluation=PUBLIC)
    seen: list[tuple[int, int]] = []

    def report(event: TrainingEvent) -> None:
        if isinstance(event, Metrics):
            with safe_open(str(tmp_path / "checkpoint.safetensors"), framework="pt") as file:
                seen.append((event.step, json.loads(file.metadata()["zetadp"])["step"]))

    load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=report, should_stop=lambda: False)
    assert seen == [(step, step) for step in range(1, 13)]


def test_nothing_about_held_out_records_is_told_unless_they_are_declared_public(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    _run(spec, tmp_path, events)
    assert not [event for event in events if isinstance(event, Metrics)]


def test_private_evaluations_are_released_as_often_as_the_event_says(spec_json: dict[str, Any], tmp_path: Path) -> None:
    spec, events, released = _changed(spec_json, evaluation=COUNTS), list[TrainingEvent](), list[float]()
    original = Gaussian.release

    def release(self: Gaussian, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        noisy = original(self, value, source)
        released.append((noisy - value).item())
        return noisy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "release", release)
        report = _run(spec, tmp_path, events)
    metrics = [event for event in events if isinstance(event, Metrics)]
    assert [event.step for event in metrics] == [5, 10, 12]
    assert all(event.held_out == "private" and set(event.metrics) == {"accuracy"} for event in metrics)
    assert report.event == spec.plan().event
    assert (report.held_out, report.metrics) == ("private", metrics[-1].metrics)
    assert len(released) == len(leaves(report.event)) + 1 == 3
    assert 0.0 not in released


def test_a_private_evaluation_is_told_again_after_a_crash_and_not_released_again(spec_json: dict[str, Any], tmp_path: Path) -> None:
    fresh = {**spec_json, "reproducible": False, "evaluation": COUNTS}
    del fresh["seed"]
    spec, first, second = ZetaDpSgd.model_validate(fresh), list[TrainingEvent](), list[TrainingEvent]()

    def crash(event: TrainingEvent) -> None:
        first.append(event)
        if isinstance(event, Metrics):
            raise RuntimeError("killed here")

    with pytest.raises(TrainingAborted, match="an error in step 5"):
        load_train(spec)(spec, spec.plan(), RUNTIME, tmp_path, report=crash, should_stop=lambda: False)
    _run(spec, tmp_path, second)
    told = [event for event in second if isinstance(event, Metrics)]
    # The same noise: a second release for the same step isn't in the event.
    assert told[0] == first[-1]
    assert [event.step for event in told] == [5, 10, 12]


SELDOM = RuntimeSpec(microbatch_size=16, checkpoint_seconds=3600.0, threads=1)


def test_what_a_private_evaluation_told_is_in_a_checkpoint_however_seldom_they_are_written(
    spec_json: dict[str, Any], tmp_path: Path
) -> None:
    events: list[TrainingEvent] = []
    _run(_changed(spec_json, evaluation=COUNTS), tmp_path, events, runtime=SELDOM)
    order = [(event.event, event.step) for event in events if isinstance(event, CheckpointWritten | Metrics)]
    told = [place for place, (what, _) in enumerate(order) if what == "metrics"]
    assert [order[place - 1 : place + 1] for place in told] == [[("checkpoint", step), ("metrics", step)] for step in (5, 10, 12)]


def test_a_stopped_run_loses_no_step_however_seldom_checkpoints_are_written(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    answers = iter([False] * 4 + [True])  # before the first step, and after each
    with pytest.raises(TrainingStopped, match="stopped after step 4"):
        _run(spec, tmp_path, events, should_stop=lambda: next(answers), runtime=SELDOM)
    assert CheckpointWritten(step=4) in events
    _run(spec, tmp_path, events)
    assert Started(resumed_from_step=4) in events


def test_a_noisy_accuracy_stays_in_the_unit_interval(spec_json: dict[str, Any], tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    _run(_changed(spec_json, evaluation=COUNTS | {"noise_std": 1e4, "every_steps": 1}), tmp_path, events)
    told = {event.metrics["accuracy"] for event in events if isinstance(event, Metrics)}
    assert told == {0.0, 1.0}


@pytest.mark.slow
def test_checkpoints_are_counted_over_all_attempts(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path, events, should_stop=_stop_after(events, 4))
    report = _run(spec, tmp_path, events)
    assert report.checkpoints_released == sum(1 for event in events if isinstance(event, CheckpointWritten)) == 12


SCHEDULED = {"kind": "flat", "schedule": {"kind": "cosine", "final_share": 0.1}}


@pytest.mark.parametrize(("optimizer", "clipping"), thinned([("nadam", ADAPTIVE), ("rmsprop", ADAPTIVE), ("sgd", SCHEDULED)], every=2))
def test_a_resumed_run_whose_bound_changes_equals_an_uninterrupted_one(
    spec_json: dict[str, Any], tmp_path: Path, optimizer: str, clipping: dict[str, Any]
) -> None:
    schedule = {"kind": "cosine", "final_share": 0.1}
    spec = _changed(spec_json, clipping=clipping, optimizer={"kind": optimizer, "learning_rate": 0.01, "schedule": schedule})
    _run(spec, tmp_path / "whole")
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path / "parts", events, should_stop=_stop_after(events, 5))
    _run(spec, tmp_path / "parts")
    assert _model(tmp_path / "parts") == _model(tmp_path / "whole")


def test_progress_starts_at_step_one_and_ends_with_the_runs_tight_epsilon(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    _run(spec, tmp_path, events)
    progress = [event for event in events if isinstance(event, Progress)]
    assert (progress[0].step, progress[-1].step) == (1, 12)
    assert progress[-1].epsilon == accountants.profile(spec.plan().event).epsilon(1e-4).upper


def test_live_epsilon_is_never_below_the_truth_nor_above_the_whole_run(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    _run(spec, tmp_path, events)
    first = next(event for event in events if isinstance(event, Progress))
    assert accountants.profile(spec.plan().event_after(1)).epsilon(1e-4).lower <= first.epsilon
    assert first.epsilon <= accountants.profile(spec.plan().event).epsilon(1e-4).upper


def test_nothing_private_is_told(spec: ZetaDpSgd, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    report = _run(spec, tmp_path, events)
    told = set().union(*(event.model_dump() for event in events)) | set(report.model_dump())
    assert told == {
        "event", "resumed_from_step", "step", "steps", "epsilon", "delta", "seconds", "steps_released", "noise_std", "random_origin",
        "generator", "resumptions", "held_out", "metrics", "test_records", "training_records", "training_units", "checkpoints_released",
        "parameters", "versions", "hardware", "training_seconds", "noise_test", "sample_test",
    }  # fmt: skip
    # Of the noise a verdict and a public count alone: sums over it would tell of the data (accountants/proofs/audit.md, section 4).
    numbers = 12 * report.parameters
    assert report.noise_test is not None
    assert report.noise_test.model_dump() == {"status": "consistent", "numbers": numbers}
    # The same of samples (section 5): how many there were follows from the steps.
    assert report.sample_test is not None
    assert report.sample_test.model_dump() == {"status": "consistent", "samples": 12}


def test_model_file_tells_its_architecture_in_the_header(spec: ZetaDpSgd, tmp_path: Path) -> None:
    _run(spec, tmp_path)
    with safe_open(str(tmp_path / "artifacts" / "model.safetensors"), framework="pt") as file:
        header = json.loads(file.metadata()["zetadp"])
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    assert header["model"] == {"kind": "complex_mlp", "hidden": [8], "activation": "cardioid", "head": "magnitude"}
    assert (header["shape"], header["is_complex"], header["classes"]) == ([64], True, 10)
    assert shapes == {"0_linear.weight": [8, 64, 2], "0_linear.bias": [8, 2], "2_linear.weight": [10, 8, 2], "2_linear.bias": [10, 2]}


def test_parameters_that_blow_up_end_the_run_with_the_step_and_advice(spec_json: dict[str, Any], tmp_path: Path) -> None:
    spec = _changed(spec_json, optimizer={"kind": "sgd", "learning_rate": 1e40})
    with pytest.raises(TrainingDiverged, match=r"stopped being finite at step \d+: use a smaller learning_rate or clipping_bound"):
        _run(spec, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_cuda_device_is_refused_by_name(spec: ZetaDpSgd, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidParameter, match=r"runtime\.device must be 'cpu' or 'auto' on this machine, which has no CUDA device, got 'cuda'"
    ):
        _run(spec, tmp_path, runtime=RuntimeSpec(device="cuda"))


def test_a_unit_that_the_rows_are_not_is_refused(spec_json: dict[str, Any]) -> None:
    spec = _changed(spec_json, privacy={**spec_json["privacy"], "unit": "patient"})
    with pytest.raises(InvalidParameter, match=r"privacy\.unit must be 'record' \(one row of this data set\), got 'patient'"):
        spec.plan()


def test_an_expected_batch_beyond_the_records_is_refused(spec_json: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected_batch_size must be <= the 710 training records, got 714"):
        _changed(spec_json, expected_batch_size=714).plan()


def _plan(spec: ZetaDpSgd, **changes: Any) -> ExecutionPlan:
    plan = spec.plan()
    parts = {name: getattr(plan, name) for name in ("sampling", "clipping", "mechanism", "steps", "delta")}
    return ExecutionPlan(**{**parts, **changes})


def _mechanism(std: float = 2.0, l2: float = 1.0, **more: Any) -> ComplexGaussian:
    return ComplexGaussian(std=std, sensitivity=Sensitivity(l2=l2, **{"adjacency": "add_remove", "unit": "record", **more}))


def _evaluation() -> PrivateEvaluation:
    noise = Gaussian(std=9.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    return PrivateEvaluation(mechanism=noise, units=181, every_steps=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    thinned(
        [
            ({"steps": 13}, r"plan\.steps must be 12, as the spec says, got 13"),
            ({"delta": 1e-3}, r"plan\.delta must be 0\.0001"),
            ({"sampling": PoissonSampling(records=711, expected_batch_size=48)}, r"plan\.sampling\.records must be 710"),
            ({"sampling": PoissonSampling(records=710, expected_batch_size=49)}, r"plan\.sampling\.expected_batch_size must be 48"),
            ({"clipping": FlatClipping(bound=2.0), "mechanism": _mechanism(l2=2.0)}, r"plan\.clipping\.bound must be 1\.0"),
            ({"mechanism": _mechanism(std=1.9)}, r"plan\.mechanism\.std must be 2\.0"),
            ({"evaluation": _evaluation()}, r"plan\.evaluation[.a-z0-9]* must be absent, as the spec says"),
            ({"mechanism": _mechanism(adjacency="zero_out")}, r"plan\.mechanism\.sensitivity\.adjacency must be"),
            ({"mechanism": _mechanism(unit="user")}, r"plan\.mechanism\.sensitivity\.unit must be 'record'"),
            (
                {"mechanism": _mechanism(l2_real=0.5)},
                r"plan\.mechanism\.sensitivity\.l2_real must be absent, as the spec says, got 0\.5",
            ),
        ],
        every=3,
    ),
    ids=["steps", "delta", "records", "batch", "bound", "noise", "evaluation", "adjacency", "unit", "unenforced bound"],
)
def test_a_plan_that_disagrees_with_its_spec_is_refused(spec: ZetaDpSgd, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        _run(spec, tmp_path, plan=_plan(spec, **changes))
    assert list(tmp_path.iterdir()) == []
