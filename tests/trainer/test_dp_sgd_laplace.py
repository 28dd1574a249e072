r"""DP-SGD of autoencoders: what is accounted is what the loop did, with Laplace noise for l1 bounds and Gaussian noise for l2 bounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from tests.selection import thinned
from tests.trainer.autoencoder_jobs import DIGITS, FEATURES, ROWS, USERS, Killed, Watch, equal, kill_at, model, run, table_under
from zetadp import accountants
from zetadp.accountants.events import PoissonSampled, Release, Repeated
from zetadp.mechanisms import Gaussian, Laplace, Mechanism, RandomStream
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ExecutionPlan
from zetadp.trainer.engine.autoencoders import ClippedRows
from zetadp.trainer.engine.gradients import sampling
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.execution_plan import FlatClipping, L1Clipping
from zetadp.trainer.specs.report import Started, TrainingEvent

KINDS: dict[str, type[Mechanism]] = {"laplace": Laplace, "gaussian": Gaussian}
STEPS = 25


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return table_under(tmp_path, monkeypatch)


def _privacy(**changes: Any) -> dict[str, Any]:
    return {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 0.8} | changes


def _spec(data: dict[str, Any], kind: str = "laplace", **changes: Any) -> DpSgdLaplace:
    method = {"kind": kind, "privacy": changes.pop("privacy", _privacy()), "clipping_bound": 0.5, "expected_batch_size": 20}
    document = {
        "algorithm": "dp_sgd_laplace",
        "data": data,
        "encoders": 2,
        "hidden": 2,
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "method": method | changes.pop("method", {}),
        "steps": STEPS,
        "reproducible": True,
        "seed": 7,
    }
    return DpSgdLaplace.model_validate(document | changes)


class Samples:
    """Every sample that the loop drew: its size, its probability, and among how many units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.asked: set[tuple[int, float]] = set()
        original = sampling.poisson_sample

        def sample(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
            drawn = original(units, probability, stream)
            self.sizes.append(len(drawn))
            self.asked.add((units, probability))
            return drawn

        monkeypatch.setattr(sampling, "poisson_sample", sample)


# The plan


@pytest.mark.parametrize(("kind", "clipping"), [("laplace", L1Clipping(bound=0.5)), ("gaussian", FlatClipping(bound=0.5))])
def test_noise_and_clipping_go_together(table: dict[str, Any], kind: str, clipping: L1Clipping | FlatClipping) -> None:
    plan = _spec(table, kind).plan()
    assert isinstance(plan, ExecutionPlan)
    assert plan.clipping == clipping
    assert type(plan.mechanism) is KINDS[kind]
    assert plan.noise_std == 0.4
    assert plan.sampling.probability == 20 / ROWS
    assert plan.event == Repeated(count=STEPS, event=PoissonSampled(probability=20 / ROWS, event=Release(mechanism=plan.mechanism)))


@pytest.mark.parametrize(("kind", "norm"), [("laplace", "l1"), ("gaussian", "l2")])
def test_replacing_a_unit_moves_the_sum_by_twice_the_bound(table: dict[str, Any], kind: str, norm: str) -> None:
    plan = _spec(table, kind, privacy=_privacy(adjacency="replace_one")).plan()
    assert isinstance(plan, ExecutionPlan)
    sensitivity = plan.mechanism.sensitivity
    assert getattr(sensitivity, norm) == 1.0
    assert getattr(sensitivity, f"{norm}_contribution") == 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", thinned(["add_remove", "replace_one", "zero_out"], every=3))
def test_noise_is_calibrated_to_epsilon(table: dict[str, Any], kind: str, adjacency: str) -> None:
    privacy = {"adjacency": adjacency, "unit": "record", "delta": 1e-5, "epsilon": 4.0}
    event = _spec(table, kind, privacy=privacy).plan().event
    assert 0.99 * 4.0 < accountants.profile(event).epsilon_upper(1e-5) <= 4.0


def test_users_are_the_units_where_the_guarantee_is_theirs(table: dict[str, Any]) -> None:
    spec = _spec(table, privacy=_privacy(unit="user"), records_per_user=2, method={"expected_batch_size": 6})
    plan = spec.plan()
    assert isinstance(plan, ExecutionPlan)
    assert (plan.unit, plan.units, plan.sampling.probability) == ("user", USERS, 0.5)
    # A user's rows are clipped as one gradient: the noise is for one bound, however many rows.
    assert plan.mechanism.sensitivity.l1 == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    thinned(
        [
            ({"encoders": 13}, "encoders must be <= the 12 users"),
            ({"hidden": 4}, "hidden must be <= the 3 features"),
            ({"method": {"expected_batch_size": 61}}, r"method.expected_batch_size must be <= the 60 units of privacy \('record'\)"),
            ({"records_per_user": 2}, "records_per_user must be absent"),
            ({"privacy": _privacy(unit="user")}, "records_per_user must be given where the unit is 'user'"),
            ({"privacy": _privacy(unit="image")}, "method.privacy.unit must be 'record'"),
        ],
        every=2,
    ),
)
def test_specs_that_dont_fit_the_data_are_refused(table: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        _spec(table, **changes).plan()


@pytest.mark.parametrize(("given", "got"), [({}, "neither"), ({"epsilon": 1.0, "noise_multiplier": 1.0}, "both")])
def test_exactly_one_of_epsilon_and_noise_multiplier_is_given(table: dict[str, Any], given: dict[str, float], got: str) -> None:
    with pytest.raises(ValidationError, match=f"exactly one of noise_multiplier and epsilon, got '{got}'"):
        _spec(table, privacy={"adjacency": "add_remove", "unit": "record", "delta": 1e-5} | given)


def test_a_plan_of_another_spec_is_refused(table: dict[str, Any], tmp_path: Path) -> None:
    for other in (_spec(table, steps=3), _spec(table, "gaussian"), _spec(table, privacy=_privacy(noise_multiplier=0.9))):
        with pytest.raises(InvalidParameter, match="plan must be the one that follows from the spec"):
            run(_spec(table), tmp_path / "job", plan=other.plan())


# What the loop does


@pytest.mark.parametrize("kind", KINDS)
def test_the_event_counts_what_was_released_and_the_noise_is_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    watch, samples = Watch(monkeypatch, KINDS[kind]), Samples(monkeypatch)
    spec = _spec(DIGITS, kind, hidden=8, method={"expected_batch_size": 200})
    report = run(spec, tmp_path)
    plan = spec.plan()
    assert isinstance(plan, ExecutionPlan)
    counted = PoissonSampled(probability=200 / report.training_records, event=Release(mechanism=plan.mechanism))
    assert report.event == plan.event == Repeated(count=len(watch.released), event=counted)
    assert samples.asked == {(report.training_records, 200 / report.training_records)}
    noise = torch.stack([out.double() - value.double() for out, value in zip(watch.released, watch.values, strict=True)])
    assert noise.shape == (STEPS, report.parameters)
    # E|noise| is b, or std sqrt(2 / pi): six standard errors of 51200 numbers are 2.7 %, so noise 30 % off would be seen.
    expected = plan.noise_std if kind == "laplace" else plan.noise_std * math.sqrt(2.0 / math.pi)
    tolerance = 6.0 / math.sqrt(noise.numel())
    assert tolerance < 0.05
    assert noise.abs().mean().item() == pytest.approx(expected, rel=tolerance)
    # Heavy tails where they belong: E noise^2 / (E|noise|)^2 is 2 for Laplace, pi / 2 for Gaussian noise.
    shape = noise.square().mean().item() / noise.abs().mean().item() ** 2
    assert shape == pytest.approx(2.0 if kind == "laplace" else math.pi / 2.0, rel=0.06)
    joined = sum(samples.sizes) / (STEPS * report.training_records)
    q = plan.sampling.probability
    assert abs(joined - q) < 5.0 * math.sqrt(q * (1.0 - q) / (STEPS * report.training_records)) < 0.15 * q
    correlations = torch.corrcoef(noise) - torch.eye(STEPS)
    assert correlations.abs().max().item() < 6.0 / math.sqrt(report.parameters)


@pytest.mark.parametrize(
    ("users", "kind"),
    [
        (False, "laplace"),
        (False, "gaussian"),
        # What such a run costs takes seconds to account for, and nothing here asks it.
        pytest.param(True, "laplace", marks=pytest.mark.slow),
        (True, "gaussian"),
    ],
)
def test_one_unit_moves_what_is_released_by_at_most_the_accounted_sensitivity(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, users: bool
) -> None:
    changes: dict[str, Any] = {"steps": 3, "method": {"clipping_bound": 1e-3, "expected_batch_size": 10}}
    if users:
        changes |= {"privacy": _privacy(unit="user"), "records_per_user": 3}
    spec, order = _spec(table, kind, **changes), 1 if kind == "laplace" else 2
    moves: list[float] = []
    original = ClippedRows.sum

    def with_and_without(self: ClippedRows, parameters: dict[str, Tensor], units: Tensor, bound: float) -> Any:
        clipped = original(self, parameters, units, bound)
        for left_out in units:
            fewer = original(self, parameters, units[units != left_out], bound)
            # As they are released: in float32.
            moves.append(torch.linalg.vector_norm((clipped.total.float() - fewer.total.float()).double(), ord=order).item())
        return clipped

    monkeypatch.setattr(ClippedRows, "sum", with_and_without)
    run(spec, tmp_path)
    assert moves
    assert max(moves) <= 1e-3
    assert max(moves) >= (1.0 - 1.25 * CLIP_MARGIN) * 1e-3


def test_the_release_is_divided_by_the_expected_batch_whatever_was_drawn(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, samples = Watch(monkeypatch, Laplace), Samples(monkeypatch)
    gradients: list[Tensor] = []

    def still(
        _optimizer: object, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int, _steps: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gradients.append(gradient)
        return parameters, state

    monkeypatch.setattr("zetadp.trainer.algorithms.dp_sgd_laplace.noisy_sums.update", still)
    run(_spec(table), tmp_path)
    assert len(set(samples.sizes)) > 5
    for gradient, released in zip(gradients, watch.released, strict=True):
        assert torch.allclose(gradient, released / 20, rtol=1e-6)


def test_empty_samples_release_noise_like_any_other(table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, samples = Watch(monkeypatch, Laplace), Samples(monkeypatch)
    run(_spec(table, method={"expected_batch_size": 1}), tmp_path)
    empty = [number for number, size in enumerate(samples.sizes) if size == 0]
    assert 0 < len(empty) < STEPS
    assert len(watch.released) == STEPS
    for number in empty:
        assert not watch.values[number].any()
        assert watch.released[number].all()


def test_each_users_first_rows_are_used_and_no_more(table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[int, ...]] = []
    original = ClippedRows.__init__

    def watched(self: ClippedRows, network: Any, rows: Any, *others: Any) -> None:
        used.append((len(rows.features), *rows.members.shape))
        original(self, network, rows, *others)

    monkeypatch.setattr(ClippedRows, "__init__", watched)
    run(_spec(table, privacy=_privacy(unit="user"), records_per_user=2, method={"expected_batch_size": 6}), tmp_path)
    assert used == [(2 * USERS, USERS, 2)]


def test_a_killed_run_goes_on_as_if_it_had_not_been(table: dict[str, Any], tmp_path: Path) -> None:
    spec = _spec(table, optimizer={"kind": "adam", "learning_rate": 0.02})
    with pytest.raises(Killed):
        run(spec, tmp_path / "job", report=kill_at(5))
    events: list[TrainingEvent] = []
    report = run(spec, tmp_path / "job", events)
    assert events[0] == Started(resumed_from_step=5)
    assert report.resumptions == 1
    run(spec, tmp_path / "whole")
    assert equal(model(tmp_path / "job"), model(tmp_path / "whole"))


def test_a_stopped_run_goes_on(table: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        run(_spec(table), tmp_path / "job", should_stop=lambda: True)
    report = run(_spec(table), tmp_path / "job")
    assert report.steps_released == STEPS
    run(_spec(table), tmp_path / "whole")
    assert equal(model(tmp_path / "job"), model(tmp_path / "whole"))


def test_report_states_what_ran(table: dict[str, Any], tmp_path: Path) -> None:
    report = run(_spec(table, evaluation={"kind": "public_held_out"}), tmp_path)
    assert (report.noise_std, report.training_units, report.parameters) == (0.4, ROWS, 2 * 2 * FEATURES * 2)
    assert report.metrics is not None
    assert report.metrics.keys() == {"score", "score_all_zero", "score_column_means"}


@pytest.mark.slow
def test_with_next_to_no_noise_it_learns(tmp_path: Path) -> None:
    spec = _spec(
        DIGITS,
        "gaussian",
        hidden=16,
        steps=150,
        privacy=_privacy(noise_multiplier=1e-3),
        method={"expected_batch_size": 300, "clipping_bound": 2.0},
        optimizer={"kind": "adam", "learning_rate": 0.02},
        evaluation={"kind": "public_held_out"},
    )
    report = run(spec, tmp_path)
    assert report.metrics is not None
    assert report.metrics["score"] > report.metrics["score_column_means"] + 0.01
