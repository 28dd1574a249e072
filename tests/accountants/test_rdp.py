from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from tests.accountants.events import WORK_SET, gaussian, laplace, replace_one_gaussian, sensitivity, training
from tests.golden.oracles import oracle_rows
from tests.selection import chosen, thinned
from zetadp.accountants import Grouped, Leaf, PoissonSampled, Repeated, profile
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.pairs import Pair
from zetadp.accountants.routes.rdp.rdp import epsilon_at_order, leaf_renyi, pair_renyi
from zetadp.mechanisms import Gaussian, Laplace, UnsupportedEvent


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("rdp_complex_gaussian"), every=2))
def test_gaussian_divergence_agrees_with_forty_digits(inputs, oracle):
    leaf = Leaf(probability=1.0, mechanism=Gaussian(std=float(inputs["sigma"]) / float(inputs["Delta"]), sensitivity=sensitivity()))
    assert leaf_renyi(leaf, float(inputs["alpha"])) == pytest.approx(float(oracle["value"]["per_component_sigma"]), rel=1e-11)


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("subsampled_gaussian_rdp_integer"), every=2))
def test_sampled_gaussian_divergence_is_safe_and_agrees_with_forty_digits(inputs, oracle):
    leaf = Leaf(probability=float(inputs["q"]), mechanism=Gaussian(std=float(inputs["s"]), sensitivity=sensitivity()))
    computed, exact = leaf_renyi(leaf, float(inputs["alpha"])), float(oracle["value"])
    assert exact <= computed <= exact * (1.0 + 1e-12)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_to_dp"))
def test_conversion_at_one_order_is_the_improved_one(inputs, oracle):
    order, renyi, delta = (float(inputs[name]) for name in ("alpha", "rdp", "delta"))
    computed = epsilon_at_order(order, renyi, delta)
    assert computed == pytest.approx(float(oracle["value"]["improved"]), rel=1e-13)
    mu = math.sqrt(2.0 * renyi / order)
    assert profile(gaussian(1.0 / mu), "rdp").epsilon(delta).upper <= computed


@pytest.mark.parametrize(("probability", "std", "count", "delta", "exact"), thinned(WORK_SET, every=3))
def test_epsilon_is_an_upper_bound_and_no_looser_than_the_best_known(probability, std, count, delta, exact):
    # dp-accounting 0.6.0's Renyi accountant gives these on the same rows.
    peer = {4000: 7.636, 1588: 1.694, 556: 1.569, 1_000_000: 0.413, 10_000: 7.414 if delta == 1e-6 else 0.632, 2000: 17.613}[count]
    assert exact <= profile(training(probability, std, count), "rdp").epsilon(delta).upper <= peer * 1.001


@pytest.mark.parametrize(("probability", "std", "count", "exact"), [(0.05, 0.4, 5000, 366.304), (0.5, 0.5, 1000, 877.657)])
def test_low_orders_are_used_where_peers_drop_them(probability, std, count, exact):
    assert exact <= profile(training(probability, std, count), "rdp").epsilon(1e-5).upper <= 1.06 * exact


@pytest.mark.parametrize("order", thinned([1.3, 2.0, 7.0], every=2))
@pytest.mark.parametrize("removed", [True, False])
def test_sampled_laplace_divergence_bounds_both_directions(order, removed):
    q, scale = 0.2, 0.5
    x = np.linspace(-30.0, 30.0, 3_000_001)
    null, moved = np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x - 1.0 / scale)) / 2
    mixed = (1 - q) * null + q * moved
    first, second = (mixed, null) if removed else (null, mixed)
    integral = math.log(float(np.trapezoid(first**order * second ** (1 - order), x))) / (order - 1)
    leaf = Leaf(probability=q, mechanism=Laplace(scale=scale, sensitivity=sensitivity()))
    assert leaf_renyi(leaf, order) >= integral * (1 - 1e-9)


def test_tiny_sampling_probability_keeps_its_digits():
    leaf = Leaf(probability=1e-12, mechanism=Gaussian(std=1.0, sensitivity=sensitivity()))
    assert leaf_renyi(leaf, 2.0) == pytest.approx(1e-24 * math.expm1(1.0), rel=1e-8)


