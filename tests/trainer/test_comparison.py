"""Comparisons: every run is counted, a table and plots come out, and a stop in the middle loses nothing."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError

from tests.trainer.forked import ForkedPopen
from zetadp import accountants
from zetadp.accountants.events import Composed, NonPrivate, leaves
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.algorithms.comparison import parts_run
from zetadp.trainer.algorithms.comparison.results import ComparisonResult, groups
from zetadp.trainer.errors import PartFailed, TrainingStopped
from zetadp.trainer.specs.algorithms.comparison import Comparison
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.findings.runs import NoiseFindings, joined
from zetadp.trainer.specs.report import Metrics, Progress, RunReport, TrainingEvent

RUNTIME = RuntimeSpec(device="cpu", threads=1)


def _document(**changes: Any) -> dict[str, Any]:
    return Comparison.example().model_dump(mode="json", exclude_none=True) | changes


def _quick(**changes: Any) -> Comparison:
    """The example with few steps, a non-private baseline beside it, and a seed."""
    document = _document(epsilons=[1.0, 8.0], reproducible=True, seed=7)
    for part in document["parts"]:
        part["spec"]["steps"] = 12
    baseline = NonPrivateTraining.example().model_dump(mode="json", exclude_none=True)
    document["parts"] = [document["parts"][0], {"name": "plain", "spec": baseline | {"steps": 30}}]
    return Comparison.model_validate(document | changes)


def _run(spec: Comparison, workdir: Path, heard: list[TrainingEvent] | None = None, stop_after: int | None = None) -> RunReport:
    events: list[TrainingEvent] = [] if heard is None else heard

    def should_stop() -> bool:
        return stop_after is not None and sum(isinstance(event, Metrics) for event in events) >= stop_after

    return load_train(spec)(spec, spec.plan(), RUNTIME, workdir, report=events.append, should_stop=should_stop)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, RunReport, Path, list[TrainingEvent]]:
    spec, workdir, events = _quick(), tmp_path_factory.mktemp("comparison"), list[TrainingEvent]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        return spec, _run(spec, workdir, events), workdir, events


Finished = tuple[Comparison, RunReport, Path, list[TrainingEvent]]


def test_every_run_is_a_row_of_the_table(finished: Finished) -> None:
    spec, _, workdir, _ = finished
    result = ComparisonResult.model_validate_json((workdir / "artifacts/comparison.json").read_bytes())
    rows = list(csv.DictReader(io.StringIO((workdir / "artifacts/comparison.csv").read_text())))
    names = [run.name for run in spec.runs()]
    assert names == ["bound-1_epsilon-1", "bound-1_epsilon-8", "plain"]
    assert [run.name for run in result.runs] == names == [row["name"] for row in rows]
    for run, row in zip(result.runs, rows, strict=True):
        assert float(row["accuracy"]) == run.metrics["accuracy"]
        assert float(row["epsilon_by_itself"]) == run.epsilon_by_itself
        assert (float(row["epsilon_of_all_runs"]), row["random_origin"]) == (math.inf, "user_seed")
        assert run.peak_mebibytes > 50.0
    assert math.isinf(result.runs[2].epsilon_by_itself)
    assert result.runs[2].adjacency is None


def test_each_runs_own_epsilon_is_its_plans(finished: Finished) -> None:
    spec, _, workdir, _ = finished
    result = ComparisonResult.model_validate_json((workdir / "artifacts/comparison.json").read_bytes())
    for run, part in zip(result.runs[:2], spec.plan().parts[:2], strict=True):
        assert run.epsilon_by_itself == accountants.profile(part.plan.event).epsilon_upper(1e-5)
        assert run.target_epsilon is not None
        assert 0.99 * run.target_epsilon < run.epsilon_by_itself <= run.target_epsilon


def test_a_part_without_privacy_leaves_the_whole_without(finished: Finished) -> None:
    _, report, workdir, _ = finished
    result = ComparisonResult.model_validate_json((workdir / "artifacts/comparison.json").read_bytes())
    assert math.isinf(result.epsilon)
    assert isinstance(report.event, Composed)
    assert math.isinf(accountants.profile(report.event).epsilon_upper(1e-5))


def test_all_private_runs_are_composed() -> None:
    spec = Comparison.model_validate(_document(repetitions=3))
    plan = spec.plan()
    assert len(plan.parts) == 2 * 2 * 3
    counted = sum(leaves(plan.event).values())
    assert counted == plan.steps == 12 * 100
    whole = accountants.profile(plan.event).epsilon_upper(1e-5)
    assert whole > max(accountants.profile(part.plan.event).epsilon_upper(1e-5) for part in plan.parts)
    # Half of the parts in, half of the releases are counted.
    assert sum(leaves(plan.event_after(600)).values()) == 600
    assert sum(leaves(plan.event_after(650)).values()) == 650


def test_plots_name_every_part_and_are_reproducible(finished: Finished) -> None:
    _, _, workdir, _ = finished
    svg = (workdir / "artifacts/comparison.svg").read_bytes()
    text = " ".join(element.text or "" for element in ElementTree.fromstring(svg).iter())
    assert "no epsilon here holds against someone who knows the seed" in text
    for word in ("bound-1", "plain (no guarantee)", "accuracy", "training time [s]", "peak memory [MiB]"):
        assert word in text
    result = ComparisonResult.model_validate_json((workdir / "artifacts/comparison.json").read_bytes())
    assert parts_run.plots(result) == svg


def test_every_runs_model_is_an_artifact(finished: Finished) -> None:
    spec, _, workdir, _ = finished
    found = {path.name for path in (workdir / "artifacts").iterdir()}
    assert {f"{run.name}.model.safetensors" for run in spec.runs()} <= found


def test_progress_rises_over_all_parts_and_its_epsilon_is_never_below_the_truth(finished: Finished) -> None:
    _, _, _, events = finished
    progress = [event for event in events if isinstance(event, Progress)]
    steps = [event.step for event in progress]
    assert steps == sorted(steps)
    assert progress[-1].step == progress[-1].steps == 12 + 12 + 30
    first = next(event for event in progress if event.step == 12)
    assert first.epsilon >= 0.99


@pytest.mark.slow
def test_a_stopped_comparison_continues_where_it_was(finished: Finished, tmp_path: Path) -> None:
    spec = _quick(epsilons=[1.0])
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path, stop_after=1)
    request = (tmp_path / "parts/bound-1_epsilon-1/result.json").stat().st_mtime_ns
    again = _run(spec, tmp_path)
    assert (tmp_path / "parts/bound-1_epsilon-1/result.json").stat().st_mtime_ns == request
    assert (again.event, again.steps_released) == (spec.plan().event, 12 + 30)
    # The same seed: what the other comparison's first run reached.
    assert again.metrics == finished[1].metrics


@pytest.mark.slow
def test_a_part_that_fails_ends_the_comparison_with_its_reason(tmp_path: Path) -> None:
    spec = _quick()
    document = spec.model_dump(mode="json", exclude_none=True)
    document["parts"][0]["spec"]["optimizer"] = {"kind": "sgd", "learning_rate": 1e36}
    with pytest.raises(PartFailed, match=r"part bound-1_epsilon-1: the parameters stopped being finite"):
        _run(Comparison.model_validate(document), tmp_path)


def test_repetitions_are_summarised_by_mean_and_deviation() -> None:
    document = {
        "name": "x",
        "part": "x",
        "algorithm": "a",
        "repetition": 1,
        "epsilon_by_itself": 1.0,
        "delta": 1e-5,
        "adjacency": "add_remove",
        "target_epsilon": 1.0,
        "metrics": {"accuracy": 0.5},
        "steps": 1,
        "parameters": 1,
        "noise_std": 1.0,
        "seconds": 2.0,
        "peak_mebibytes": 3.0,
    }
    other = document | {"name": "y", "repetition": 2, "metrics": {"accuracy": 0.7}, "seconds": 4.0}
    result = ComparisonResult.model_validate(
        {
            "epsilon": 2.0,
            "delta": 1e-5,
            "unit": "record",
            "random_origin": "operating_system",
            "held_out": "public",
            "runs": [document, other],
        }
    )
    (group,) = groups(result)
    assert group.metrics["accuracy"] == pytest.approx((0.6, 0.2 / math.sqrt(2.0)))
    assert group.seconds == pytest.approx((3.0, math.sqrt(2.0)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repetitions": 100}, "parts, epsilons and repetitions must be at most 256 runs in total, got 400"),
        ({"epsilons": [1.0, 1.0]}, "epsilons must be distinct, got [1.0, 1.0]"),
        (
            {"epsilons": [1.0, 1.0000001]},
            "parts and epsilons must be such that all runs have different names, got 'bound-1_epsilon-1'",
        ),
    ],
)
def test_impossible_comparisons_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Comparison.model_validate(_document(**changes))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("data", {"kind": "digits_phase_pairs", "split_seed": 1, "test_fraction": 0.2}, "parts[1].spec.data must be the comparison's own"),
        ("evaluation", {"kind": "none"}, "parts[1].spec.evaluation must be 'public' as in the first part, got 'none'"),
        ("reproducible", True, "parts[1].spec.reproducible must be false"),
    ],
)
def test_parts_that_differ_where_they_must_agree_are_refused(path: str, value: object, message: str) -> None:
    document = _document()
    document["parts"][1]["spec"] |= {path: value} | ({"seed": 1} if path == "reproducible" else {})
    with pytest.raises(ValidationError, match=re.escape(message)):
        Comparison.model_validate(document)


def test_parts_for_other_units_or_deltas_are_refused() -> None:
    document = _document()
    document["parts"][1]["spec"]["privacy"]["delta"] = 1e-6
    with pytest.raises((PrivacyError, ValidationError), match=r"parts\.delta must be the same in all parts"):
        Comparison.model_validate(document).plan()


def test_two_parts_of_one_name_are_refused() -> None:
    document = _document()
    document["parts"][1]["name"] = document["parts"][0]["name"]
    with pytest.raises(ValidationError, match=r"parts must be trainings with different names"):
        Comparison.model_validate(document)


def test_a_name_that_has_no_room_for_its_budget_is_refused() -> None:
    document = _document()
    document["parts"][0]["name"] = "b" * 60
    with pytest.raises(ValidationError, match=r"parts must be given short names .* got 'b{60}_epsilon-1'"):
        Comparison.model_validate(document)


def test_a_large_budget_has_a_name_too() -> None:
    names = [run.name for run in Comparison.model_validate(_document(epsilons=[1e6])).runs()]
    assert names[0] == "bound-1_epsilon-1e06"


def test_parts_about_different_neighbours_claim_nothing_together() -> None:
    document = _document(epsilons=None)
    document["parts"][1]["spec"]["privacy"]["adjacency"] = "zero_out"
    event = Comparison.model_validate({name: value for name, value in document.items() if value is not None}).plan().event
    assert isinstance(event, NonPrivate)
    assert "add_remove and zero_out" in event.reason


def test_the_spec_survives_json() -> None:
    spec = _quick(repetitions=2)
    assert Comparison.model_validate_json(spec.model_dump_json()) == spec
    assert json.loads(spec.model_dump_json())["algorithm"] == "comparison"


def test_budgets_reach_the_methods_of_autoencoders_too() -> None:
    spof, sgd = Spof.example(), DpSgdLaplace.example()
    document = {"data": spof.data, "parts": [{"name": "rows", "spec": spof}], "epsilons": (1.0, 2.0)}
    assert [run.name for run in Comparison.model_validate(document).runs()] == ["rows_epsilon-1", "rows_epsilon-2"]
    document |= {"data": sgd.data, "parts": [{"name": "sums", "spec": sgd}]}
    first, second = Comparison.model_validate(document).plan().parts
    found = [accountants.profile(part.plan.event).epsilon_upper(part.plan.delta) for part in (first, second)]
    assert 0.99 < found[0] <= 1.0
    assert 1.98 < found[1] <= 2.0


def test_plots_say_what_all_runs_cost_together(finished: Finished) -> None:
    _, _, workdir, _ = finished
    result = ComparisonResult.model_validate_json((workdir / "artifacts/comparison.json").read_bytes())
    fresh = {**dict(result), "random_origin": "operating_system"}
    for epsilon, words in ((3.25, b"all runs combined: epsilon 3.25 at delta 1e-05 for one record"), (math.inf, b"combined: no guarantee")):
        assert words in parts_run.plots(ComparisonResult.model_validate(fresh | {"epsilon": epsilon}))


def test_several_processes_are_refused_before_any_part_runs(tmp_path: Path) -> None:
    spec = _quick()
    runtime = RuntimeSpec(device="cpu", threads=1, processes=2)
    with pytest.raises(InvalidParameter, match=r"runtime\.processes must be 1 for non_private \(part plain\), got 2"):
        load_train(spec)(spec, spec.plan(), runtime, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert not list(tmp_path.iterdir())


def test_the_noise_of_every_part_is_looked_at_and_one_violation_is_the_wholes(finished: Finished) -> None:
    _, report, _, _ = finished
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    good, bad, none = (NoiseFindings(status=status, numbers=5) for status in ("consistent", "violated", "not run"))
    assert joined([good, None, bad, none]) == NoiseFindings(status="violated", numbers=15)
    assert joined([none, good]) == NoiseFindings(status="consistent", numbers=10)
    assert joined([None]) is None


def test_canaries_in_a_part_are_refused() -> None:
    document = _document()
    document["parts"][0]["spec"] |= {"audit": {"kind": "canaries", "canaries": 500}}
    with pytest.raises(ValidationError, match=r"parts\[0\]\.spec\.audit"):
        Comparison.model_validate(document)
