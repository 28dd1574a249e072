from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tests.golden.oracles import oracle_rows
from zetadp.mechanisms.analysis.clipped_box import l1_diameter
from zetadp.mechanisms.analysis.cross_entropy import (
    Expansion,
    affine_l1,
    coefficient_l1,
    coefficient_l1_with_constant,
    derivative_bound,
    derivative_l1,
    loss,
    sigmoid,
    sigmoid_slope,
    softplus,
    taylor_l1_with_constant,
)

POINTS = [(0.0, 0.0), (0.0, 2.5), (1.3, -0.7), (-4.0, 17.5), (30.0, 31.0), (-1e3, -999.0)]


@pytest.mark.parametrize("a", [-1e6, -1e3, -40.0, -1.0, -1e-9, 0.0, 0.3, 36.0, 745.0, 1e6])
def test_the_special_functions_keep_their_digits(a):
    with mpmath.workdps(50):
        exact = mpmath.mpf(a)
        for value, truth in (
            (sigmoid(a), 1 / (1 + mpmath.exp(-exact))),
            (softplus(a), mpmath.log1p(mpmath.exp(exact))),
            (sigmoid_slope(a), mpmath.exp(-abs(exact)) / (1 + mpmath.exp(-abs(exact))) ** 2),
        ):
            assert value == pytest.approx(float(truth), rel=1e-14, abs=1e-320)


@pytest.mark.parametrize(("a", "c"), POINTS)
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_the_expansion_is_taylors_of_the_loss(a, c, x):
    with mpmath.workdps(60):
        derivatives = mpmath.taylor(lambda z: mpmath.log(1 + mpmath.exp(z)) - x * z, a, 2)
        polynomial = [mpmath.mpf(0)] * 3
        # In powers of z: (z + c - a)^r expanded.
        for r, coefficient in enumerate(derivatives):
            for k in range(r + 1):
                polynomial[k] += coefficient * mpmath.binomial(r, k) * mpmath.mpf(c - a) ** (r - k)
        for found, truth in zip(Expansion(a, c).coefficients(x), polynomial, strict=True):
            assert found == pytest.approx(float(truth), rel=1e-12, abs=1e-12)


def test_the_expansion_is_third_order_close_to_the_loss():
    for x in (0.0, 0.4, 1.0):
        for step in (1e-2, 1e-3):
            error = Expansion(0.7, 0.2).value(x, 0.5 + step) - loss(x, 0.7 + step)
            # max |softplus'''| = 1 / (6 sqrt 3).
            assert abs(error) <= step**3 / (36.0 * math.sqrt(3.0)) + 1e-15


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_sensitivity"))
def test_sensitivities_agree_with_their_values(inputs, oracle):
    n, a, c = int(inputs["n"]), float(inputs["a"]), float(inputs["c"])
    values = {name: float(value) for name, value in oracle["value"].items()}
    assert coefficient_l1(n) == values["correct_gradient_relevant"]
    assert coefficient_l1_with_constant(n, c) == pytest.approx(values["correct_with_constant_powers_of_z"], rel=1e-12)
    assert derivative_bound(a) == pytest.approx(values["corrected_eq58_per_feature"], rel=1e-12)
    assert derivative_l1(a) == pytest.approx(values["tight_eq17_per_feature_separate_k"], rel=1e-12)
    assert l1_diameter(n, sigmoid(-a), sigmoid(a), 1e9) == pytest.approx(values["correct_sgd_unclipped"], rel=1e-12)


@pytest.mark.parametrize(("a", "c"), POINTS)
def test_only_the_coefficient_of_z_is_private(a, c):
    zero, one = Expansion(a, c).coefficients(0.0), Expansion(a, c).coefficients(1.0)
    assert affine_l1(5, zero[1:], one[1:]) == pytest.approx(coefficient_l1(5), rel=1e-9)
    assert affine_l1(5, zero, one) == pytest.approx(coefficient_l1_with_constant(5, c), rel=1e-9)


@pytest.mark.parametrize(("a", "c"), POINTS)
def test_the_constant_in_taylor_powers_moves_by_the_expansion_point(a, c):
    # In powers of y = z + c - a the polynomial's constant is its value at y = 0, z = a - c.
    constants = [Expansion(a, c).value(x, a - c) for x in (0.0, 1.0)]
    assert taylor_l1_with_constant(3, a) == pytest.approx(3.0 * (1.0 + abs(constants[1] - constants[0])), rel=1e-9)


def test_no_pair_of_records_moves_affine_coefficients_further():
    generator = np.random.default_rng(4)
    zero, one = generator.normal(size=3), generator.normal(size=3)
    records = generator.uniform(size=(2000, 2, 6))
    # Shape (pairs, coefficients, features).
    moved = np.abs((records[:, 0] - records[:, 1])[:, None, :] * (one - zero)[None, :, None]).sum(axis=(1, 2))
    assert moved.max() < affine_l1(6, tuple(zero), tuple(one))


