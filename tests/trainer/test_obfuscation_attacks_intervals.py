"""Intervals of attack figures: as often right as they say, by simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from tests.selection import thinned
from tests.trainer.obfuscation_schemes import generator
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures, Numbers, bootstrap, clopper_pearson


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (571, 597)])
def test_shares_have_scipys_exact_interval(successes: int, trials: int) -> None:
    expected = stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert clopper_pearson(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_intervals_of_shares_cover_at_least_so_often_and_hardly_more() -> None:
    ends = [clopper_pearson(count, 200) for count in range(201)]
    drawn = np.random.default_rng(1).binomial(200, 0.3, size=20_000)
    covered = np.mean([ends[count][0] <= 0.3 <= ends[count][1] for count in drawn])
    assert 0.95 <= covered <= 0.97


@pytest.mark.parametrize(
    ("statistic", "truth"),
    thinned([(lambda rows: rows.mean(axis=-1), 1.0), (lambda rows: np.median(rows, axis=-1), np.log(2.0))], every=2),
)
def test_bootstrap_intervals_cover_about_so_often(statistic: Callable[[Numbers], Numbers], truth: float) -> None:
    source = np.random.default_rng(2)
    ends = [bootstrap(source.exponential(size=150), statistic, source) for _ in range(400)]
    covered = np.mean([low <= truth <= high for low, high in ends])
    # 0.95 less what percentiles of so few skewed values lose; four standard errors of 400 rounds are 0.044.
    assert 0.90 <= covered <= 0.98


def test_trials_that_share_a_victim_have_the_interval_of_the_victims() -> None:
    hits = torch.arange(1000) % 10 == 0
    shared = Figures(generator(1)).share("candidate_pair", "true_positive_rate", hits, chance=0.0, victims=100)
    assert (shared.lower, shared.upper) == pytest.approx(clopper_pearson(10, 100))
    assert (shared.value, shared.trials) == (0.1, 1000)


def test_one_victim_has_an_interval_of_a_point_for_means_and_a_wide_one_for_shares() -> None:
    figures = Figures(generator(1))
    mean = figures.mean("inversion_direct", "mean_squared_error", torch.tensor([0.25]), chance=1.0)
    share = figures.share("label_with_key", "accuracy", torch.tensor([True]), chance=0.1)
    assert (mean.lower, mean.value, mean.upper) == (0.25, 0.25, 0.25)
    assert (share.lower, share.upper) == pytest.approx((0.025, 1.0))


def test_the_same_generator_gives_the_same_interval() -> None:
    values = torch.rand(50, generator=generator(3))
    first, second = (Figures(generator(4)).mean("inversion_direct", "mean_squared_error", values, chance=1.0) for _ in range(2))
    assert first == second
