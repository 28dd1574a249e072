"""Randomized response and other local releases: every route against exact sums."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from tests.accountants.events import laplace
from tests.accountants.two_point_truth import (
    beside_responses,
    gaussian,
    gaussian_delta,
    laplace_delta,
    local_laplace,
    repeated_response_delta,
    response,
    response_delta,
    shown,
)
from tests.selection import thinned
from zetadp.accountants import ACCOUNTANTS, Composed, FixedSizeSampled, Grouped, PoissonSampled, Repeated, accountant_named, leaves, profile
from zetadp.accountants.calibration import Target, calibrate, solve
from zetadp.accountants.calibration.parameters import ClippingBound, SamplingProbability, Steps
from zetadp.accountants.cross_check import recomputed_epsilon
from zetadp.accountants.densities import RESPONSE
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.dp_accounting_events import to_dp_accounting
from zetadp.accountants.filters import Filter, PureBudget
from zetadp.accountants.filters.spends import pure_cost
from zetadp.accountants.leaf import Leaf
from zetadp.mechanisms import Adjacency, InvalidParameter, NumericalFloor, ResponseLoss, UnsupportedEvent


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(90):
        yield


def repeated(count, event):
    return Repeated(count=count, event=event) if count > 1 else event


def holds(bound, exact, width):
    """Whether a bracket of delta holds the exact value, and is this narrow (as a logarithm, or relative to it where that is large)."""
    log = mpmath.log(exact)
    return bound.log_lower <= log <= bound.log_upper + 1e-80 and bound.log_upper - bound.log_lower <= width * max(1.0, -bound.log_upper)


@pytest.mark.parametrize("share", thinned([0.0, 0.02, 0.3, 0.7, 0.97], every=3))
@pytest.mark.parametrize("count", thinned([1, 2, 3, 10, 101, 1000, 10_000], every=4))
@pytest.mark.parametrize("epsilon", thinned([0.01, 0.1, 1.0, 2.5, 5.0], every=2))
def test_repeated_randomized_response_is_the_binomial_sum(epsilon, count, share):
    t = share * count * epsilon
    assert holds(profile(repeated(count, response(epsilon))).delta(t), repeated_response_delta(epsilon, count, t), 1e-10)


@pytest.mark.parametrize("log10_delta", thinned([-1, -5, -50, -300, -3000], every=3))
@pytest.mark.parametrize(("epsilon", "count"), thinned([(0.01, 10_000), (0.1, 1000), (1.0, 300), (5.0, 10_000)], every=2))
def test_epsilon_of_repeated_randomized_response_is_where_the_sum_falls_to_delta(epsilon, count, log10_delta):
    bound = profile(repeated(count, response(epsilon))).epsilon_at_log_delta(log10_delta * math.log(10.0))
    target = mpmath.exp(mpmath.mpf(log10_delta * math.log(10.0)))
    assert repeated_response_delta(epsilon, count, bound.upper) <= target
    assert repeated_response_delta(epsilon, count, bound.lower) > target
    assert bound.upper - bound.lower <= 1e-10 * bound.upper


@pytest.mark.parametrize(("epsilon", "count"), thinned([(1e-50, 10**6), (1e-5, 10**10), (700.0, 1000), (1e50, 3), (36.9, 10**9)], every=2))
def test_extreme_randomized_responses_have_narrow_ordered_brackets(epsilon, count):
    found = profile(repeated(count, response(epsilon)))
    assert found.route == "lattice"
    for t in (0.0, 0.3 * epsilon * count, 0.999 * epsilon * count):
        bound = found.delta(t)
        assert bound.log_upper - bound.log_lower <= 1e-8 * max(1.0, -bound.log_upper) or bound.log_upper == -math.inf
    assert 0.0 <= found.epsilon(1e-9).lower <= found.epsilon(1e-9).upper <= epsilon * count * (1.0 + 2e-14)


@pytest.mark.parametrize("log10_delta", thinned([-1, -12, -300, -4000], every=2))
@pytest.mark.parametrize(("dimension", "q"), thinned([(2, 1.0), (14, 1.0), (3, 0.3), (4, 1e-9), (10**6, 0.999)], every=3))
def test_one_release_that_is_not_always_shown_has_its_closed_form_at_any_delta(dimension, q, log10_delta):
    event = PoissonSampled(probability=q, event=response(1.0, dimension))
    found = profile(event)
    exact = shown(response_delta(1.0), pair_of(next(iter(leaves(event)))).shown)
    target = mpmath.exp(mpmath.mpf(log10_delta * math.log(10.0)))
    bound = found.epsilon_at_log_delta(log10_delta * math.log(10.0))
    assert exact(mpmath.mpf(bound.upper)) <= target
    assert bound.lower == 0.0 or exact(mpmath.mpf(bound.lower)) > target
    assert bound.upper - bound.lower <= 1e-12
    assert holds(found.delta(0.5), exact(mpmath.mpf(0.5)), 1e-11)


def test_nothing_is_lost_beyond_the_largest_loss():
    found = profile(repeated(7, response(0.3)))
    assert found.delta(7 * 0.3 * (1.0 + 1e-12)).upper == 0.0
    assert found.delta(7 * 0.3 * (1.0 - 1e-9)).lower > 0.0


def test_dp_accounting_counts_repeated_randomized_response_once_and_we_do_not():
    from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    # Half of the answers are replaced by a fair coin: odds of 3.
    peer = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    library = peer.compose(SelfComposedDpEvent(RandomizedResponseDpEvent(0.5, 2), 10)).get_epsilon(1e-8)
    ours = profile(repeated(10, response(math.log(3.0)))).epsilon(1e-8)
    assert library < 1.2
    assert ours.lower > 10.9
    # Where the library claims delta = 1e-8, it is nearly 1.
    assert repeated_response_delta(math.log(3.0), 10, library) > 0.8
    assert ours.upper <= 10 * math.log(3.0)


def nothing(t):
    """H at e^t of two equal laws."""
    return max(mpmath.mpf(0), 1 - mpmath.exp(t))


MIXED = {
    "two on one grid": (
        (repeated(10, response(0.1)), repeated(7, response(0.25))),
        lambda: beside_responses(beside_responses(nothing, 0.25, 7), 0.1, 10),
    ),
    "with Laplace noise": (
        (repeated(20, response(0.1)), local_laplace(0.6, dimension=1)),
        lambda: beside_responses(laplace_delta(0.6), 0.1, 20),
    ),
    "with Gaussian noise": ((repeated(30, response(0.07)), gaussian(0.5)), lambda: beside_responses(gaussian_delta(0.5), 0.07, 30)),
    "with a sampled one": (
        (repeated(40, response(0.2)), PoissonSampled(probability=0.3, event=response(0.4))),
        lambda: beside_responses(shown(response_delta(0.4), 0.3), 0.2, 40),
    ),
    "sampled Laplace noise": (
        (repeated(40, response(0.2)), PoissonSampled(probability=0.3, event=local_laplace(0.4))),
        lambda: beside_responses(shown(laplace_delta(0.4), 0.3), 0.2, 40),
    ),
    "an even dimension": (
        (repeated(25, response(0.2)), response(0.4, dimension=4)),
        lambda: beside_responses(shown(response_delta(0.4), mpmath.mpf(5) / 8), 0.2, 25),
    ),
}


@pytest.mark.parametrize("t", thinned([0.0, 0.3, 1.0, 2.2], every=2))
@pytest.mark.parametrize("name", thinned(MIXED, every=2))
def test_mixed_compositions_hold_the_exact_sum(name, t):
    parts, exact = MIXED[name]
    assert holds(profile(Composed(events=parts)).delta(t), exact()(mpmath.mpf(t)), 3e-6)


@pytest.mark.parametrize("t", [0.0, 0.5, 1.5, 2.5])
def test_losses_without_a_common_divisor_are_bounded_if_widely(t):
    parts = repeated(10, response(0.1)), repeated(7, response(math.sqrt(0.05)))
    exact = beside_responses(beside_responses(nothing, math.sqrt(0.05), 7), 0.1, 10)(mpmath.mpf(t))
    bound = profile(Composed(events=parts)).delta(t)
    assert bound.log_lower <= mpmath.log(exact) <= bound.log_upper <= mpmath.log(exact) + 0.01


@pytest.mark.parametrize("t", thinned([0.0, 0.9, 4.0, 11.0], every=2))
@pytest.mark.parametrize(("count", "q", "epsilon"), thinned([(1, 0.3, 1.0), (12, 0.1, 1.0), (40, 0.5, 0.3), (9, 0.999, 2.0)], every=2))
def test_samples_of_local_releases_are_a_mixture_over_how_many_were_shown(count, q, epsilon, t):
    """Not amplified: delta is the mean, over how often the record was in the sample, of that many whole releases' delta."""
    exact = mpmath.fsum(
        mpmath.binomial(count, m) * mpmath.mpf(q) ** m * (1 - mpmath.mpf(q)) ** (count - m) * beside_responses(nothing, epsilon, m)(t)
        for m in range(1, count + 1)
    )
    bound = profile(repeated(count, PoissonSampled(probability=q, event=response(epsilon)))).delta(t)
    if t >= count * epsilon:
        assert bound.upper == 0.0
    else:
        assert holds(bound, exact, 3e-6)


