"""Lower bounds from canaries: they never contradict a true claim, find false ones, and agree with exact optima where those are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

from tests.accountants.test_conversions import randomized_response
from tests.selection import chosen, thinned
from zetadp.accountants.audit import (
    ClaimedRate,
    Scores,
    at_quantiles,
    contradiction,
    epsilon_of,
    gaussian_rate,
    is_possible,
    lower_epsilon,
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
    return at_quantiles(members, generator.normal(size=canaries) + mu * members)


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


@pytest.mark.parametrize(("canaries", "guesses", "right"), thinned([(6, 6, 5), (8, 5, 4), (10, 7, 6), (12, 12, 9)], every=2))
@pytest.mark.parametrize("epsilon", thinned([0.0, 0.7, 1.5], every=2))
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


Guessed = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _tells_all(generator: np.random.Generator, members: np.ndarray) -> np.ndarray:
    """(0, 0.04)-DP: with this probability all coins are told, otherwise nothing."""
    told = 2.0 * members - 1.0
    return told if generator.random() < 0.04 else generator.normal(size=len(members))


def _answers(generator: np.random.Generator, members: np.ndarray) -> np.ndarray:
    """1-DP: each coin by itself, by randomized response."""
    return np.where(generator.random(len(members)) < 1.0 / (1.0 + math.exp(-1.0)), 2.0 * members - 1.0, 1.0 - 2.0 * members)


def _answers_together(generator: np.random.Generator, members: np.ndarray) -> np.ndarray:
    """1-DP: all coins, or all of them turned over."""
    return (2.0 * members - 1.0) * (1.0 if generator.random() < 1.0 / (1.0 + math.exp(-1.0)) else -1.0)


TRUTHS: dict[str, tuple[Guessed, float, float, float]] = {
    "everything, rarely": (_tells_all, 0.0, 0.04, 0.05),
    "randomized response": (_answers, 1.0, 1e-5, 0.2),
    "one response for all": (_answers_together, 1.0, 1e-5, 0.74),
}
"""Epsilon and delta of what is told, and an error probability that the bound comes near to."""


@pytest.mark.parametrize("runs", chosen([200, 4000], [200]))
@pytest.mark.parametrize("name", TRUTHS)
def test_the_bound_without_assumptions_is_above_the_truth_no_more_often_than_it_says(name: str, runs: int) -> None:
    answered, epsilon, delta, error = TRUTHS[name]
    above, generator = 0, np.random.default_rng(11)
    for _ in range(runs):
        members = generator.random(100) < 0.5
        found = lower_epsilon(Scores(members, answered(generator, members), (0.0,)), delta, error)
        above += found > epsilon
    # One error in a thousand of the test itself, if the bound were wrong exactly as often as it may be.
    assert above <= binom.ppf(0.999, runs, error)


def test_the_bound_without_assumptions_is_half_of_what_is_true_with_thirty_thousand_clean_scores() -> None:
    mu = 0.91
    for seed in range(3):
        generator = np.random.default_rng(seed)
        members = generator.random(30_000) < 0.5
        run = Scores(members, generator.normal(size=len(members)) + mu * (members - 0.5), (-1.0, 0.0, 1.0))
        truth = epsilon_of(mu, 1e-5)
        free = lower_epsilon(run, 1e-5, 0.05)
        assert 0.5 * truth < free < truth
        # Each assumption adds to it.
        assert free < epsilon_of(lower_mu(run, 0.05), 1e-5) < epsilon_of(lower_mu_of_independent(run, 0.05), 1e-5) < truth


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_half_the_noise_is_found(mu: float) -> None:
    for seed in range(10):
        run = scores(2.0 * mu, 2000, seed)
        assert contradiction(run, GdpProfile(mu, ())).quantiles < 1e-4
        assert lower_mu_of_independent(run, 0.05) > mu


def test_a_run_that_tells_everything_contradicts_every_claim_by_one_run_alone() -> None:
    members = np.random.default_rng(0).random(1000) < 0.5
    told = at_quantiles(members, members.astype(np.float64))
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
        Scores(members, values, (0.0,))


def test_scores_without_cuts_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="cuts must be at least one"):
        Scores(np.ones(3, dtype=np.bool_), np.zeros(3), ())


@pytest.mark.parametrize(("canaries", "guesses", "right"), [(10, 11, 5), (10, 5, 6), (10, 0, 0), (10, 5, -1)])
def test_impossible_counts_are_refused(canaries: int, guesses: int, right: int) -> None:
    with pytest.raises(InvalidParameter, match="counts in this order"):
        one_run_p_value(canaries, guesses, right, gaussian_rate(1.0))
