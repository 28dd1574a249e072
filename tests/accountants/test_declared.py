"""What is only declared, composed with everything else: against sums over all outcomes in many digits, and against real selections."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tests.selection import chosen, thinned
from zetadp.accountants import Composed, Grouped, Leaf, PoissonSampled, Release, Repeated, accountant_named, profile
from zetadp.accountants.calibration import ClippingBound, NoiseScale, Target, calibrate_scale, solve
from zetadp.accountants.densities.bounded_range import DENSITY as RANGE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.bounded import WholeRange, WholeResponse
from zetadp.accountants.failing import split
from zetadp.accountants.filters.budgets import GdpBudget, PureBudget, ZcdpBudget
from zetadp.accountants.filters.filter import Filter
from zetadp.mechanisms import (
    ApproximateGuarantee,
    CalibrationFailed,
    Gaussian,
    GdpGuarantee,
    InvalidParameter,
    NoisyMax,
    PureGuarantee,
    RangeGuarantee,
    Sensitivity,
    SparseVector,
    UnsupportedEvent,
    ZcdpGuarantee,
)

WHO = {"adjacency": "add_remove", "unit": "record"}


def pure(epsilon):
    return Release(mechanism=PureGuarantee(epsilon=epsilon, **WHO))


def approximate(epsilon, delta):
    return Release(mechanism=ApproximateGuarantee(epsilon=epsilon, delta=delta, **WHO))


def ranged(eta):
    return Release(mechanism=RangeGuarantee(eta=eta, **WHO))


def gaussian(std):
    return Release(mechanism=Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, **WHO)))


def worst_pair(epsilon, delta):
    """(P, Q) on four points, exactly as Kairouz, Oh and Viswanath state it."""
    e, d = mpmath.mpf(epsilon), mpmath.mpf(delta)
    p = (1 - d) / (1 + mpmath.exp(-e))
    return [(d, mpmath.mpf(0)), (p, (1 - d) - p), ((1 - d) - p, p), (mpmath.mpf(0), d)]


def composed_delta(pairs, epsilon):
    """H at e^epsilon of a product of pairs on few points, over all outcomes."""
    total, g = mpmath.mpf(0), mpmath.exp(epsilon)
    for outcome in itertools.product(*pairs):
        p, q = mpmath.fprod(one[0] for one in outcome), mpmath.fprod(one[1] for one in outcome)
        total += max(p - g * q, mpmath.mpf(0))
    return total


def holds(bound, truth, width=1e-9):
    log_truth = float(mpmath.log(truth))
    assert bound.log_lower <= log_truth <= bound.log_upper
    assert bound.log_upper - bound.log_lower <= width * max(1.0, abs(log_truth))


@pytest.mark.parametrize("epsilon", thinned([0.0, 0.3, 1.1, 2.4], every=2))
@pytest.mark.parametrize(
    "facts", [[(0.5, 0.01)], [(0.5, 1e-9)] * 3, [(0.5, 0.01), (1.0, 0.2), (0.0, 0.03)], [(0.25, 1e-3)] * 4 + [(1.5, 1e-6)]], ids=len
)
def test_guarantees_that_may_fail_compose_exactly(facts, epsilon):
    event = Composed(events=tuple(approximate(*fact) for fact in facts))
    with mpmath.workdps(40):
        holds(profile(event).delta(epsilon), composed_delta([worst_pair(*fact) for fact in facts], epsilon))


def test_one_guarantee_gives_back_its_own_numbers():
    found = profile(approximate(1.0, 1e-6))
    assert found.epsilon(1e-6).lower == pytest.approx(1.0, rel=1e-12)
    assert 1.0 <= found.epsilon(1e-6).upper <= 1.0 + 1e-12
    assert found.epsilon(math.nextafter(1e-6, 0.0)).lower == math.inf
    assert found.delta(math.inf).log_lower == pytest.approx(math.log(1e-6), rel=1e-12)
    assert found.delta(1.0).upper >= 1e-6
    assert found.rdp(2.0) is None


def test_a_guarantee_beside_noise_at_its_own_delta_has_no_finite_epsilon():
    for other in (gaussian(1.0), Release(mechanism=ZcdpGuarantee(rho=0.1, **WHO))):
        assert profile(Composed(events=(approximate(1.0, 1e-6), other))).epsilon(1e-6).upper == math.inf


def test_equal_failures_are_counted_and_the_sum_may_be_exactly_what_is_asked():
    twice = profile(Repeated(count=2, event=approximate(0.0, 0.25)))
    assert twice.epsilon(0.4375 * (1 + 1e-15)).upper == 0.0
    assert twice.epsilon(0.4375).lower == 0.0  # exactly the sum: only the upper end may say that nothing is guaranteed
    assert twice.epsilon(0.4374).lower == math.inf
    many = profile(Repeated(count=10**12, event=approximate(0.0, 1e-300)))
    assert many.delta(0.0).log_upper == pytest.approx(math.log(1e-288), rel=1e-12)
    assert profile(Repeated(count=10**12, event=approximate(0.0, 1e-3))).epsilon(0.999).lower == math.inf


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("epsilon", thinned([0.0, 1e-20, 1e-3, 1.0], every=2))
def test_a_group_of_a_guarantee_that_may_fail(epsilon, size):
    leaf = Leaf(1.0, ApproximateGuarantee(epsilon=epsilon, delta=1e-5, **WHO), group=size)
    rest, failure = split({leaf: 1})
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        truth = mpmath.mpf(1e-5) * mpmath.fsum(mpmath.exp(j * e) for j in range(size))
    assert float(truth) <= float(failure) * (1 + 1e-15)
    assert float(failure) == pytest.approx(float(truth), rel=1e-3 if epsilon == 1e-3 else 1e-9)
    assert [one.group for one in rest] == ([size] if epsilon else [])


def response_with_gaussian(releases, epsilon, mu, level):
    """delta of randomized responses beside one Gaussian: the Gaussian's at the level that the responses leave."""
    e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
    p = 1 / (1 + mpmath.exp(-e))

    def alone(x):
        return mpmath.ncdf(m / 2 - x / m) - mpmath.exp(x) * mpmath.ncdf(-m / 2 - x / m)

    return mpmath.fsum(
        mpmath.binomial(releases, j) * p**j * (1 - p) ** (releases - j) * alone(level - (2 * j - releases) * e) for j in range(releases + 1)
    )


