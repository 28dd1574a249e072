from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from tests.accountants.events import gaussian, laplace, training
from tests.selection import thinned
from zetadp.accountants import Repeated, profile
from zetadp.accountants.conversions import (
    advantage,
    advantage_at,
    bayes_success,
    loss_quantile,
    loss_tail,
    positive_predictive_value,
    posterior,
    posterior_bound,
    trade_off,
    true_positive_rate,
)
from zetadp.accountants.profile import Bound, DeltaBound, NonPrivateProfile, PrivacyProfile
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.accountants.trade_off import Line, SupportingLines
from zetadp.mechanisms import InvalidParameter, NumericalFloor
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, log_delta_error

ALPHAS = [1e-300, 1e-30, 1e-12, 1e-7, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-7, 1 - 1e-12]
MODERATE = [1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]


class SeenThroughDelta(PrivacyProfile):
    """A profile of which only log delta(epsilon) is known; it counts how often it is asked."""

    def __init__(self, log_delta):
        self._log_delta = log_delta
        self.asked = 0

    def delta(self, epsilon):
        log_delta = self.log_delta_upper(epsilon)
        return DeltaBound(log_lower=log_delta, log_upper=log_delta, route=self.route)

    def log_delta_upper(self, epsilon):
        self.asked += 1
        return self._log_delta(epsilon)

    def epsilon(self, delta):
        low, high = 0.0, 1.0
        if self._log_delta(0.0) <= math.log(delta):
            return Bound(lower=0.0, upper=0.0, route=self.route)
        while self._log_delta(high) > math.log(delta):
            high *= 2.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._log_delta(middle) > math.log(delta) else (low, middle)
        return Bound(lower=low, upper=high, route=self.route)

    def derivation(self):
        return ()

    @property
    def route(self):
        return "test"


def gaussian_profile(mu):
    def log_delta(epsilon):
        value = gdp_log_delta(mu, epsilon)
        return min(0.0, value + log_delta_error(value))

    return SeenThroughDelta(log_delta)


def randomized_response(epsilon0):
    """The pair that every epsilon0-DP mechanism is a function of."""

    def log_delta(epsilon):
        return -math.inf if epsilon >= epsilon0 else math.log(-math.expm1(epsilon - epsilon0)) - math.log1p(math.exp(-epsilon0))

    return SeenThroughDelta(log_delta)


def discrete_profile(p, q):
    """Both directions of a finite pair, exact up to a few roundings of p - e^epsilon q, for which 4e-15 is added."""

    def log_delta(epsilon):
        factor = math.exp(min(epsilon, 700.0))
        return math.log(min(1.0, 4e-15 + max(np.maximum(0, p - factor * q).sum(), np.maximum(0, q - factor * p).sum())))

    return SeenThroughDelta(log_delta)


def best_tests(p, q):
    """(alpha, true positive rate) of the likelihood ratio tests of "p" against "q", from 0 to 1."""
    order = np.argsort(-(np.log(p) - np.log(q)))
    return np.concatenate(([0.0], np.cumsum(q[order]))), np.concatenate(([0.0], np.cumsum(p[order])))


def random_pairs(number):
    generator = np.random.default_rng(11)
    for _ in range(number):
        size = int(generator.integers(2, 8))
        p, q = generator.dirichlet(np.ones(size)) + 1e-9, generator.dirichlet(np.ones(size)) + 1e-9
        mixed = float(generator.choice([0.0, 0.5, 0.99]))
        yield p / p.sum() * (1 - mixed) + q / q.sum() * mixed, q / q.sum()


def lines_of_randomized_response(epsilon, alpha):
    return max(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))


@pytest.mark.parametrize("mu", thinned([1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 6.0], every=3))
def test_a_gaussian_curve_is_met_from_below_within_a_millionth(mu):
    found = gaussian_profile(mu)
    for alpha in ALPHAS:
        exact = float(norm.cdf(norm.isf(alpha) - mu))
        assert found.trade_off(alpha) <= exact * (1 + 1e-12)
        if alpha in MODERATE:
            assert found.trade_off(alpha) >= exact * (1 - 1e-6)


@pytest.mark.parametrize("mu", thinned([1e-3, 0.5, 1.0, 3.0, 6.0, 10.0], every=2))
def test_detection_at_tiny_false_positive_rates_keeps_six_digits(mu):
    found = gaussian_profile(mu)
    for alpha in ALPHAS:
        exact = float(norm.cdf(mu - norm.isf(alpha)))
        assert exact * (1 - 1e-11) <= true_positive_rate(found, alpha) <= exact * (1 + 1e-6) + 5e-16