def test_a_sample_of_a_fixed_size_shows_a_record_as_often_as_a_poisson_sample():
    poisson = profile(repeated(20, PoissonSampled(probability=0.25, event=response(0.7))))
    fixed = profile(repeated(20, FixedSizeSampled(sample_size=10, population_size=40, event=response(0.7))))
    assert fixed.epsilon(1e-6) == poisson.epsilon(1e-6)


def test_sampling_never_lowers_the_pure_epsilon_of_a_local_release():
    assert pair_of(Leaf(1e-6, local_laplace(0.8).mechanism)).distance == pytest.approx(0.8, rel=1e-15)
    assert profile(PoissonSampled(probability=1e-6, event=response(0.8))).delta(0.8 * (1.0 - 1e-9)).lower > 0.0
    assert pure_cost(PoissonSampled(probability=1e-6, event=response(0.8))) == pure_cost(response(0.8))


@pytest.mark.parametrize("event", [response(0.3), response(0.3, dimension=6), local_laplace(0.3)], ids=["odd", "even", "laplace"])
def test_a_group_of_local_releases_is_their_composition(event):
    grouped = Grouped(size=6, unit="user", event=event)
    assert profile(grouped).epsilon(1e-4) == profile(repeated(6, event)).epsilon(1e-4)
    assert profile(grouped).delta(0.5) == profile(repeated(6, event)).delta(0.5)