@pytest.mark.parametrize("a", [-1e3, -3.0, 0.0, 0.9057, 1e3])
def test_the_bound_of_18_is_the_largest_over_x(a):
    def derivatives(x):
        s, v = sigmoid(a), sigmoid_slope(a)
        return x * (softplus(-a) + (1 - s) + v) + (1 - x) * (softplus(a) + s + v)

    assert derivative_bound(a) == pytest.approx(2.0 * max(derivatives(x) for x in np.linspace(0.0, 1.0, 101)), rel=1e-12)
    assert derivative_l1(a) <= derivative_bound(a) * (1.0 + 1e-15)


def test_the_bound_of_18_is_smallest_at_zero():
    values = [derivative_bound(a) for a in np.linspace(0.0, 50.0, 2001)]
    assert all(earlier < later for earlier, later in pairwise(values))
    assert derivative_bound(0.0) == pytest.approx(2.0 * math.log(2.0) + 1.5, rel=1e-15)
    assert abs(minimize_scalar(derivative_bound, bounds=(-3.0, 4.0), method="bounded").x) < 1e-4


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_dpsgd_clipped"))
def test_clipped_diameter_at_zero_agrees_with_its_values(inputs, oracle):
    found = l1_diameter(int(inputs["n"]), 0.5, 0.5, float(inputs["C"]))
    assert found == pytest.approx(float(oracle["value"]["tight"]), rel=1e-12)


def _clipped(records, s, bound):
    gradients = s - records
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return gradients / np.maximum(1.0, norms / bound)


def _by_water_filling(limits, bound):
    """The largest sum of 0 <= u <= limits with norm <= bound, by bisection on the level."""
    if np.sum(limits**2) <= bound**2:
        return float(np.sum(limits))
    low, high = 0.0, float(limits.max())
    for _ in range(200):
        level = 0.5 * (low + high)
        low, high = (level, high) if np.sum(np.minimum(limits, level) ** 2) <= bound**2 else (low, level)
    return float(np.minimum(limits, low).sum())


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("s", [0.5, 0.1, 0.8, 1.0])
@pytest.mark.parametrize("bound", [0.05, 0.4, 0.75, 1.1, 5.0])
def test_clipped_diameter_is_the_largest_over_all_sign_patterns(n, s, bound):
    best = max(
        _by_water_filling(np.array([s] * k + [1 - s] * (n - k)), bound) + _by_water_filling(np.array([1 - s] * k + [s] * (n - k)), bound)
        for k in range(n + 1)
    )
    assert l1_diameter(n, 1.0 - s, s, bound) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("n", "s", "bound"), [(2, 0.5, 0.6), (3, 0.2, 0.5), (4, 0.12, 1.0), (5, 0.7, 0.9)])
def test_clipped_gradients_of_records_reach_the_diameter_and_never_pass_it(n, s, bound):
    generator = np.random.default_rng(n)
    diameter = l1_diameter(n, 1.0 - s, s, bound)
    first, second = (_clipped(generator.uniform(size=(200_000, n)), s, bound) for _ in range(2))
    assert np.abs(first - second).sum(axis=1).max() <= diameter * (1.0 + 1e-12)
    # The proof's worst pair: opposite signs in every feature, and for each record one level for all features that aren't at their limit.
    half, levels = n // 2, np.linspace(1e-3, 1.0, 2001)[:, None]
    top, bottom = np.minimum(s, levels), np.minimum(1.0 - s, levels)
    worst = []
    for signs in (np.arange(n) < half, np.arange(n) >= half):
        candidates = _clipped(s - np.where(signs, top, -bottom), s, bound)
        worst.append(candidates[np.abs(candidates).sum(axis=1).argmax()])
    assert np.abs(worst[0] - worst[1]).sum() == pytest.approx(diameter, rel=1e-3)


@pytest.mark.parametrize("n", [1, 13, 14, 10**12])
@pytest.mark.parametrize("a", [-1e6, -2.0, 0.0, 1e3])
@pytest.mark.parametrize("bound", [1e-20, 0.3, 4.0, 1e20])
def test_clipped_diameter_is_within_its_two_simple_bounds(n, a, bound):
    found = l1_diameter(n, sigmoid(-a), sigmoid(a), bound)
    assert 0.0 < found <= min(n, 2.0 * math.sqrt(n) * bound) * (1.0 + 1e-12)


def test_clipped_diameter_grows_with_the_bound():
    found = [l1_diameter(9, 0.8, 0.2, bound) for bound in np.geomspace(0.01, 10.0, 500)]
    assert all(earlier <= later for earlier, later in pairwise(found))
    assert found[-1] == pytest.approx(9.0, rel=1e-15)
