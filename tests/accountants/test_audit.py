"""Lower bounds from canaries: they never contradict a true claim, find false ones, and agree with exact optima where those are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

from tests.accountants.test_conversions import randomized_response
from zetadp.accountants.audit import (
    ClaimedRate,
    Scores,
    contradiction,
    epsilon_of,
    gaussian_rate,
    is_possible,
    lower_mu,
    lower_mu_of_independent,
    one_run_p_value,
)
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.mechanisms import InvalidParameter


def scores(mu: float, canaries: int, seed: int) -> Scores:
    """Of canaries that a Gaussian pair at distance mu separates."""
    generator = np.random.default_rng(seed)
    members = generator.random(canaries) < 0.5
    return Scores(members, generator.normal(size=canaries) + mu * members)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_rate_of_a_gaussian_profile_is_below_the_gaussian_rate_and_close_to_it(mu: float) -> None:
    claimed, exact = ClaimedRate(GdpProfile(mu, ())), gaussian_rate(mu)
    for probability in (0.0, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0):
        found = claimed(probability)
        assert found <= exact(probability) * (1 + 1e-9) + 1e-15
        assert found >= 0.95 * exact(probability) - 1e-12


def test_without_any_loss_guesses_are_right_as_often_as_fair_coins_allow_and_no_rarer() -> None:
    # A perfectly private run: any bound must be at least the binomial tail, which independent guesses reach.
    for right in (50, 55, 60, 70):
        assert one_run_p_value(100, 100, right, gaussian_rate(0.0)) >= binom.sf(right - 1, 100, 0.5)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_randomized_response_is_never_contradicted_more_than_its_own_binomial_tail(epsilon: float) -> None:
    rate, accuracy = ClaimedRate(randomized_response(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))
    for right in range(60, 101, 5):
        assert one_run_p_value(100, 100, right, rate) >= binom.sf(right - 1, 100, accuracy) * (1 - 1e-9)


@pytest.mark.parametrize(("canaries", "guesses", "right"), [(6, 6, 5), (8, 5, 4), (10, 7, 6), (12, 12, 9)])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.5])
def test_the_greedy_bound_is_the_optimum_of_its_constraints(canaries: int, guesses: int, right: int, epsilon: float) -> None:
    # With the rate e^-epsilon p the constraints of proofs/audit.md, section 2, are linear: their optimum is found by another program.
    counts = np.arange(guesses + 1)
    rows = []
    for j in range(1, guesses + 1):
        rightly = np.where(counts >= j, counts, 0.0)
        wrongly = np.where(counts >= j - 1, guesses - counts, 0.0)
        rows.append(math.exp(-epsilon) * rightly - wrongly)
    found = linprog(-(counts >= right).astype(float), np.array(rows), np.zeros(guesses), np.ones((1, guesses + 1)), [1.0])
    assert found.status == 0
    assert found.fun is not None
    bound = one_run_p_value(canaries, guesses, right, lambda probability: math.exp(-epsilon) * probability)
    assert -found.fun * (1 - 1e-7) <= bound <= -found.fun * (1 + 1e-4)


def test_p_values_fall_with_right_guesses_and_rise_with_the_claim() -> None:
    by_right = [one_run_p_value(200, 100, right, gaussian_rate(0.5)) for right in range(50, 101, 10)]
    assert by_right == sorted(by_right, reverse=True)
    by_claim = [one_run_p_value(200, 100, 90, gaussian_rate(mu)) for mu in (0.0, 0.5, 1.0, 2.0)]
    assert by_claim == sorted(by_claim)
    assert by_claim[0] < by_claim[-1]
    assert not is_possible(200, 100, 90, gaussian_rate(0.0), 0.5)


def test_honest_runs_are_not_contradicted_and_lower_bounds_stay_below_the_truth() -> None:
    runs = [scores(1.0, 500, seed) for seed in range(100)]
    found = [contradiction(run, GdpProfile(1.0, ())) for run in runs]
    # The union over seven cuts is wasteful: one error in twenty is far above what happens.
    assert sum(each.quantiles < 0.05 for each in found) <= 5
    assert min(each.one_run for each in found) > 0.01
    assert min(each.quantiles for each in found) > 1e-4
    assert sum(lower_mu(run, 0.05) > 1.0 for run in runs) <= 5
    assert sum(lower_mu_of_independent(run, 0.05) > 1.0 for run in runs) <= 5


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_half_the_noise_is_found(mu: float) -> None:
    for seed in range(10):
        run = scores(2.0 * mu, 2000, seed)
        assert contradiction(run, GdpProfile(mu, ())).quantiles < 1e-4
        assert lower_mu_of_independent(run, 0.05) > mu


def test_a_run_that_tells_everything_contradicts_every_claim_by_one_run_alone() -> None:
    members = np.random.default_rng(0).random(1000) < 0.5
    told = Scores(members, members.astype(np.float64))
    assert contradiction(told, GdpProfile(1.0, ())).one_run < 1e-3
    assert lower_mu(told, 0.05) > 1.5


def test_epsilon_of_a_gaussian_pair() -> None:
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(1.0, float(norm.cdf(-0.5) - norm.cdf(-1.5) * math.e)) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("members", "values", "told"),
    [
        (np.ones(3, dtype=np.bool_), np.zeros(4), "as many as members"),
        (np.ones(1, dtype=np.bool_), np.zeros(1), "at least two"),
        (np.ones(3, dtype=np.bool_), np.array([0.0, math.nan, 1.0]), "finite"),
    ],
)
def test_bad_scores_are_refused(members: np.ndarray, values: np.ndarray, told: str) -> None:
    with pytest.raises(InvalidParameter, match=told):
        Scores(members, values)


@pytest.mark.parametrize(("canaries", "guesses", "right"), [(10, 11, 5), (10, 5, 6), (10, 0, 0), (10, 5, -1)])
def test_impossible_counts_are_refused(canaries: int, guesses: int, right: int) -> None:
    with pytest.raises(InvalidParameter, match="counts in this order"):
        one_run_p_value(canaries, guesses, right, gaussian_rate(1.0))
