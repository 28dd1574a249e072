"""Private selection: the best of a secret number of runs comes out, and nothing of the others, however it is stopped."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import scipy

from tests.trainer.forked import ForkedPopen
from tests.trainer.selection_documents import candidate, document
from zetadp.mechanisms.declared.runs import GeometricRuns, PoissonRuns
from zetadp.process import child_command
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.algorithms.comparison.part import PartOutcome
from zetadp.trainer.algorithms.private_selection import selected
from zetadp.trainer.algorithms.private_selection.drawing import DRAWN, Drawn
from zetadp.trainer.algorithms.private_selection.train import ENDED, RESULT, RUNS, SelectionResult
from zetadp.trainer.engine.checkpoint import read_tensors
from zetadp.trainer.engine.run import MODEL
from zetadp.trainer.errors import CheckpointRefused, TrainingStopped
from zetadp.trainer.request import TrainingRequest
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.report import RunReport, TrainingEvent

RUNTIME = RuntimeSpec(device="cpu", threads=1)
LEFT = {ENDED, MODEL, RESULT}
"""What a selection leaves, whatever happened in it."""
SIGNIFICANT = 1e-6

platform.processor()  # asks a process of its own, once, which no training stands in for


def _adam(rate: float) -> dict[str, Any]:
    return {"kind": "adam", "learning_rate": rate}


def _drawn(seed: int) -> tuple[int, ...]:
    """What a selection with this seed draws: by the documented rule, not by the code that draws."""
    secret = hashlib.sha256(f"zetadp private selection {seed}".encode()).hexdigest()
    return Drawn(digest="", secret=secret, resumptions=0).candidates(PoissonRuns(mean=1.5), 2)


@cache
def _seed(runs: int) -> int:
    """The first one by which there are so many runs, and both candidates are tried where there are several."""
    return next(seed for seed in range(10_000) if len(found := _drawn(seed)) == runs and len(set(found)) == min(runs, 2))


def _quick(runs: int, *rates: float) -> PrivateSelection:
    candidates = [{"name": f"number-{n}", "spec": candidate(optimizer=_adam(rate))} for n, rate in enumerate(rates or (0.001, 0.05))]
    laws = {"runs": {"kind": "poisson", "mean": 1.5}, "reproducible": True, "seed": _seed(runs)}
    return PrivateSelection.model_validate(document(candidates=candidates, **laws))


def _run(
    spec: PrivateSelection, workdir: Path, heard: list[TrainingEvent] | None = None, should_stop: Callable[[], bool] = lambda: False
) -> RunReport:
    events: list[TrainingEvent] = [] if heard is None else heard
    return load_train(spec)(spec, spec.plan(), RUNTIME, workdir, report=events.append, should_stop=should_stop)


def _told(events: list[TrainingEvent]) -> list[object]:
    """All that they say; epsilon to eight digits, since an accountant's answer has others after other questions to it."""
    return [{name: float(f"{value:.7g}") if name == "epsilon" else value for name, value in event.model_dump().items()} for event in events]


def _files(workdir: Path) -> set[str]:
    return {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}


class Observed:
    """One selection, and every run of it, as nobody outside sees them."""

    def __init__(self, spec: PrivateSelection, workdir: Path) -> None:
        self.spec, self.workdir, self.events = spec, workdir, list[TrainingEvent]()
        self.reports: list[RunReport | None] = []
        self.models: list[bytes] = []
        original = selected._ended

        def watched(folder: Path, *rest: Any) -> RunReport | None:
            self.reports.append(found := original(folder, *rest))
            self.models.append((folder / MODEL).read_bytes() if found is not None else b"")
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", ForkedPopen)
            patch.setattr(selected, "_ended", watched)
            self.report = _run(spec, workdir, self.events)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Observed]:
    """Selections of no run, and of four."""
    return {runs: Observed(_quick(runs), tmp_path_factory.mktemp("selection")) for runs in (0, 4)}


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


def test_the_most_accurate_runs_model_comes_out(observed: dict[int, Observed]) -> None:
    seen = observed[4]
    accuracies = [report.metrics["accuracy"] for report in seen.reports if report is not None and report.metrics is not None]
    assert len(set(accuracies)) == len(accuracies) == 4
    best = accuracies.index(max(accuracies))
    assert seen.report.metrics == seen.reports[best].metrics
    assert (seen.workdir / MODEL).read_bytes() == seen.models[best]
    result = SelectionResult.model_validate_json((seen.workdir / RESULT).read_bytes())
    name = f"number-{_drawn(_seed(4))[best]}"
    assert (result.selected, result.metrics) == (name, seen.report.metrics)
    assert seen.report.selected is not None
    assert seen.report.selected.candidate == name


def test_nothing_of_any_other_run_is_left(observed: dict[int, Observed]) -> None:
    seen = observed[4]
    assert _files(seen.workdir) == LEFT
    left = b"".join((seen.workdir / name).read_bytes() for name in LEFT)
    losing = [report for report in seen.reports if report is not None and report.metrics != seen.report.metrics]
    assert len(losing) == 3
    for report in losing:
        assert not any(repr(value).encode() in left for value in (report.metrics or {}).values())