def test_a_group_with_poisson_samples_is_a_composition_of_samples():
    sampled = PoissonSampled(probability=0.2, event=response(0.5))
    assert leaves(Grouped(size=3, unit="user", event=repeated(4, sampled))) == leaves(repeated(12, sampled))


def test_a_group_tied_together_by_a_fixed_size_is_refused():
    event = Grouped(size=3, unit="user", event=FixedSizeSampled(sample_size=5, population_size=50, event=response(0.5)))
    assert all("largest size" in (accountant.unsupported(event) or "") for accountant in ACCOUNTANTS if accountant.name != "gdp")
    with pytest.raises(UnsupportedEvent, match="groups of local releases with samples of a fixed or a largest size"):
        profile(event)


def test_a_group_that_is_in_every_sample_is_its_composition():
    whole = FixedSizeSampled(sample_size=50, population_size=50, event=response(0.5))
    assert profile(Grouped(size=3, unit="user", event=whole)).epsilon(1e-6) == profile(repeated(3, response(0.5))).epsilon(1e-6)


def test_a_leaf_that_claims_a_group_of_local_releases_has_no_pair():
    # As the pair at a multiple of the distance, a central release's group, it would be another event.
    assert unsupported_reason(Leaf(1.0, response(1.0).mechanism, group=2)) is not None


ODD_ONES = [(0.3, 1.0), (1.0, 1.0), (2.0, 0.05), (1e-9, 1.0), (30.0, 0.4)]


@pytest.mark.parametrize("order", thinned([1.0001, 1.5, 2.0, 17.0, 1000.0], every=3))
@pytest.mark.parametrize(("epsilon", "q"), thinned(ODD_ONES, every=2))
def test_renyi_divergence_is_the_closed_form_to_its_last_digits(epsilon, q, order):
    e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
    moment = (mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))
    exact = mpmath.log(1 - mpmath.mpf(q) + mpmath.mpf(q) * moment) / (a - 1)
    event = response(epsilon) if q == 1.0 else PoissonSampled(probability=q, event=response(epsilon))
    found = accountant_named("rdp").profile(event).rdp(order)
    assert exact <= found <= exact * (1 + mpmath.mpf(1e-11))
    assert ResponseLoss(epsilon, q).renyi(order) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("epsilon", thinned([0.2, 1.0, 4.0], every=2))