def test_delta_and_epsilon_invert_each_other():
    found = profile(training(0.01, 1.0, 1000), "rdp")
    epsilon = found.epsilon(1e-30).upper
    assert found.delta(epsilon).log_upper == pytest.approx(math.log(1e-30), rel=1e-6)


def test_sampling_with_replaced_neighbours_needs_the_contribution():
    with pytest.raises(UnsupportedEvent, match=r"under replace_one needs sensitivity\.l2_contribution"):
        profile(training(0.1, 1.0, 2, adjacency="replace_one"), "rdp")


def test_noise_too_small_for_the_quadrature_falls_back_to_no_amplification():
    tiny = profile(Repeated(count=2, event=PoissonSampled(probability=0.5, event=gaussian(1e-6))), "rdp")
    assert tiny.rdp(2.0) == pytest.approx(profile(Repeated(count=2, event=gaussian(1e-6)), "rdp").rdp(2.0), rel=1e-9)


def test_laplace_composition_stays_above_the_exact_epsilon():
    assert 1.3629246 <= profile(Repeated(count=1000, event=laplace(100.0)), "rdp").epsilon(1e-6).upper <= 1.5


NULL = Mixture((1.0,), (0.0,))
PAIRS = {
    "poisson": (Mixture((0.9, 0.1), (0.0, 1.5)), NULL, False),
    "group": (Mixture((0.512, 0.384, 0.096, 0.008), (0.0, 1.0, 2.0, 3.0)), NULL, False),
    "group in another frame": (Mixture((0.3, 0.7), (0.0, 1.0)), Mixture((1.0,), (-2.0,)), False),
    "replaced": (Mixture((0.8, 0.2), (0.0, 1.5)), Mixture((0.2, 0.8), (-1.5, 0.0)), False),
    "fixed size replaced": (Mixture((0.8, 0.2), (0.0, 1.5)), NULL, True),
    "nearly sure sample": (Mixture((1e-9, 1.0 - 1e-9), (0.0, 1.0)), NULL, False),
}


def _log_density(family, mixture, x):
    one = (lambda t: -0.5 * t**2 - 0.5 * math.log(2 * math.pi)) if family is GAUSSIAN else (lambda t: -np.abs(t) - math.log(2))
    parts = [math.log(weight) + one(x - shift) for weight, shift in zip(mixture.weights, mixture.shifts, strict=True)]
    return special.logsumexp(parts, axis=0)


@pytest.mark.parametrize("order", chosen([1.2, 2.0, 5.0, 12.5], [2.0]))
@pytest.mark.parametrize("family", [GAUSSIAN, LAPLACE], ids=repr)
@pytest.mark.parametrize("name", thinned(PAIRS, every=3))
def test_divergences_of_every_kind_of_pair_agree_with_plain_quadrature(name, family, order):
    upper, lower, worst_of_both = PAIRS[name]
    # The kinks of the Laplace densities lie on the grid, so that the trapezoid rule stays good.
    x = np.arange(-500_000, 500_001) * 1e-4
    log_p, log_q = _log_density(family, upper, x), _log_density(family, lower, x)
    if worst_of_both:
        loss = np.maximum(log_p - log_q, 0.0)
        signed = [np.exp(log_q + power * loss) for power in (order, 1 - order, 1, 0)]
        moment = 1.0 + np.trapezoid(signed[0] + signed[1] - signed[2] - signed[3], x)
    else:
        moment = max(np.trapezoid(np.exp(power * log_p + (1 - power) * log_q), x) for power in (order, 1 - order))
    computed = pair_renyi(Pair(family, upper, lower, worst_of_both), order)
    assert computed == pytest.approx(math.log(moment) / (order - 1), rel=1e-6)


@pytest.mark.parametrize("family", [GAUSSIAN, LAPLACE], ids=repr)
@pytest.mark.parametrize("order", [1.5, 3.0])
def test_the_worse_directions_divergence_is_that_of_its_profile(family, order):
    # 1 + a (a - 1) int_1^inf (g^(a - 2) + g^(-a - 1)) H_g(P || Q) dg, proofs/pairs.md
    pair = Pair(family, Mixture((0.7, 0.3), (0.0, 1.0)), NULL, worst_of_both=True)
    x = np.arange(-12_000, 12_001) * 2e-3
    p, q = np.exp(_log_density(family, pair.upper, x)), np.exp(_log_density(family, pair.lower, x))
    levels = np.exp(np.arange(0.0, 11.0, 4e-3)) if family is GAUSSIAN else np.exp(np.linspace(0.0, 1.0, 800))
    profile_of = np.array([np.maximum(p - level * q, 0.0).sum() * 2e-3 for level in levels])
    moment = 1 + order * (order - 1) * np.trapezoid((levels ** (order - 2) + levels ** (-order - 1)) * profile_of, levels)
    assert pair_renyi(pair, order) == pytest.approx(math.log(moment) / (order - 1), rel=1e-4)