def test_the_curve_is_safe_where_a_peer_errs_by_half_a_percent():
    """riskcal 1.5.1 answers 4.7e-3 above the truth at mu = 3, alpha = 1e-7."""
    exact = float(norm.cdf(norm.isf(1e-7) - 3.0))
    for found in (gaussian_profile(3.0), profile(gaussian(1.0 / 3.0)), profile(gaussian(1.0 / 3.0), "rdp")):
        assert found.trade_off(1e-7) <= exact
    assert gaussian_profile(3.0).trade_off(1e-7) >= exact - 1e-7


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 10.0])
def test_pure_privacy_gives_the_two_lines_of_randomized_response(epsilon):
    found = randomized_response(epsilon)
    for alpha in ALPHAS:
        exact = lines_of_randomized_response(epsilon, alpha)
        assert exact * (1 - 1e-6) <= found.trade_off(alpha) <= exact * (1 + 1e-15)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_laplace_curve_is_met_from_below(epsilon):
    found = SeenThroughDelta(lambda e: -math.inf if e >= epsilon else math.log(-math.expm1(0.5 * (e - epsilon))))
    for alpha in ALPHAS:
        if alpha <= 0.5 * math.exp(-epsilon):
            exact = 1 - math.exp(epsilon) * alpha
        elif alpha <= 0.5:
            exact = math.exp(-epsilon) / (4 * alpha)
        else:
            exact = math.exp(-epsilon) * (1 - alpha)
        assert exact * (1 - 1e-6) <= found.trade_off(alpha) <= exact * (1 + 1e-15)


def test_no_test_between_random_finite_pairs_beats_the_bounds():
    generator = np.random.default_rng(5)
    for p, q in random_pairs(60):
        found = discrete_profile(p, q)
        for member, other in ((p, q), (q, p)):
            alphas, detected = best_tests(member, other)
            for _ in range(6):
                # A mixture of two likelihood ratio tests, or any test at all.
                chance = generator.random(len(p))
                pairs = [(float(np.sum(other * chance)), float(np.sum(member * chance)))]
                alpha = float(generator.choice([generator.random(), 10 ** generator.uniform(-9, 0)]))
                pairs.append((alpha, float(np.interp(alpha, alphas, detected))))
                for false, true in pairs:
                    assert found.trade_off(false) <= 1 - true + 1e-13
                    assert true_positive_rate(found, false) >= true * (1 - 1e-12)
                    assert advantage_at(found, false) >= true - false - 1e-13
                    assert positive_predictive_value(found, false, 0.2) >= 0.2 * true / (0.2 * true + 0.8 * false) - 1e-13


def test_the_curve_of_a_finite_pair_is_exact_at_its_corners():
    for p, _ in random_pairs(20):
        q = p[::-1].copy()
        alphas, detected = best_tests(p, q)
        found = discrete_profile(p, q)
        for alpha, true in zip(alphas[1:-1], detected[1:-1], strict=True):
            assert found.trade_off(alpha) == pytest.approx(1 - true, rel=1e-6, abs=1e-13)


def test_bayes_success_is_that_of_the_best_guesser_for_either_role():
    for p, q in random_pairs(60):
        found = discrete_profile(p, q)
        for prior in (1e-3, 0.2, 0.5, 0.7, 0.999):
            exact = max(np.maximum(prior * a, (1 - prior) * b).sum() for a, b in ((p, q), (q, p)))
            assert exact - 1e-14 <= bayes_success(found, prior) <= exact + 1e-12


def test_loss_exceeds_an_epsilon_no_more_often_than_the_tail_says():
    for p, q in random_pairs(60):
        found = discrete_profile(p, q)
        for member, other in ((p, q), (q, p)):
            loss = np.log(member) - np.log(other)
            for epsilon in [*(x for x in loss if x > 1e-9), 0.3, 2.0]:
                assert loss_tail(found, float(epsilon)) >= member[loss >= epsilon].sum() - 1e-13
            for probability in (0.3, 0.01, 1e-6):
                assert member[loss >= loss_quantile(found, probability) * (1 + 1e-12)].sum() <= probability + 1e-13


def test_no_better_tail_follows_from_the_profile():
    """A mechanism with two outputs has this profile or less, and its loss reaches epsilon as often as the bound allows."""
    found, epsilon = gaussian_profile(1.0), 3.0
    often = loss_tail(found, epsilon) * (1 - 1e-6)
    p, q = np.array([often, 1 - often]), np.array([often * math.exp(-epsilon), 1 - often * math.exp(-epsilon)])
    weaker = discrete_profile(p, q)
    assert all(weaker.log_delta_upper(e) <= found.log_delta_upper(e) + 1e-9 for e in np.linspace(0.0, 2.99, 300))
    assert math.log(p[0] / q[0]) >= epsilon * (1 - 1e-12)