@pytest.mark.parametrize("alpha", thinned([1e-6, 0.01, 0.2, 0.5, 0.9], every=3))
def test_trade_off_of_one_randomized_response_is_its_own(epsilon, alpha):
    exact = max(0.0, 1.0 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1.0 - alpha))
    found = profile(response(epsilon)).trade_off(alpha)
    assert exact * (1.0 - 1e-4) <= found <= exact * (1.0 + 1e-12)


@pytest.mark.parametrize("route", ["single", "lattice", "fft", "rdp"])
def test_every_route_that_answers_holds_one_release(route):
    found = accountant_named(route).profile(response(1.3))
    for t in (0.0, 0.4, 1.2):
        bound = found.delta(t)
        assert bound.log_lower <= mpmath.log(response_delta(1.3)(mpmath.mpf(t))) <= bound.log_upper


@pytest.mark.parametrize("count", thinned([2, 30, 400], every=2))
@pytest.mark.parametrize("share", thinned([0.0, 0.1, 0.4, 0.9], every=2))
def test_the_grid_agrees_with_the_binomial_sum(count, share):
    t = share * count * 0.4
    bound = accountant_named("fft").profile(repeated(count, response(0.4))).delta(t)
    assert bound.log_lower <= mpmath.log(repeated_response_delta(0.4, count, t)) <= bound.log_upper


@pytest.mark.parametrize(
    ("route", "text"),
    thinned(
        [("gdp", "isn't Gaussian"), ("contour", "its losses have atoms"), ("pld", "discretise only Gaussian and Laplace noise")], every=2
    ),
)
@pytest.mark.parametrize("event", [response(1.0), PoissonSampled(probability=0.5, event=local_laplace(1.0))], ids=["response", "sampled"])
def test_routes_that_have_no_bound_say_why(route, text, event):
    found = accountant_named(route).unsupported(event)
    assert text in found or (route == "contour" and "shown only sometimes" in found)


def test_the_recomputation_declines_losses_on_a_lattice():
    with pytest.raises(UnsupportedEvent, match="losses on a lattice"):
        recomputed_epsilon(repeated(1000, response(5.0, dimension=2)), 1e-5)


@pytest.mark.parametrize("event", [response(1.0), local_laplace(1.0), Grouped(size=3, unit="user", event=response(1.0))])
def test_export_to_dp_accounting_is_refused(event):
    with pytest.raises(InvalidParameter, match="releases every record separately"):
        to_dp_accounting(event)


def test_pure_budgets_take_exactly_epsilon_for_each_release():
    state = Filter.opened(PureBudget(epsilon=1.0), Adjacency.REPLACE_ONE, "record")
    for _ in range(4):
        state = state.spend(response(0.25))
    assert not state.admits(response(1e-30))


def test_calibrated_noise_meets_its_target_and_less_would_not():
    target = Target(epsilon=1.0, delta=1e-6)
    event, factor = calibrate(repeated(50, response(1.0)), target, accountant_named("auto"))
    (leaf,) = leaves(event)
    epsilon = leaf.mechanism.epsilon
    assert epsilon == pytest.approx(1.0 / factor, rel=1e-15)
    assert repeated_response_delta(epsilon, 50, 1.0) <= mpmath.mpf(1e-6)
    assert repeated_response_delta(epsilon * (1.0 + 1e-5), 50, 1.0) > mpmath.mpf(1e-6)


def test_steps_and_sampling_probability_can_be_calibrated_but_no_clipping_bound():
    target, auto = Target(epsilon=1.0, delta=1e-6), accountant_named("auto")
    steps = solve(response(0.05), Steps(), target, auto)
    assert repeated_response_delta(0.05, int(steps.value), 1.0) <= 1e-6 < repeated_response_delta(0.05, int(steps.value) + 1, 1.0)
    sampled = repeated(10, PoissonSampled(probability=0.5, event=response(1.0)))
    found = solve(sampled, SamplingProbability(), target, auto)
    assert profile(found.event).epsilon(1e-6).upper <= 1.0
    with pytest.raises(InvalidParameter, match="a part without local releases"):
        solve(response(0.5), ClippingBound(), target, auto)