@pytest.mark.parametrize(
    ("releases", "epsilon", "mu", "level"),
    thinned(
        [
            (*pure, mu, level)
            for level in (0.0, 1.0, 5.0)
            for mu in (0.3, 2.0)
            for pure in ((1, 0.1), (7, 0.5), (40, 0.05), (3, 4.0), (1, 30.0))
        ],
        every=3,
    ),
)
def test_pure_guarantees_beside_noise_are_inverted_with_a_proved_bracket(releases, epsilon, mu, level):
    event = Composed(events=(Repeated(count=releases, event=pure(epsilon)), gaussian(1.0 / mu)))
    with mpmath.workdps(50):
        truth = float(mpmath.log(response_with_gaussian(releases, epsilon, 1.0 / (1.0 / mu), level)))
    for route in ("contour", "fft"):
        bound = profile(event, route).delta(level)
        assert bound.log_lower <= truth <= bound.log_upper
    assert profile(event, "contour").delta(level).log_upper - truth <= 1e-6 * max(1.0, abs(truth))


@pytest.mark.parametrize("transform", [WholeResponse, WholeRange])
@pytest.mark.parametrize("size", thinned([1e-9, 1e-3, 0.4, 3.0, 40.0, 700.0], every=2))
@pytest.mark.parametrize("tilt", thinned([1e-3, 0.3, 2.0, 60.0], every=2))
def test_moment_functions_are_within_their_error(transform, size, tilt):
    if tilt * size > 300.0:
        with pytest.raises(Exception, match="exceeds what a float can hold"):
            transform(size, 1).line(tilt, 1.0, 2, 1e-9)
        return
    made, step = transform(size, 10), 0.37 * max(tilt, 1.0 / size)
    found = made.line(tilt, step, 60, 1e-12)
    with mpmath.workdps(60):
        e = mpmath.mpf(size)
        for k in range(60):
            s = mpmath.mpc(tilt, step * k)
            if transform is WholeResponse:
                truth = (mpmath.exp(s * e) + mpmath.exp(-(s + 1) * e)) / (1 + mpmath.exp(-e))
            else:
                truth = mpmath.sinh((s + 0.5) * e) / ((2 * s + 1) * mpmath.sinh(e / 2))
            assert abs(complex(found.minus_one[k]) - (truth - 1)) <= found.error[k]
            assert float(mpmath.log(abs(truth))) <= float(made.log_decay(tilt, np.array([step * k]))[0])
            if k == 0:
                assert float(mpmath.log(truth.real)) <= float(made.log_moment_upper(np.array([tilt]))[0])


