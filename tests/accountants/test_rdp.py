from __future__ import annotations

import math

import numpy as np
import pytest

from accountants import Leaf, PoissonSampled, Repeated, profile
from accountants.rdp import leaf_renyi
from mechanisms import Gaussian, Laplace, UnsupportedEvent
from tests.accountants.events import WORK_SET, gaussian, laplace, sensitivity, training
from tests.golden.oracles import oracle_rows


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_complex_gaussian"))
def test_gaussian_divergence_agrees_with_forty_digits(inputs, oracle):
    leaf = Leaf(probability=1.0, mechanism=Gaussian(std=float(inputs["sigma"]) / float(inputs["Delta"]), sensitivity=sensitivity()))
    assert leaf_renyi(leaf, float(inputs["alpha"])) == pytest.approx(float(oracle["value"]["per_component_sigma"]), rel=1e-11)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("subsampled_gaussian_rdp_integer"))
def test_sampled_gaussian_divergence_is_safe_and_agrees_with_forty_digits(inputs, oracle):
    leaf = Leaf(probability=float(inputs["q"]), mechanism=Gaussian(std=float(inputs["s"]), sensitivity=sensitivity()))
    computed, exact = leaf_renyi(leaf, float(inputs["alpha"])), float(oracle["value"])
    assert exact <= computed <= exact * (1.0 + 2e-9)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("rdp_to_dp"))
def test_conversion_at_one_order_is_the_improved_one(inputs, oracle):
    order, renyi, delta = (float(inputs[name]) for name in ("alpha", "rdp", "delta"))
    computed = renyi + math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)
    assert computed == pytest.approx(float(oracle["value"]["improved"]), rel=1e-13)
    mu = math.sqrt(2.0 * renyi / order)
    assert profile(gaussian(1.0 / mu), "rdp").epsilon(delta).upper <= computed


@pytest.mark.parametrize(("probability", "std", "count", "delta", "exact"), WORK_SET)
def test_epsilon_is_an_upper_bound_and_no_looser_than_the_best_known(probability, std, count, delta, exact):
    # dp-accounting 0.6.0's Renyi accountant gives these on the same rows.
    peer = {4000: 7.636, 1588: 1.694, 556: 1.569, 1_000_000: 0.413, 10_000: 7.414 if delta == 1e-6 else 0.632, 2000: 17.613}[count]
    assert exact <= profile(training(probability, std, count), "rdp").epsilon(delta).upper <= peer * 1.001


@pytest.mark.parametrize(("probability", "std", "count", "exact"), [(0.05, 0.4, 5000, 366.304), (0.5, 0.5, 1000, 877.657)])
def test_low_orders_are_used_where_peers_drop_them(probability, std, count, exact):
    assert exact <= profile(training(probability, std, count), "rdp").epsilon(1e-5).upper <= 1.06 * exact


@pytest.mark.parametrize("order", [1.3, 2.0, 7.0])
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


def test_sampling_with_replaced_neighbours_is_refused_with_the_reason():
    with pytest.raises(UnsupportedEvent, match="replace_one"):
        profile(training(0.1, 1.0, 2, adjacency="replace_one"), "rdp")


def test_noise_too_small_for_the_quadrature_falls_back_to_no_amplification():
    tiny = profile(Repeated(count=2, event=PoissonSampled(probability=0.5, event=gaussian(1e-6))), "rdp")
    assert tiny.rdp(2.0) == pytest.approx(profile(Repeated(count=2, event=gaussian(1e-6)), "rdp").rdp(2.0), rel=1e-9)


def test_laplace_composition_stays_above_the_exact_epsilon():
    assert 1.3629246 <= profile(Repeated(count=1000, event=laplace(100.0)), "rdp").epsilon(1e-6).upper <= 1.5