def test_what_is_told_is_the_same_whatever_the_number_of_runs(observed: dict[int, Observed]) -> None:
    none, four = observed[0], observed[4]
    assert len(four.reports) == 4
    assert not none.reports
    assert _told(none.events) == _told(four.events)
    assert [event.event for event in four.events] == ["started", "stage", "progress"]
    assert _files(none.workdir) == _files(four.workdir) == LEFT
    outcome = {"metrics", "parameters", "selected"}
    assert none.report.model_dump(exclude=outcome) == four.report.model_dump(exclude=outcome)
    assert (four.report.training_seconds, four.report.checkpoints_released) == (0.0, 0)


def test_without_a_run_there_is_no_model_and_that_is_said(observed: dict[int, Observed]) -> None:
    seen = observed[0]
    header, tensors = read_tensors(seen.workdir / MODEL, "no model file")
    assert (json.loads(header)["format"], tensors) == ("zetadp no model 1", {})
    result = SelectionResult.model_validate_json((seen.workdir / RESULT).read_bytes())
    assert (result.selected, result.metrics) == (None, {})
    assert (seen.report.metrics, seen.report.parameters) == (None, 0)


def test_runs_that_all_fail_look_as_none(observed: dict[int, Observed], tmp_path: Path) -> None:
    seen = Observed(_quick(2, 1e36, 1e37), tmp_path)
    assert seen.reports == [None, None]
    assert _told(seen.events) == _told(observed[0].events)
    assert _files(tmp_path) == LEFT
    assert seen.report == observed[0].report
    assert (tmp_path / MODEL).read_bytes() == (observed[0].workdir / MODEL).read_bytes()


def test_a_run_that_fails_loses_against_one_that_does_not(tmp_path: Path) -> None:
    seen = Observed(_quick(2, 0.01, 1e36), tmp_path)
    assert sum(report is None for report in seen.reports) == 1
    assert seen.report.selected is not None
    assert seen.report.selected.candidate == "number-0"


def test_private_held_out_records_score_the_runs_by_their_noisy_counts(tmp_path: Path) -> None:
    counted = {"evaluation": {"kind": "private_accuracy", "noise_std": 5.0, "every_steps": 3}}
    candidates = [{"name": f"number-{n}", "spec": candidate(optimizer=_adam(rate), **counted)} for n, rate in enumerate((0.001, 0.05))]
    laws = {"runs": {"kind": "poisson", "mean": 1.5}, "reproducible": True, "seed": _seed(2)}
    seen = Observed(PrivateSelection.model_validate(document(candidates=candidates, **laws)), tmp_path)
    scores = [report.metrics["accuracy"] for report in seen.reports if report is not None and report.metrics is not None]
    assert len(scores) == 2
    assert seen.report.metrics == {"accuracy": max(scores)}
    assert seen.report.held_out == "private"
    assert _files(tmp_path) == LEFT


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("test", ["noise_test", "sample_test"])
def test_a_run_whose_noise_or_samples_are_not_as_claimed_ends_all(test: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = selected.outcome

    def violated(folder: Path, request: TrainingRequest) -> PartOutcome | None:
        if (found := original(folder, request)) is None:
            return None
        findings = getattr(found.report, test)
        assert findings.status != "violated"
        report = RunReport.model_construct(
            **dict(found.report) | {test: type(findings).model_construct(**dict(findings) | {"status": "violated"})}
        )
        return PartOutcome.model_construct(report=report, measured=found.measured)

    monkeypatch.setattr(selected, "outcome", violated)
    for _ in range(2):  # nor at another attempt
        with pytest.raises(selected.RunsDontHold, match="aren't as claimed"):
            _run(_quick(2), tmp_path)
    assert not (tmp_path / MODEL).exists()


@pytest.mark.usefixtures("_forked")
def test_a_stopped_selection_goes_on_with_the_same_runs(observed: dict[int, Observed], tmp_path: Path) -> None:
    spec = observed[4].spec
    with pytest.raises(TrainingStopped) as stopped:
        _run(spec, tmp_path, should_stop=(tmp_path / RUNS / "2" / "result.json").exists)
    assert stopped.value.step == 1
    secret = Drawn.model_validate_json((tmp_path / RUNS / DRAWN).read_bytes()).secret
    ended = (tmp_path / RUNS / "1" / "result.json").stat().st_mtime_ns
    second = tmp_path / RUNS / "2" / "result.json"
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path, should_stop=second.exists)
    assert Drawn.model_validate_json((tmp_path / RUNS / DRAWN).read_bytes()).secret == secret
    assert (tmp_path / RUNS / "1" / "result.json").stat().st_mtime_ns == ended
    again = _run(spec, tmp_path)
    assert again.model_dump(exclude={"resumptions"}) == observed[4].report.model_dump(exclude={"resumptions"})
    assert again.resumptions == 2
    assert (tmp_path / MODEL).read_bytes() == (observed[4].workdir / MODEL).read_bytes()