def two_points(eta, t):
    """The pair of losses t and t - eta."""
    p = (mpmath.exp(eta) - mpmath.exp(t)) / (mpmath.exp(eta) - 1)
    return [(p, p * mpmath.exp(-t)), (1 - p, (1 - p) * mpmath.exp(eta - t))]


@pytest.mark.parametrize("eta", chosen([0.1, 1.0, 6.0], [1.0]))
def test_a_bounded_ranges_curve_is_the_largest_of_its_pairs(eta):
    with mpmath.workdps(30):
        for share in (-0.9, -0.3, 0.0, 0.2, 0.7, 0.99):
            epsilon = share * eta
            each = [composed_delta([two_points(mpmath.mpf(eta), mpmath.mpf(eta) * k / 4000)], epsilon) for k in range(1, 4000)]
            best = composed_delta([two_points(mpmath.mpf(eta), mpmath.mpf(epsilon + eta) / 2)], epsilon)
            found = RANGE.calls(Mixture((1.0,), (eta,)), Mixture((1.0,), (0.0,)), np.array([epsilon]))
            assert max(each) <= best * (1 + mpmath.mpf(10) ** -25)
            assert found.lower[0] <= best <= found.upper[0]
            assert found.upper[0] - found.lower[0] <= 1e-12 * best + 1e-290


@pytest.mark.parametrize("eta", thinned([0.3, 2.0], every=2))
def test_no_pairs_of_bounded_range_exceed_what_is_composed(eta):
    found, orders = profile(Repeated(count=3, event=ranged(eta))), (1.5, 2.0, 8.0)
    rng = np.random.default_rng(5)
    with mpmath.workdps(20):
        for _ in range(40):
            pairs = [two_points(mpmath.mpf(eta), mpmath.mpf(eta) * share) for share in rng.uniform(0.02, 0.98, 3)]
            for epsilon in (0.0, 0.5 * eta, 1.5 * eta, 2.5 * eta):
                assert composed_delta(pairs, epsilon) <= found.delta(epsilon).upper * (1 + 1e-12)
            for order in orders:
                moment = mpmath.fsum(p**order * q ** (1 - order) for p, q in pairs[0])
                assert mpmath.log(moment) / (order - 1) <= ranged(eta).mechanism.privacy_loss().renyi(order)


def test_many_bounded_ranges_cost_what_their_moments_say():
    eta, count, delta = 0.1, 1000, 1e-5
    found = profile(Repeated(count=count, event=ranged(eta))).epsilon(delta)
    assert found.route.startswith("rdp")
    assert found.lower == 0.0
    assert found.upper <= profile(Release(mechanism=ZcdpGuarantee(rho=count * eta**2 / 8, **WHO))).epsilon(delta).upper * (1 + 1e-9)
    assert found.upper < 0.6 * profile(Repeated(count=count, event=pure(eta))).epsilon(delta).lower


SCORES = [([0.0, 0.0, 0.0], [1.0, -1.0, 0.0]), ([3.0, 2.5, -1.0], [2.0, 3.5, 0.0]), ([0.0, 5.0], [1.0, 4.0])]


def exponential_mechanism(scores, scale):
    weights = np.exp(np.asarray(scores) / scale)
    return weights / weights.sum()


def permute_and_flip(scores, scale):
    """Over all orders: each index in turn is taken with probability e^{(score - best) / scale}."""
    accepted = np.exp((np.asarray(scores) - max(scores)) / scale)
    law = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for index in order:
            law[index] += left * accepted[index] / len(orders)
            left *= 1.0 - accepted[index]
    return law


def laplace_noisy_max(scores, scale):
    x = np.linspace(-60.0, 70.0, 400_001)
    density = np.exp(-np.abs(x) / scale) / (2.0 * scale)

    def below(y):
        return np.where(y < 0.0, 0.5 * np.exp(np.minimum(y, 0.0) / scale), 1.0 - 0.5 * np.exp(-np.maximum(y, 0.0) / scale))

    return np.array(
        [
            np.trapezoid(density * np.prod([below(x + s - other) for j, other in enumerate(scores) if j != i], axis=0), x)
            for i, s in enumerate(scores)
        ]
    )