def test_no_upper_end_is_below_another_routes_lower_end():
    events = [response(1.0), repeated(10, response(0.5, dimension=2)), *(Composed(events=parts) for parts, _ in MIXED.values())]
    for event, delta in itertools.product(events, (1e-2, 1e-7)):
        bounds = [route.profile(event).epsilon(delta) for route in ACCOUNTANTS if route.unsupported(event) is None]
        assert len(bounds) >= 3
        assert max(bound.lower for bound in bounds) <= min(bound.upper for bound in bounds)


def test_events_of_local_and_central_releases_of_other_neighbours_do_not_mix():
    with pytest.raises(ValueError, match="same adjacency"):
        Composed(events=(response(1.0), laplace()))


def test_the_pair_of_an_even_dimension_is_shown_less_often():
    pair = pair_of(Leaf(0.5, response(1.0, dimension=14).mechanism))
    assert (pair.family, pair.distance) == (RESPONSE, 1.0)
    exact = (1 - mpmath.mpf(3432) / 2**14) / 2
    assert exact <= pair.shown <= exact * (1 + mpmath.mpf(1e-14))


def test_answers_do_not_depend_on_what_was_asked_before():
    event = repeated(10_000, response(0.1, dimension=2))
    asked = accountant_named("lattice").profile(event)
    asked.delta(0.0)
    for t in (50.0, 300.0):
        fresh = accountant_named("lattice").profile(event).delta(t)
        assert np.isclose(asked.delta(t).log_upper, fresh.log_upper, rtol=1e-6)
        assert asked.delta(t).log_lower > -math.inf


@pytest.mark.parametrize("other", thinned([0.5, 3.1, 4.490026794042865], every=3))
def test_a_search_for_a_step_that_fits_ends(other):
    """The best alignment of two losses without a common divisor once led back to a step that was too fine, for ever."""
    parts = repeated(11, response(2.9946832538608463)), local_laplace(other, dimension=1)
    bound = profile(Composed(events=parts)).delta(0.9201146651409104)
    exact = beside_responses(laplace_delta(other), 2.9946832538608463, 11)(mpmath.mpf(0.9201146651409104))
    assert bound.log_lower <= mpmath.log(exact) <= bound.log_upper


def _three_losses_and_a_laplace():
    sampled = PoissonSampled(probability=0.3, event=response(0.009, dimension=4))
    return Composed(events=(repeated(2, sampled), local_laplace(0.0021, dimension=1)))


def _delta_of_three_losses_and_a_laplace(t):
    s, e, p = mpmath.mpf(0.3) * 0.625, mpmath.mpf(0.009), 1 / (1 + mpmath.exp(-mpmath.mpf(0.009)))
    law = {-1: s * (1 - p), 0: 1 - s, 1: s * p}
    return mpmath.fsum(law[i] * law[j] * laplace_delta(0.0021)(t - (i + j) * e) for i in law for j in law)


@pytest.mark.parametrize("log10_delta", [-3, -10])
def test_a_coarse_lattice_next_to_the_largest_loss_is_no_proof_of_a_smaller_epsilon(log10_delta):
    """Questions asked before leave a first lattice that is coarse for the tilt there: its kernel is 0 in floats, and delta isn't."""
    found = accountant_named("fft").profile(_three_losses_and_a_laplace())
    found.delta(0.6 * 0.0201)
    found.delta(0.0201 * (1.0 - 1e-6))
    bound, exact = found.epsilon(10.0**log10_delta), _delta_of_three_losses_and_a_laplace
    assert exact(mpmath.mpf(bound.upper)) <= 10.0**log10_delta
    assert bound.lower == 0.0 or exact(mpmath.mpf(bound.lower)) > 10.0**log10_delta


def test_where_a_steep_tilt_underflows_the_grid_refuses_and_auto_still_answers():
    event = _three_losses_and_a_laplace()
    with pytest.raises(NumericalFloor):
        accountant_named("fft").profile(event).epsilon(1e-200)
    assert _delta_of_three_losses_and_a_laplace(mpmath.mpf(accountant_named("auto").profile(event).epsilon(1e-200).upper)) <= 1e-200