def test_delta_itself_doesnt_bound_the_tail():
    """The pair has (1, delta)-DP for delta = 4e-4 but exceeds a loss of 1 far more often."""
    p, q = np.array([0.3, 0.7]), np.array([0.3 * math.exp(-1.001), 1 - 0.3 * math.exp(-1.001)])
    found = discrete_profile(p, q)
    assert math.exp(found.log_delta_upper(1.0)) < 4e-4
    assert loss_tail(found, 1.0) >= 0.3


@pytest.mark.parametrize("prior", thinned([0.01, 0.5, 0.9], every=2))
@pytest.mark.parametrize("failure", [1e-2, 1e-5])
def test_posteriors_leave_their_bounds_no_more_often_than_stated(prior, failure):
    for p, q in random_pairs(30):
        bound = posterior_bound(discrete_profile(p, q), prior, failure)
        after = prior * p / (prior * p + (1 - prior) * q)
        for truth in (p, q):
            assert truth[after > bound.highest * (1 + 1e-12)].sum() <= failure
            assert truth[after < bound.lowest * (1 - 1e-12)].sum() <= failure


def test_the_worst_posterior_of_pure_privacy_is_attained():
    assert posterior(math.log(9.0), 0.5) == pytest.approx(0.9, rel=1e-14)
    assert posterior(0.0, 0.3) == pytest.approx(0.3, rel=1e-14)
    assert posterior(math.inf, 0.3) == 1.0
    assert posterior(800.0, 1e-300) == pytest.approx(1.0)


def test_advantage_is_that_of_the_gaussian_pair():
    for mu in (1e-8, 0.1, 1.0, 5.0):
        exact = math.erf(mu / (2 * math.sqrt(2)))
        assert exact * (1 - 1e-15) <= advantage(GdpProfile(mu, ())) <= exact * (1 + 1e-12)


def test_a_known_false_positive_rate_never_leaves_more_than_the_advantage():
    found = gaussian_profile(1.0)
    gains = [advantage_at(found, alpha) for alpha in np.linspace(0.0, 1.0, 41)]
    assert max(gains) <= advantage(found)
    # The best rate is Phi(-mu / 2).
    assert advantage_at(found, float(norm.cdf(-0.5))) == pytest.approx(advantage(found), rel=1e-9)


@pytest.mark.parametrize(
    "found",
    [
        gaussian_profile(1.0),
        randomized_response(1.0),
        profile(training(0.01, 1.0, 100), "rdp"),
        pytest.param(profile(Repeated(count=3, event=laplace())), marks=pytest.mark.slow),
    ],
    ids=["gaussian", "randomized response", "rdp", "laplace"],
)
def test_bounds_are_monotone_and_never_below_blind_guessing(found):
    alphas = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1.0]
    betas = trade_off(found, alphas)
    rates = [true_positive_rate(found, alpha) for alpha in alphas]
    assert list(betas) == sorted(betas, reverse=True)
    assert rates == sorted(rates)
    assert all(beta <= 1 - alpha and rate >= alpha for alpha, beta, rate in zip(alphas, betas, rates, strict=True))
    values = [positive_predictive_value(found, alpha, 0.1) for alpha in alphas]
    # A search ends within 1e-7 of the best line, and at alpha = 1e-12 rounding of delta near a corner costs up to 1e-4 of the rate.
    assert all(later <= earlier * (1 + 1e-4) for earlier, later in pairwise(values))
    assert all(value >= 0.1 for value in values)
    tails = [loss_tail(found, epsilon) for epsilon in (0.1, 0.5, 2.0, 8.0)]
    assert tails == sorted(tails, reverse=True)
    quantiles = [loss_quantile(found, probability) for probability in (0.3, 1e-2, 1e-6)]
    assert all(later >= earlier * (1 - 1e-5) for earlier, later in pairwise(quantiles))


def test_a_line_is_rounded_to_the_safe_side_of_the_exact_value():
    generator = np.random.default_rng(3)
    with mpmath.workdps(400):
        for _ in range(4000):
            log_delta = -float(10 ** generator.uniform(-16, 2.8))
            epsilon = float(generator.choice([-1.0, 1.0]) * 10 ** generator.uniform(-12, 2.7))
            alpha = float(generator.choice([generator.random(), 10 ** generator.uniform(-300, 0), 1 - 10 ** generator.uniform(-16, 0)]))
            delta, slope = mpmath.exp(mpmath.mpf(log_delta)), mpmath.exp(mpmath.mpf(epsilon))
            exact = 1 - delta - slope * alpha if epsilon > 0 else slope * (1 - delta - mpmath.mpf(alpha))
            line = Line(epsilon, log_delta)
            assert line.false_negative_rate(alpha) <= exact
            assert line.true_positive_rate(alpha) >= 1 - exact


