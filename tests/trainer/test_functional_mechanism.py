"""The functional mechanism: what is computed from the rows is one vector of sums, released once with the plan's noise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.selection import thinned
from zetadp import accountants
from zetadp.mechanisms import Gaussian, Laplace
from zetadp.mechanisms.analysis.functional_mechanism import coefficient_count, l1_sensitivity, l2_sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.algorithms.functional_mechanism import sums_release
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.engine.autoencoders import statistics
from zetadp.trainer.engine.autoencoders.statistics import GRID, Code, fitted
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism, SumsPrivacy
from zetadp.trainer.specs.plans import StatisticReleasePlan

FEATURES, HIDDEN, ROWS = 5, 3, 400


def facts_of(rows=ROWS, features=FEATURES, users=None, **changes):
    return DataSetFacts(
        training_records=rows,
        test_records=10,
        shape=(features,),
        is_complex=False,
        task="reconstruction",
        classes=None,
        unit="record",
        user_unit=None if users is None else "user",
        users=users,
        largest_user=None if users is None else 3,
        sha256="0" * 64,
        description="made up",
        **changes,
    )


def spec_of(**changes):
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 2.0}
    document = FunctionalMechanism.example().model_dump(mode="json") | {"hidden": HIDDEN, "noise": "laplace", "privacy": privacy}
    return FunctionalMechanism.model_validate(document | changes)


def code(features=FEATURES, hidden=HIDDEN, seed=1):
    return Code.of(features, hidden, 4.0, RandomStream.from_seed(seed, "code"))


def rows(count=ROWS, features=FEATURES, seed=2):
    # A few kinds of rows, each with a little noise: something to be reconstructed.
    generator = np.random.default_rng(seed)
    kinds = generator.uniform(0.1, 0.9, (3, features))
    return torch.from_numpy(np.clip(kinds[generator.integers(0, 3, count)] + generator.normal(0, 0.03, (count, features)), 0, 1)).float()


# --- the code and its sums ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 3003])
def test_a_number_has_the_same_code_wherever_it_stands(count: int) -> None:
    """torch's sigmoid doesn't: 67 of 3000 numbers have another last bit by themselves."""
    numbers = 3.0 * torch.randn(3003, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = statistics.logistic(numbers)
    assert torch.allclose(whole, torch.sigmoid(numbers), rtol=1e-15, atol=0.0)
    assert torch.equal(torch.cat([statistics.logistic(part.clone()) for part in numbers.split(count)]), whole)
    assert torch.equal(statistics.logistic(numbers[1:].clone()), whole[1:])


def test_codes_lie_in_the_box_that_the_sensitivity_is_for():
    found = code().values(torch.cat((rows(), torch.zeros(1, FEATURES), torch.ones(1, FEATURES))))
    assert torch.equal(found[:, 0], torch.full((ROWS + 2,), 0.5, dtype=torch.float64))
    assert found.abs().max() <= 0.5
    assert torch.equal(found * GRID, (found * GRID).round())


@pytest.mark.parametrize("spread", [1e-30, 1e300])
def test_weights_that_vanish_or_overflow_make_no_record_stand_out(spread):
    extreme = Code.of(FEATURES, HIDDEN, spread, RandomStream.from_seed(3, "extreme"))
    zero_or_one = torch.cat((torch.zeros(1, FEATURES), torch.ones(1, FEATURES), torch.eye(FEATURES)))
    found = extreme.values(zero_or_one)
    # One NaN would be in every sum, and tell that this record was there.
    assert found.abs().max() <= 0.5
    assert extreme.sums(zero_or_one).isfinite().all()


def test_the_whole_box_is_used():
    weights = code().encoder
    corners = torch.cat(((weights > 0).T, (weights < 0).T)).double()
    found = code().values(corners)[:, 1:]
    assert found.max() == 0.5
    assert found.min() == -0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 7.0, -3.0])
def test_a_row_outside_the_box_moves_the_sums_no_further(bad):
    row = torch.full((1, FEATURES), bad)
    sums = code().sums(row)
    assert sums.isfinite().all()
    assert sums.abs().sum() <= l1_sensitivity(FEATURES, HIDDEN, "add_remove")


def test_sums_are_those_of_the_rows_one_by_one_to_the_bit_in_any_order():
    table = rows()
    whole = code().sums(table)
    single = sum(code().sums(row[None]) for row in table)
    assert torch.equal(whole, single)
    assert torch.equal(whole, code().sums(table[torch.randperm(ROWS)]))
    assert whole.shape == (coefficient_count(FEATURES, HIDDEN),)


@pytest.mark.parametrize(("norm", "bound"), [(1, l1_sensitivity), (2, l2_sensitivity)])
def test_rows_never_move_the_sums_by_more_than_the_sensitivity(norm, bound):
    generator = np.random.default_rng(4)
    table = torch.from_numpy(np.where(generator.random((500, 14)) < 0.5, generator.integers(0, 2, (500, 14)), generator.random((500, 14))))
    sums = torch.stack([code(14, 7).sums(row[None]) for row in table])
    assert torch.linalg.vector_norm(sums, norm, dim=1).max() <= bound(14, 7, "add_remove")
    assert torch.pdist(sums, norm).max() <= bound(14, 7, "replace_one")


def test_the_row_of_ones_attains_its_targets_share():
    products = code().sums(torch.ones(1, FEATURES))[: HIDDEN * FEATURES].view(HIDDEN, FEATURES)
    assert torch.equal(products[0], torch.full((FEATURES,), 0.25, dtype=torch.float64))


# --- the fit ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expansion", ["zero", "column_means"])
def test_without_noise_the_fit_minimises_the_quadratic_loss(expansion):
    """The loss is convex: its gradient, by autograd from the rows themselves, is zero there and nowhere near it elsewhere."""
    codes, x = code().values(rows()), rows().double()
    means = torch.full((FEATURES,), 0.5).double() if expansion == "zero" else x.mean(dim=0)
    points = torch.logit(means)
    curvature = torch.full_like(points, 0.25) if expansion == "zero" else torch.tanh(points / 2) / (2 * points)

    def largest_slope(weights):
        weights = weights.requires_grad_()
        moved = codes @ weights - points
        ((means - x) * moved + curvature * moved.square() / 2).sum().backward()
        return weights.grad.abs().max()

    found = fitted(code().sums(rows()), FEATURES, HIDDEN, 0.0, 0.0, expansion)
    assert largest_slope(found.clone()) < 0.02  # targets are on a grid of 2^-16: 400 rows come to 0.003
    assert largest_slope(1.05 * found) > 0.5


def test_the_decoder_gives_the_codes_outputs_from_the_hidden_units():
    table = rows()
    weights = torch.randn(HIDDEN, FEATURES, dtype=torch.float64)
    hidden = torch.sigmoid(table.double() @ code().encoder)
    torch.testing.assert_close(hidden @ code().decoder(weights), code().values(table) @ weights, atol=1e-2, rtol=0.0)


def test_the_quadratic_at_the_means_is_the_better_one_where_means_are_far_from_a_half():
    table = rows() * 0.2
    codes = code().values(table)
    errors = [
        (torch.sigmoid(codes @ fitted(code().sums(table), FEATURES, HIDDEN, 0.0, 0.0, expansion)) - table).square().mean()
        for expansion in ("zero", "column_means")
    ]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("expansion", ["zero", "column_means"])
def test_a_release_that_is_all_noise_still_gives_finite_weights(expansion):
    stream = RandomStream.from_seed(5, "noise")
    for _ in range(20):
        noise = torch.from_numpy(stream.grid_laplace(coefficient_count(FEATURES, HIDDEN))) * 1e6
        assert fitted(noise, FEATURES, HIDDEN, 1e6, 2.0, expansion).isfinite().all()


# --- the run ------------------------------------------------------------------------------------------------------------------------


def run(spec, folder, plan=None):
    runtime = RuntimeSpec(device="cpu", threads=1)
    return load_train(spec)(spec, plan or spec.plan(), runtime, folder, report=lambda _event: None, should_stop=lambda: False)


SEEDED = {"reproducible": True, "seed": 3}


def test_the_accounted_event_is_the_one_release_that_was_made(tmp_path, monkeypatch):
    seen = []
    original = Laplace.release

    def release(self, value, source):
        seen.append((self, value.clone()))
        return original(self, value, source)

    monkeypatch.setattr(Laplace, "release", release)
    spec = spec_of(**SEEDED)
    plan = spec.plan()
    report = run(spec, tmp_path)
    (mechanism, sums) = seen[0]
    assert len(seen) == 1
    assert mechanism == plan.mechanism == report.event.mechanism
    assert report.event == plan.event
    assert len(sums) == plan.numbers == coefficient_count(64, HIDDEN)
    assert report.noise_std == plan.mechanism.scale


def test_the_model_depends_on_the_rows_through_the_released_vector_alone(tmp_path, monkeypatch):
    """With the released vector held fixed, other rows give the same file, byte for byte."""
    spec = spec_of(**SEEDED)
    fixed = torch.from_numpy(RandomStream.from_seed(9, "fixed").normal(spec.plan().numbers)) * 10.0
    monkeypatch.setattr(sums_release, "released", lambda _plan, _code, _rows, _source, _watch: fixed)
    run(spec, tmp_path / "one")
    monkeypatch.setattr("zetadp.trainer.engine.autoencoders.rows.np.ascontiguousarray", np.zeros_like)
    run(spec, tmp_path / "other")
    one, other = ((tmp_path / name / "artifacts/model.safetensors").read_bytes() for name in ("one", "other"))
    assert one == other


def test_without_the_release_no_row_is_read(monkeypatch):
    """``weights`` gets no rows: sums are taken in one place."""
    monkeypatch.setattr(statistics.Code, "sums", lambda *_: pytest.fail("rows are summed outside the release"))
    spec = spec_of()
    plan = spec.plan_with(facts_of(), 2.0)
    found = sums_release.weights(spec, plan, code(), torch.zeros(plan.numbers, dtype=torch.float64))
    assert found.shape == (2 * FEATURES * HIDDEN,)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_released_noise_has_the_plans_scale(noise):
    """Over 126 numbers and 300 releases: a scale that is 30 % off is refused."""
    spec = spec_of(noise=noise, hidden=7)
    plan = spec.plan_with(facts_of(features=14), 1.7)
    table, public = rows(features=14), code(14, 7)
    truth, streams = public.sums(table), iter([RandomStream.from_seed(seed, "noise") for seed in range(300)])
    noises = torch.cat([sums_release.released(plan, public, table, lambda _sums: next(streams)) - truth for _ in range(300)])
    # E|noise| is b for Laplace noise and sqrt(2 / pi) std for Gaussian: within 5 deviations of the mean of 37800 numbers.
    found = noises.abs().mean().item() / (1.0 if noise == "laplace" else math.sqrt(2 / math.pi))
    spread = (1.0 if noise == "laplace" else math.sqrt(math.pi / 2 - 1)) / math.sqrt(len(noises))
    assert abs(found / plan.noise_std - 1.0) < 5 * spread < 0.03


def test_a_killed_run_that_saved_its_step_releases_nothing_again(tmp_path, monkeypatch):
    spec = spec_of(**SEEDED)
    run(spec, tmp_path)
    monkeypatch.setattr(sums_release, "released", lambda *_: pytest.fail("a second release"))
    report = run(spec, tmp_path)
    assert report.resumptions == 1


def test_the_model_file_holds_the_public_encoder_and_the_decoder(tmp_path):
    run(spec_of(**SEEDED), tmp_path)
    path = tmp_path / "artifacts/model.safetensors"
    tensors = load_file(path)
    assert tensors["encoders"].shape == (1, 64, HIDDEN)
    assert tensors["decoder"].shape == (1, HIDDEN, 64)
    assert torch.equal(tensors["encoders"][0, :, 0], torch.zeros(64))
    with safe_open(str(path), framework="pt") as file:
        assert json.loads(file.metadata()["zetadp"])["algorithm"] == "functional_mechanism"


def test_it_learns_where_the_budget_allows(tmp_path):
    metrics = run(spec_of(**SEEDED, noise="gaussian", hidden=8, privacy=_privacy(noise_multiplier=0.02)), tmp_path).metrics
    assert metrics["score"] > metrics["score_column_means"]


# --- the plan -----------------------------------------------------------------------------------------------------------------------


def _privacy(**changes):
    return {"adjacency": "add_remove", "unit": "record", "delta": 1e-5} | changes


@pytest.mark.parametrize("adjacency", thinned(["add_remove", "replace_one", "zero_out"], every=2))
@pytest.mark.parametrize(
    ("noise", "kind", "norm", "bound"), [("laplace", Laplace, "l1", l1_sensitivity), ("gaussian", Gaussian, "l2", l2_sensitivity)]
)
def test_the_plans_sensitivity_is_the_proven_one(adjacency, noise, kind, norm, bound):
    plan = spec_of(noise=noise, privacy=_privacy(adjacency=adjacency, noise_multiplier=3.0)).plan_with(facts_of(), 3.0)
    move = bound(FEATURES, HIDDEN, adjacency)
    assert isinstance(plan, StatisticReleasePlan)
    assert isinstance(plan.mechanism, kind)
    assert getattr(plan.mechanism.sensitivity, norm) == move
    assert plan.noise_std == 3.0 * move
    assert (plan.steps, plan.units, plan.unit) == (1, ROWS, "record")


def test_a_user_moves_the_sums_as_far_as_all_their_rows():
    spec = spec_of(privacy=_privacy(unit="user", noise_multiplier=1.0), records_per_user=4)
    plan = spec.plan_for(facts_of(users=20))
    assert plan.mechanism.sensitivity.l1 == 4 * l1_sensitivity(FEATURES, HIDDEN, "add_remove")
    assert (plan.units, plan.unit) == (20, "user")


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_calibrated_plan_costs_at_most_what_was_asked_for(noise):
    plan = spec_of(noise=noise, privacy=_privacy(epsilon=2.0)).plan_for(facts_of())
    spent = accountants.profile(plan.event).epsilon(plan.delta).upper
    assert 1.99 < spent <= 2.0


def test_a_calibrated_plan_is_accepted_by_the_run_and_another_one_refused(tmp_path):
    spec = spec_of(**SEEDED, privacy=_privacy(epsilon=2.0))
    plan = spec.plan()
    assert run(spec, tmp_path, plan).event == plan.event
    with pytest.raises(InvalidParameter, match="plan must be"):
        run(spec, tmp_path / "other", spec_of(**SEEDED, hidden=2, privacy=_privacy(epsilon=2.0)).plan())


@pytest.mark.parametrize(
    ("changes", "facts", "text"),
    [
        ({"hidden": 6}, facts_of(), "hidden must be <= the 5 features"),
        ({}, facts_of(rows=2**20 + 1), "at most 1048576 training rows"),
        ({"privacy": _privacy(unit="patient", noise_multiplier=1.0)}, facts_of(), "unit must be 'record'"),
        ({"privacy": _privacy(unit="user", noise_multiplier=1.0)}, facts_of(users=9), "records_per_user must be given"),
        ({"records_per_user": 2}, facts_of(), "records_per_user must be absent"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(changes, facts, text):
    with pytest.raises(InvalidParameter, match=text):
        spec_of(**changes).plan_for(facts)


@pytest.mark.parametrize("given", [{}, {"epsilon": 1.0, "noise_multiplier": 1.0}])
def test_exactly_one_of_noise_and_epsilon_is_given(given):
    with pytest.raises(ValueError, match="exactly one of noise_multiplier and epsilon"):
        SumsPrivacy.model_validate(_privacy(**given))


def test_more_than_one_encoder_is_refused():
    with pytest.raises(ValueError, match="less than or equal to 1"):
        spec_of(encoders=2)


def test_the_example_fits_its_data():
    spec = FunctionalMechanism.example()
    assert spec.plan().units == data_set_facts(spec.data).training_records
