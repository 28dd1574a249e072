from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import pytest

from tests.app.spof_harness import ask, found, plain
from zetadp.app.calculators.compare.spof.noise import scale_log_ratio

# --- DP-SGD with Laplace noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "printed"), [(-1.0, 0.538), (-2.0, 0.238), (-3.0, 0.095)])
def test_the_unclipped_branch_is_too_small_left_of_zero(a, printed):
    only = found(ask("dp_sgd_laplace", expansion_point=a), "S27", "unclipped")
    assert only.printed / 14 == pytest.approx(printed, abs=5e-4)
    assert (only.proven, only.direction) == (14.0, "overclaims")


def test_the_first_branchs_noise_costs_four_times_epsilon_at_minus_two():
    answer = ask("dp_sgd_laplace", expansion_point=-2.0, clipping_bound=1e9, releases=1)
    assert found(answer, "S27", "pure epsilon").proven == pytest.approx(4.194528, abs=1e-6)


def test_a_branch_by_the_records_norm_leaves_no_epsilon():
    only = found(ask("dp_sgd_laplace", expansion_point=0.0, clipping_bound=1.0), "S29")
    assert (only.proven, only.direction) == (math.inf, "overclaims")
    ratios = [step.value for step in only.counterexample.steps[2:]]
    assert ratios == sorted(ratios, reverse=True)
    # n = 14, C = 1, epsilon = 1: scales 14 and 28; without the clipped corner's shift -356.4 at 1e4.
    assert scale_log_ratio(*(step.value for step in only.counterexample.steps[:2]), 1e4) == pytest.approx(-356.45, abs=0.01)


def test_a_branch_that_no_record_reaches_costs_nothing():
    only = found(ask("dp_sgd_laplace", expansion_point=0.0, clipping_bound=4.0), "S29")
    assert (only.proven, only.direction, only.counterexample) == (1.0, "equal", None)


def test_branches_of_equal_scale_cost_nothing():
    assert found(ask("dp_sgd_laplace", expansion_point=0.0, clipping_bound=0.5), "S29").proven <= 1.0


@pytest.mark.parametrize(("factor", "direction"), [(0.5, "loose"), (1.0, "equal"), (7.0, "overclaims")])
def test_the_forgotten_factor_of_the_second_branch(factor, direction):
    answer = ask("dp_sgd_laplace", expansion_point=0.0, clipping_bound=0.25, environment_factor=factor)
    assert found(answer, "S30", "one feature").direction == direction
    assert found(answer, "S30", "one feature").ratio == pytest.approx(1.0 / factor, rel=1e-14)


def test_releases_of_a_clipped_derivative_add_up():
    answer = ask("dp_sgd_laplace", releases=30)
    assert answer.total_epsilon == pytest.approx(30.0, rel=1e-14)
    assert found(answer, "S28", "pure epsilon").proven == pytest.approx(30.0 * answer.l1 / 28.0, rel=1e-14)


# --- the functional mechanism -------------------------------------------------------------------------------------------------------


def test_the_functional_mechanism_needs_two_thirds_of_its_printed_noise():
    answer = ask("functional_mechanism")
    assert answer.mechanism.scale == 14.0
    assert found(answer, "S5", "Laplace scale").ratio == 1.5
    assert found(answer, "S5", "right loss's sums").proven == pytest.approx(2.0 / 3.0, rel=1e-15)


def test_the_functional_mechanisms_sums_of_the_printed_pair_are_as_private_as_printed():
    assert found(ask("functional_mechanism"), "S5", "printed pair's sums").direction == "equal"
    assert found(ask("functional_mechanism", releases=5), "S16", "printed pair's sums").proven == pytest.approx(5.0, rel=1e-15)


@pytest.mark.parametrize("a", [-1e3, -1.0, 0.0, 3.0])
def test_twice_the_largest_coefficient_is_never_below_the_difference(a):
    assert found(ask("functional_mechanism", expansion_point=a), "S5", "twice the largest").direction in ("loose", "equal")