def test_identical_laws_are_told_apart_by_nobody():
    found = SeenThroughDelta(lambda _: -math.inf)
    for alpha in (0.0, 1e-12, 0.3, 1.0):
        assert (1 - alpha) * (1 - 1e-15) <= found.trade_off(alpha) <= 1 - alpha
    assert advantage(found) == 0.0
    assert bayes_success(found, 0.3) == pytest.approx(0.7, rel=1e-15)
    assert loss_quantile(found, 1e-9) == pytest.approx(0.0, abs=1e-9)


def test_without_a_guarantee_every_attack_may_succeed():
    found = NonPrivateProfile("raw data released")
    assert trade_off(found, [0.0, 0.5]) == (0.0, 0.0)
    assert advantage(found) == bayes_success(found, 0.3) == true_positive_rate(found, 0.0) == loss_tail(found, math.inf) == 1.0
    assert loss_quantile(found, 1e-5) == math.inf
    assert posterior_bound(found, 0.3, 1e-5).highest == 1.0
    assert posterior_bound(found, 0.3, 1e-5).lowest == 0.0


def test_answers_dont_depend_on_what_was_asked_before():
    found = gaussian_profile(1.3)
    first = found.trade_off(0.03)
    for alpha in ALPHAS:
        found.trade_off(alpha)
    assert found.trade_off(0.03) == first == gaussian_profile(1.3).trade_off(0.03)


def test_a_profile_with_a_floor_gives_a_safe_and_falling_curve():
    def log_delta(epsilon):
        value = gdp_log_delta(1.0, epsilon)
        if value < math.log(1e-6):
            raise NumericalFloor("delta", math.exp(value), 1e-6, "ask for a smaller epsilon")
        return value + 1e-12

    found = SeenThroughDelta(log_delta)
    alphas = [0.0, 1e-12, 1e-8, 1e-4, 0.01, 0.5, 0.99, 1 - 1e-9]
    betas = trade_off(found, alphas)
    assert list(betas) == sorted(betas, reverse=True)
    assert all(beta <= norm.cdf(norm.isf(alpha) - 1.0) for alpha, beta in zip(alphas, betas, strict=True))
    assert betas[0] >= 1 - 1.001e-6
    assert betas[4] == pytest.approx(norm.cdf(norm.isf(0.01) - 1.0), rel=1e-6)
    assert loss_tail(found, 20.0) == pytest.approx(1e-6, rel=1e-3)


def test_a_profile_without_even_its_advantage_is_refused():
    def log_delta(_):
        raise NumericalFloor("delta", 0.0, 1e-6, "nothing is known")

    with pytest.raises(NumericalFloor, match="nothing is known"):
        SeenThroughDelta(log_delta).trade_off(0.1)


def test_a_gaussian_curve_costs_two_evaluations_a_point_and_any_curve_a_bounded_number():
    smooth, cornered = gaussian_profile(1.0), randomized_response(1.0)
    smooth.trade_off(0.2), cornered.trade_off(0.2)
    smooth.asked = cornered.asked = 0
    trade_off(smooth, MODERATE)
    trade_off(cornered, ALPHAS)
    assert smooth.asked <= 2 * len(MODERATE)
    assert cornered.asked <= 30 * len(ALPHAS)


def test_the_lines_of_a_flat_curve_need_no_search():
    assert SupportingLines(lambda _: 0.0).best(0.5).false_negative_rate(0.5) <= 0.0


@pytest.mark.parametrize(
    ("ask", "text"),
    thinned(
        [
            (lambda p: trade_off(p, [0.1, math.nan]), "alpha must be in [0, 1], got nan"),
            (lambda p: true_positive_rate(p, -0.1), "alpha must be in [0, 1], got -0.1"),
            (lambda p: bayes_success(p, 1.0), "prior must be in [1e-300, 1), got 1.0"),
            (lambda p: positive_predictive_value(p, 0.1, math.nan), "prior must be in [1e-300, 1), got nan"),
            (lambda p: loss_tail(p, 0.0), "epsilon must be > 0, got 0.0"),
            (lambda p: loss_quantile(p, 1.0), "probability must be in (0, 1), got 1.0"),
            (lambda _: posterior(-1.0, 0.5), "epsilon must be >= 0, got -1.0"),
        ],
        every=3,
    ),
)
def test_questions_out_of_range_are_refused_by_name(ask, text):
    with pytest.raises(InvalidParameter) as caught:
        ask(gaussian_profile(1.0))
    assert str(caught.value) == text