@pytest.mark.parametrize(("first", "second"), thinned(SCORES, every=2))
@pytest.mark.parametrize(
    ("noise", "law"),
    thinned([("gumbel", exponential_mechanism), ("exponential", permute_and_flip), ("laplace", laplace_noisy_max)], every=2),
)
def test_real_selections_are_as_private_as_their_formula(noise, law, first, second):
    scale = 1.5
    loss = NoisyMax(noise=noise, scale=scale, score_sensitivity=1.0, **WHO).privacy_loss()
    p, q = law(first, scale), law(second, scale)
    assert p.sum() == pytest.approx(1.0, rel=1e-6)
    losses = np.log(p / q)
    assert np.abs(losses).max() <= loss.pure_epsilon * (1 + 1e-6)
    if noise == "gumbel":
        assert np.ptp(losses) <= loss.eta * (1 + 1e-12)
    for epsilon in (0.0, 0.3, 0.9):
        assert np.maximum(p - math.exp(epsilon) * q, 0.0).sum() <= math.exp(loss.log_delta(epsilon)) * (1 + 1e-6)


def test_half_the_epsilon_for_monotonic_scores_and_not_for_others():
    first, second = [0.0, 0.0], [1.0, 0.0]
    monotonic = NoisyMax(noise="gumbel", scale=1.0, score_sensitivity=1.0, monotonic=True, **WHO).privacy_loss()
    losses = np.log(exponential_mechanism(first, 1.0) / exponential_mechanism(second, 1.0))
    assert np.ptp(losses) == pytest.approx(monotonic.eta, rel=1e-12)
    opposed = np.log(exponential_mechanism(first, 1.0) / exponential_mechanism([1.0, -1.0], 1.0))
    assert np.ptp(opposed) == pytest.approx(2.0 * monotonic.eta, rel=1e-12)


def test_a_sparse_vector_run_attains_its_formula_and_no_more():
    """Eleven queries, of which the last is above: the outcome's probability by integration over the threshold's noise."""
    b1, b2 = 2.0, 4.0
    run = SparseVector(threshold_scale=b1, query_scale=b2, query_sensitivity=1.0, most_above=1, **WHO)
    z = np.linspace(-120.0, 120.0, 200_001)
    density = np.exp(-np.abs(z) / b1) / (2.0 * b1)

    def above(query):
        y = z - query
        return np.where(y > 0.0, 0.5 * np.exp(-np.maximum(y, 0.0) / b2), 1.0 - 0.5 * np.exp(np.minimum(y, 0.0) / b2))

    def probability(others, last):
        return np.trapezoid(density * (1.0 - above(others)) ** 10 * above(last), z)

    worst = 0.0
    for others, last in itertools.product((-20.0, -5.0, 0.0, 10.0), (-20.0, 0.0, 10.0)):
        for moved, other in itertools.product((-1.0, 0.0, 1.0), repeat=2):
            worst = max(worst, abs(math.log(probability(others, last) / probability(others + moved, last + other))))
    assert worst <= run.epsilon * (1 + 1e-6)
    assert worst >= 0.99 * run.epsilon


def test_concentrated_guarantees_add_up_and_grow_with_the_square_of_a_group():
    one, both = (
        Release(mechanism=ZcdpGuarantee(rho=0.1, **WHO)),
        Composed(events=(gaussian(2.0), Release(mechanism=ZcdpGuarantee(rho=0.1, **WHO)))),
    )
    assert profile(one).rdp(4.0) == pytest.approx(0.4, rel=1e-9)
    assert profile(both).rdp(4.0) == pytest.approx(0.4 + 0.5, rel=1e-9)
    assert profile(Grouped(size=3, unit="user", event=one)).rdp(4.0) == pytest.approx(3.6, rel=1e-9)
    # Any Gaussian with this rho is one of them.
    assert profile(one).epsilon(1e-5).upper > profile(gaussian(1.0 / math.sqrt(0.2))).epsilon(1e-5).upper


def test_a_gdp_guarantee_is_a_gaussian_release():
    found, noise = profile(Release(mechanism=GdpGuarantee(mu=0.5, **WHO))), profile(gaussian(2.0))
    assert found.gdp_mu == noise.gdp_mu
    assert found.delta(1.0) == noise.delta(1.0)