@pytest.mark.parametrize("name", thinned(PAIRS, every=3))
@pytest.mark.parametrize("order", thinned([1.001, 3.0, 40.0], every=2))
def test_no_pair_diverges_more_than_its_outermost_components(name, order):
    upper, lower, worst_of_both = PAIRS[name]
    distance = upper.shifts[-1] - lower.shifts[0]
    assert pair_renyi(Pair(GAUSSIAN, upper, lower, worst_of_both), order) <= 0.5 * order * distance**2 * (1 + 1e-11)


def test_a_tiny_fixed_size_sample_keeps_its_digits():
    # To first order in q^2 the worse direction's divergence is half of a q^2 E[(e^L - 1)^2 ; L > 0] twice, once for each side of 1.
    q = 1e-12
    pair = Pair(GAUSSIAN, Mixture((1.0 - q, q), (0.0, 1.0)), NULL, worst_of_both=True)
    x = np.arange(5_000, 140_001) * 1e-4
    excess = np.trapezoid(np.expm1(x - 0.5) ** 2 * np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi), x)
    assert pair_renyi(pair, 2.0) == pytest.approx(2.0 * q**2 * excess, rel=1e-6)


def test_a_group_of_a_whole_release_multiplies_its_distance():
    grouped = Grouped(size=3, unit="user", event=Repeated(count=2, event=gaussian(2.0)))
    assert profile(grouped, "rdp").rdp(2.0) == pytest.approx(2 * 1.5**2, rel=1e-9)
    assert profile(grouped, "gdp").gdp_mu == pytest.approx(1.5 * math.sqrt(2.0), rel=1e-14)


def test_a_poisson_sampled_group_costs_less_than_all_of_it_and_more_than_one_unit():
    one, three = training(0.1, 1.0, 10), Grouped(size=3, unit="user", event=training(0.1, 1.0, 10))
    whole = Grouped(size=3, unit="user", event=Repeated(count=10, event=gaussian()))
    values = [profile(event, "rdp").epsilon(1e-5).upper for event in (one, three, whole)]
    assert values == sorted(values)
    # A user sampled as one, and with all of its records, is the worse of the two ways to sample.
    assert values[1] < profile(training(0.1, 1.0 / 3.0, 10), "rdp").epsilon(1e-5).upper


def test_replaced_records_cost_less_than_twice_the_noise_to_a_removed_one():
    replaced = Repeated(count=100, event=PoissonSampled(probability=0.05, event=replace_one_gaussian(1.0)))
    found = profile(replaced, "rdp").epsilon(1e-5).upper
    assert (
        profile(training(0.05, 1.0, 100), "rdp").epsilon(1e-5).upper < found < profile(training(0.05, 0.5, 100), "rdp").epsilon(1e-5).upper
    )


@pytest.mark.parametrize("order", thinned([1.0 + 1e-6, 1.5, 8.0, 64.0, 500.0], every=3))
@pytest.mark.parametrize(("probability", "std"), thinned([(0.01, 1.0), (0.3, 0.4), (1e-4, 5.0)], every=2))
def test_orders_that_share_nodes_agree_with_nodes_of_their_own(order, probability, std):
    from zetadp.accountants.routes.rdp.moments import PairMoments

    pair = pair_of(Leaf(probability, Gaussian(std=std, sensitivity=sensitivity())))
    own = PairMoments.of(pair, order)
    for power in (order, 1.0 - order):
        # Values below 1e-10 or so carry the rounding of order - 1.
        assert own.log_moment(power) <= pair_renyi(pair, order) * (order - 1.0) * (1.0 + 1e-8)


def test_an_order_whose_cost_is_not_a_number_is_no_best_one():
    found = profile(training(0.01, 1.0, 10), accountant="rdp")
    with pytest.raises(UnsupportedEvent, match="isn't a number"):
        found.best(lambda _: math.nan)