@pytest.mark.slow
def test_a_killed_selection_goes_on_with_the_same_runs(observed: dict[int, Observed], tmp_path: Path) -> None:
    spec = observed[4].spec
    request = TrainingRequest(spec=spec, runtime=RUNTIME, plan=spec.plan())
    (tmp_path / "request.json").write_text(request.model_dump_json())
    command = child_command("zetadp.trainer.child", str(tmp_path))
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / RUNS / "2" / "request.json").exists():
            assert killed.poll() is None
            time.sleep(0.05)
    finally:
        killed.kill()
        killed.wait()
    drawn = (tmp_path / RUNS / DRAWN).read_bytes()
    first = (tmp_path / RUNS / "1" / "result.json").stat().st_mtime_ns
    assert not (tmp_path / MODEL).exists()
    going_on = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    while not (tmp_path / RUNS / "3").exists():
        assert going_on.poll() is None
        time.sleep(0.05)
    again = Drawn.model_validate_json((tmp_path / RUNS / DRAWN).read_bytes())
    assert (again.secret, again.resumptions) == (Drawn.model_validate_json(drawn).secret, 1)
    assert (tmp_path / RUNS / "1" / "result.json").stat().st_mtime_ns == first
    told, _ = going_on.communicate()
    assert going_on.returncode == 0
    assert [json.loads(line)["event"] for line in told.splitlines()] == ["started", "stage", "progress", "finished"]
    report = RunReport.model_validate_json((tmp_path / "result.json").read_bytes())
    assert report.model_dump(exclude={"resumptions"}) == observed[4].report.model_dump(exclude={"resumptions"})
    assert (tmp_path / MODEL).read_bytes() == (observed[4].workdir / MODEL).read_bytes()
    assert not (tmp_path / RUNS).exists()


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("damage", ["gone", "damaged", "other"])
def test_without_what_was_drawn_no_second_selection_is_made(damage: str, tmp_path: Path) -> None:
    spec = _quick(2)
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path, should_stop=(tmp_path / RUNS / "1" / "result.json").exists)
    path = tmp_path / RUNS / DRAWN
    if damage == "gone":
        path.unlink()
    elif damage == "damaged":
        path.write_bytes(b"{}")
    else:
        spec = _quick(2, 0.02, 0.03)
    with pytest.raises(CheckpointRefused, match="second selection" if damage != "other" else "for another spec"):
        _run(spec, tmp_path)


@pytest.mark.usefixtures("_forked")
def test_one_killed_after_its_runs_were_deleted_ends_with_the_same_report(observed: dict[int, Observed], tmp_path: Path) -> None:
    shutil.copytree(observed[4].workdir, tmp_path, dirs_exist_ok=True)
    (tmp_path / RUNS / "1").mkdir(parents=True)  # a part of them was left
    events: list[TrainingEvent] = []
    assert _run(observed[4].spec, tmp_path, events) == observed[4].report
    assert _told(events) == _told(observed[4].events)
    assert not (tmp_path / RUNS).exists()


def test_secrets_differ_and_candidates_are_drawn_uniformly_as_often_as_the_law_says() -> None:
    law, count = GeometricRuns(mean=3.0), 5
    secrets = [hashlib.sha256(f"secret {number}".encode()).hexdigest() for number in range(2000)]
    drawn = [Drawn(digest="", secret=secret, resumptions=0).candidates(law, count) for secret in secrets]
    picked = Counter(candidate for one in drawn for candidate in one)
    assert set(picked) == set(range(count))
    assert scipy.stats.chisquare(list(picked.values())).pvalue > SIGNIFICANT
    lengths = Counter(min(len(one), 8) for one in drawn)
    law_of = [float(scipy.stats.geom.pmf(k, 1.0 / 3.0)) for k in range(1, 8)]
    expected = [len(drawn) * share for share in (*law_of, 1.0 - sum(law_of))]
    found = [lengths[k] for k in range(1, 9)]
    assert scipy.stats.chisquare(found, expected).pvalue > SIGNIFICANT
    # A mean that is 30 % larger would be seen.
    wrong = [float(scipy.stats.geom.pmf(k, 1.0 / 3.9)) for k in range(1, 8)]
    assert scipy.stats.chisquare(found, [len(drawn) * share for share in (*wrong, 1.0 - sum(wrong))]).pvalue < SIGNIFICANT


@pytest.mark.usefixtures("_forked")
def test_the_number_of_runs_does_not_follow_from_the_spec(tmp_path: Path) -> None:
    once = {"runs": {"kind": "geometric", "mean": 2.0}}  # at least
    spec = PrivateSelection.model_validate(document(candidates=[{"name": "one", "spec": candidate()}], **once))
    found: set[str] = set()
    for name in ("one", "two"):
        with pytest.raises(TrainingStopped):
            _run(spec, tmp_path / name, should_stop=lambda: True)
        found.add(Drawn.model_validate_json((tmp_path / name / RUNS / DRAWN).read_bytes()).secret)
    assert len(found) == 2
