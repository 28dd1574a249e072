r"""SPOF in its sound form: every row is released once, and nothing but what was released is trained on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from tests.data_sets import data_sets
from tests.selection import thinned
from tests.trainer.autoencoder_jobs import (
    DIGITS,
    FEATURES,
    USERS,
    Killed,
    Watch,
    equal,
    for_users,
    kill_at,
    model,
    run,
    spof,
    table_under,
)
from zetadp import accountants
from zetadp.accountants.events import Release
from zetadp.mechanisms import DuchiLinf, LocalGaussian, LocalLaplace
from zetadp.mechanisms.local import LocalRelease
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.algorithms.spof import row_release
from zetadp.trainer.engine import NoiseWatch
from zetadp.trainer.engine.autoencoders import RELEASED, Prepared
from zetadp.trainer.errors import CheckpointRefused, TrainingStopped
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.plans import RecordReleasePlan
from zetadp.trainer.specs.report import Metrics, Progress, RunReport, Started, TrainingEvent


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return table_under(tmp_path, monkeypatch)


# What is released


@pytest.mark.parametrize("mechanism", [LocalLaplace, LocalGaussian, DuchiLinf])
def test_each_row_is_released_once_by_the_plans_mechanism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: type[LocalRelease]
) -> None:
    watch = Watch(monkeypatch, mechanism)
    spec = spof(DIGITS | {"split_by": "position"}, method={"mechanism": mechanism.kind_name()}, steps=30, batch_size=512)
    report = run(spec, tmp_path)
    plan = spec.plan()
    assert isinstance(plan, RecordReleasePlan)
    assert watch.mechanisms == [plan.mechanism]
    assert watch.values[0].shape == (report.training_records, 64)
    assert report.event == plan.event == Release(mechanism=plan.mechanism)
    noise = watch.released[0] - watch.values[0]
    if not isinstance(plan.mechanism, DuchiLinf):
        # E|noise| is b, with variance b^2, or sqrt(2 / pi) std: six standard errors of 92032 numbers are 2 %, so 30 % would be seen.
        share = 1.0 if isinstance(plan.mechanism, LocalLaplace) else math.sqrt(2.0 / math.pi)
        assert noise.abs().mean().item() == pytest.approx(share * plan.noise_std, rel=6.0 / math.sqrt(noise.numel()))
        assert 6.0 / math.sqrt(noise.numel()) < 0.03
    else:
        assert watch.released[0].unique().tolist() == pytest.approx(plan.mechanism.outputs)
        variance = plan.mechanism.variance(watch.values[0].numpy()).mean()
        assert noise.square().mean().item() == pytest.approx(variance, rel=0.02)
    assert abs(noise.mean().item()) < 6.0 * math.sqrt(plan.mechanism.worst_variance / noise.numel())


def test_each_users_first_rows_are_released_and_no_more(table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, LocalLaplace)
    run(spof(table, privacy=for_users(), records_per_user=3), tmp_path)
    # Rows of the users come in turn: the first 36 rows are everybody's first three.
    whole = spof(table).data.read().training_features
    assert watch.values[0].shape == (3 * USERS, FEATURES)
    assert np.array_equal(watch.values[0].numpy(), whole[: 3 * USERS].astype(np.float64))


@pytest.mark.parametrize("denoising", thinned(["as_released", "clamped", "shrunk"], every=3))
@pytest.mark.parametrize("loss", ["cross_entropy", "taylor"])
def test_training_sees_nothing_but_the_released_rows(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denoising: str, loss: str
) -> None:
    spec = spof(table, method={"denoising": {"kind": denoising}}, loss=loss)
    run(spec, tmp_path / "whole")
    original = row_release.release

    def release_and_spoil(given: Spof, plan: RecordReleasePlan, prepared: Prepared, watch: NoiseWatch | None) -> Tensor:
        released = original(given, plan, prepared, watch)
        # Whatever looked at a row after this would carry NaN into the weights.
        prepared.rows.features.fill_(torch.nan)
        return released

    monkeypatch.setattr(row_release, "release", release_and_spoil)
    run(spec, tmp_path / "spoilt")
    assert equal(model(tmp_path / "whole"), model(tmp_path / "spoilt"))


def test_other_rows_with_the_same_release_give_the_same_model(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spof(table, evaluation={"kind": "public_held_out"})
    released = torch.from_numpy(np.random.default_rng(3).normal(size=(60, FEATURES)))
    monkeypatch.setattr(row_release, "release", lambda *_given: released)
    reports: list[RunReport] = []
    for name in ("first", "second"):
        reports.append(run(spec, tmp_path / name))
        path = tmp_path / "data" / "set" / "rows.csv"
        lines = [line.split(",")[0] + ",0,1,0" for line in path.read_text(encoding="ascii").splitlines()[1:]]
        path.write_text("\n".join(["who,a,b,c", *lines]) + "\n", encoding="ascii")
    assert equal(model(tmp_path / "first"), model(tmp_path / "second"))
    assert reports[0].metrics == reports[1].metrics


# What is written and told


def test_the_release_is_on_disk_before_anything_is_told(table: dict[str, Any], tmp_path: Path) -> None:
    present: list[bool] = []
    run(spof(table), tmp_path, report=lambda _event: present.append((tmp_path / RELEASED).is_file()))
    assert present
    assert all(present)


def test_report_and_events_state_what_ran(table: dict[str, Any], tmp_path: Path) -> None:
    spec, events = spof(table, evaluation={"kind": "public_held_out"}), list[TrainingEvent]()
    report = run(spec, tmp_path, events)
    plan = spec.plan()
    assert (report.steps_released, report.event, report.noise_std) == (12, plan.event, plan.noise_std)
    assert (report.training_records, report.training_units, report.test_records) == (60, 60, 60)
    assert report.parameters == 2 * 2 * FEATURES * 2
    assert report.random_origin == "user_seed"
    assert report.generator == "AES-256-CTR"
    assert report.held_out == "public"
    assert report.metrics is not None
    assert report.metrics.keys() == {"score", "score_all_zero", "score_column_means"}
    assert isinstance(events[0], Started)
    epsilons = {event.epsilon for event in events if isinstance(event, Progress)}
    assert epsilons == {accountants.profile(plan.event).epsilon_upper(1e-5)}
    assert any(isinstance(event, Metrics) for event in events)


def test_nothing_about_held_out_rows_leaves_unless_they_are_public(table: dict[str, Any], tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    report = run(spof(table), tmp_path, events)
    assert report.metrics is None
    assert not any(isinstance(event, Metrics) for event in events)


def test_the_model_file_says_how_to_build_the_network(table: dict[str, Any], tmp_path: Path) -> None:
    run(spof(table), tmp_path)
    with safe_open(str(tmp_path / "artifacts" / "model.safetensors"), framework="pt") as file:
        header = json.loads((file.metadata() or {})["zetadp"])
    assert header["model"] == {"kind": "distributed_autoencoder", "encoders": 2, "features": FEATURES, "hidden": 2}
    shapes = {name: tuple(value.shape) for name, value in model(tmp_path).items()}
    assert shapes == {"encoders": (2, FEATURES, 2), "decoder": (2, 2, FEATURES)}


# Killed, stopped, taken up again


@pytest.mark.parametrize("seeded", [True, False])
def test_a_killed_run_goes_on_with_the_same_released_rows(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeded: bool
) -> None:
    watch = Watch(monkeypatch, LocalLaplace)
    spec = spof(table) if seeded else spof(table, reproducible=False, seed=None)
    with pytest.raises(Killed):
        run(spec, tmp_path / "job", report=kill_at(5))
    before = (tmp_path / "job" / RELEASED).read_bytes()
    events: list[TrainingEvent] = []
    report = run(spec, tmp_path / "job", events)
    assert (tmp_path / "job" / RELEASED).read_bytes() == before
    assert len(watch.released) == 1
    assert events[0] == Started(resumed_from_step=5)
    assert report.resumptions == 1
    if seeded:
        run(spec, tmp_path / "whole")
        assert equal(model(tmp_path / "job"), model(tmp_path / "whole"))


def test_a_run_killed_before_its_first_checkpoint_keeps_its_release(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch, LocalLaplace)
    spec = spof(table, reproducible=False, seed=None)

    def die(_event: TrainingEvent) -> None:
        raise Killed

    with pytest.raises(Killed):
        run(spec, tmp_path, report=die)
    run(spec, tmp_path)
    assert len(watch.released) == 1


def test_a_draw_that_never_became_a_file_is_deleted(table: dict[str, Any], tmp_path: Path) -> None:
    left = tmp_path / f".{RELEASED}.4711.tmp"
    left.write_bytes(b"half a release")
    run(spof(table), tmp_path)
    assert not left.exists()


def test_a_release_that_is_gone_is_never_drawn_again(table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, LocalLaplace)
    with pytest.raises(Killed):
        run(spof(table), tmp_path, report=kill_at(5))
    (tmp_path / RELEASED).unlink()
    with pytest.raises(CheckpointRefused, match="the released values that the checkpoint was trained on are gone"):
        run(spof(table), tmp_path)
    assert len(watch.released) == 1


def test_another_runs_release_is_refused(table: dict[str, Any], tmp_path: Path) -> None:
    run(spof(table), tmp_path / "first")
    for broken, reason in (((tmp_path / "first" / RELEASED).read_bytes(), "another spec, plan or data set"), (b"noise", "isn't a file")):
        job = tmp_path / reason.replace(" ", "_")
        job.mkdir()
        (job / RELEASED).write_bytes(broken)
        with pytest.raises(CheckpointRefused, match=reason):
            run(spof(table, steps=13), job)


def test_a_stopped_run_goes_on(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        run(spof(table), tmp_path / "job", should_stop=lambda: True)
    run(spof(table), tmp_path / "job")
    run(spof(table), tmp_path / "whole")
    assert equal(model(tmp_path / "job"), model(tmp_path / "whole"))


# That it learns


@pytest.mark.slow
def test_on_fitbit_the_private_rows_lift_the_score_above_column_means_and_above_a_network_without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_sets(monkeypatch, "fitbit")
    scores: dict[float, dict[str, float]] = {}
    for epsilon in (10.0, 1e-6):
        privacy = {"adjacency": "replace_one", "unit": "day", "delta": 1e-5, "epsilon": epsilon}
        spec = spof(
            {"kind": "fitbit", "folder": "fitbit"},
            privacy=privacy,
            hidden=7,
            batch_size=64,
            steps=1500,
            optimizer={"kind": "adam", "learning_rate": 0.01, "schedule": {"kind": "cosine"}},
            evaluation={"kind": "public_held_out"},
        )
        report = run(spec, tmp_path / str(epsilon), runtime=RuntimeSpec(device="cpu", threads=1))
        assert report.metrics is not None
        scores[epsilon] = {str(name): value for name, value in report.metrics.items()}
    private, without = scores[10.0], scores[1e-6]
    assert private["score"] > private["score_column_means"] + 0.002
    assert private["score"] > without["score"] + 0.01