def test_spof_with_one_user_is_not_the_functional_mechanism():
    assert found(ask("functional_mechanism"), "S17").ratio == pytest.approx(math.sqrt(0.5), rel=1e-15)


def test_training_on_raw_records_is_not_private_whatever_the_sums_noise():
    assert found(ask("functional_mechanism"), "S14").proven == math.inf


# --- the safe side -----------------------------------------------------------------------------------------------------------------


def _exact_diameter(n, a, bound):
    """The l1 diameter of the box cut by the ball, to 40 digits, by bisection on the multiplier of each sign pattern's maximum."""
    s = 1 / (1 + mpmath.exp(-mpmath.mpf(a)))
    bound = mpmath.mpf(bound)

    def support(ups, downs):
        low, high = mpmath.mpf(0), max(s, 1 - s)
        if ups * s**2 + downs * (1 - s) ** 2 <= bound**2:
            return ups * s + downs * (1 - s)
        for _ in range(140):
            level = (low + high) / 2
            fits = ups * min(s, level) ** 2 + downs * min(1 - s, level) ** 2 <= bound**2
            low, high = (level, high) if fits else (low, level)
        return ups * min(s, low) + downs * min(1 - s, low)

    return max(support(k, n - k) + support(n - k, k) for k in range(n + 1))


def test_the_clipped_derivative_never_gets_noise_for_less_than_its_diameter():
    generator = random.Random(5)
    with mpmath.workdps(45):
        for _ in range(60):
            n, a, bound = generator.randint(1, 6), generator.uniform(-4, 4), 10 ** generator.uniform(-2, 0.6)
            answer = ask("dp_sgd_laplace", dimension=n, expansion_point=a, clipping_bound=bound, epsilon=0.7, releases=3)
            exact = _exact_diameter(n, a, bound)
            assert exact * (1 - mpmath.mpf(10) ** -38) <= mpmath.mpf(answer.l1) <= exact * (1 + mpmath.mpf(3e-14))
            assert Fraction(answer.epsilon) * Fraction(answer.mechanism.scale) >= Fraction(answer.l1)
            assert Fraction(answer.total_epsilon) >= 3 * Fraction(answer.epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1e-7])
@pytest.mark.parametrize("count", [3, 7, 11])
def test_epsilons_of_many_releases_are_never_rounded_down(epsilon, count):
    answer = ask("spof", epsilon=epsilon, rows_per_user=count, releases=1)
    assert Fraction(answer.user_epsilon) >= count * Fraction(answer.epsilon)
    once = found(answer, "S7", "as printed")
    scale = next(step.value for step in once.derivation if step.symbol == "b")
    assert Fraction(once.proven) * Fraction(scale) >= Fraction(21)
    assert Fraction(found(answer, "S16").proven) >= count * Fraction(once.proven)
    central = ask("functional_mechanism", epsilon=epsilon, releases=count)
    assert Fraction(central.total_epsilon) >= count * Fraction(central.epsilon)


def test_epsilons_beyond_floats_are_infinite_and_never_an_error():
    answer = ask("dp_sgd_laplace", expansion_point=-744.0, epsilon=1e20, releases=10**12)
    assert all(each.proven is None or each.proven > 0.0 for each in answer.published)


def test_the_printed_sensitivity_at_a_point_counts_58_twice():
    """(19) doubles a sum of terms that (58) has doubled already: 2 n 4.6931 at a = 0."""
    only = found(plain(), "S26")
    assert (only.printed, only.proven, only.direction) == (pytest.approx(28.0 * 4.693147, rel=1e-6), 14.0, "loose")


def test_no_counterexample_needs_two_different_records_that_share_their_only_feature():
    only = found(ask("spof", dimension=1), "S13", "pure epsilon")
    assert (only.proven, only.counterexample) == (math.inf, None)
    assert found(ask("spof", dimension=2), "S13", "pure epsilon").counterexample is not None