@pytest.mark.parametrize("event", [approximate(0.1, 1e-6), Release(mechanism=ZcdpGuarantee(rho=0.1, **WHO))])
def test_a_sample_of_a_guarantee_is_refused_with_what_to_do(event):
    sampled = PoissonSampled(probability=0.1, event=event)
    with pytest.raises(UnsupportedEvent, match="declare the guarantee of what was run on the sample"):
        profile(sampled)


def test_noise_is_calibrated_around_a_history_that_stays_as_it_is():
    history = Composed(events=(approximate(0.5, 1e-6), pure(0.2)))
    event = Composed(events=(history, Repeated(count=10, event=gaussian(1.0))))
    solution = solve(event, NoiseScale(), Target(epsilon=2.0, delta=1e-5), accountant_named("auto"))
    assert profile(solution.event).epsilon(1e-5).upper <= 2.0
    assert profile(NoiseScale().applied(event, solution.value * 0.999)).epsilon(1e-5).lower > 2.0
    assert solution.event.events[0] == history
    with pytest.raises(UnsupportedEvent, match="gdp_mu target"):
        solve(Composed(events=(approximate(0.0, 1e-6), gaussian(1.0))), NoiseScale(), Target(gdp_mu=1.0), accountant_named("auto"))
    with pytest.raises(CalibrationFailed):
        calibrate_scale(event, epsilon=0.5, delta=1e-5)
    with pytest.raises(InvalidParameter, match="a part of the event with noise in it"):
        NoiseScale().limits(history)
    with pytest.raises(InvalidParameter, match="a part without what is only declared"):
        ClippingBound().limits(event)


def test_filters_charge_what_is_known_of_each():
    zcdp = Filter.opened(ZcdpBudget(rho=1.0), "add_remove", "record")
    assert zcdp.spend(ranged(1.0)).remaining.rho == pytest.approx(1.0 - 1 / 8, rel=1e-12)
    assert zcdp.spend(pure(1.0)).remaining.rho == pytest.approx(0.5, rel=1e-12)
    assert zcdp.spend(Release(mechanism=ZcdpGuarantee(rho=0.25, **WHO))).remaining.rho == pytest.approx(0.75, rel=1e-12)
    assert zcdp.spend(Grouped(size=2, unit="record2", event=ranged(1.0)).event).remaining.rho == pytest.approx(0.875, rel=1e-12)
    plain = Filter.opened(PureBudget(epsilon=3.0), "add_remove", "record")
    assert plain.spend(Release(mechanism=NoisyMax.example())).remaining.epsilon == pytest.approx(2.5, rel=1e-12)
    assert Filter.opened(GdpBudget(mu=1.0), "add_remove", "record").admits(Release(mechanism=GdpGuarantee(mu=1.0, **WHO)))
    for opened in (zcdp, plain, Filter.opened(GdpBudget(mu=9.0), "add_remove", "record")):
        with pytest.raises(UnsupportedEvent):
            opened.price(approximate(0.1, 1e-9))


def test_scores_are_rounded_up():
    found = NoisyMax(noise="laplace", scale=3.0, score_sensitivity=0.1, **WHO).epsilon
    assert Fraction(found) >= 2 * Fraction(0.1) / 3
    found = SparseVector(threshold_scale=3.0, query_scale=7.0, query_sensitivity=0.1, most_above=3, **WHO).epsilon
    assert Fraction(found) >= Fraction(0.1) * (Fraction(1, 3) + Fraction(6, 7))


def test_a_derivation_names_what_is_left_of_a_guarantee_that_may_fail_and_its_delta():
    half, other = approximate(0.5, 1e-7), approximate(0.25, 1e-6)
    steps = profile(Composed(events=(pure(0.25), pure(0.125), half, other, other))).derivation()
    named = {(step.value, step.source) for step in steps if step.symbol == "epsilon"}
    assert named == {(0.25, "pure_dp, approximate_dp"), (0.125, "pure_dp"), (0.5, "approximate_dp")}
    assert [(step.value, step.formula) for step in steps if step.symbol == "delta_i"] == [(1e-7, "declared"), (1e-6, "declared, 2 times")]
    (failure,) = [step.value for step in steps if step.symbol == "f"]
    assert failure == pytest.approx(1 - (1 - 1e-7) * (1 - 1e-6) ** 2, rel=1e-9)
