"""The local Gaussian release: what it accepts, its loss, and what rows of one user cost."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from pydantic import ValidationError

from tests.accountants.two_point_truth import gaussian_delta
from tests.mechanisms.local import local_gaussian, local_laplace
from zetadp.accountants import (
    Composed,
    FixedSizeSampled,
    Grouped,
    PoissonSampled,
    Release,
    Repeated,
    accountant_named,
    calibrate_scale,
    leaves,
    profile,
)
from zetadp.accountants.calibration.scaling import scaled
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.mechanisms import Gaussian, InvalidParameter, LocalGaussian, NumpySource, Sensitivity, UnsupportedEvent


def of_users(size, event):
    return Grouped(size=size, unit="user", event=event)


def test_mu_is_the_boxes_diagonal_over_the_deviation():
    assert local_gaussian(16, std=8.0).privacy_loss().gdp_mu == 0.5
    assert local_gaussian(4, lower=-3.0, upper=5.0, std=4.0).privacy_loss().gdp_mu == 4.0
    assert local_gaussian(4, std=4.0).privacy_loss().pure_epsilon is None


def test_a_larger_stated_sensitivity_is_what_is_charged():
    assert local_gaussian(16, std=8.0, l2=8.0).privacy_loss().gdp_mu == 1.0


def test_variance_of_a_coordinate_is_the_square_of_the_deviation():
    assert local_gaussian(14, std=3.0).worst_variance == 9.0
    assert local_gaussian(16, std=3.0).noise_multiplier == 0.75


@pytest.mark.parametrize(
    ("lower", "upper", "dimension"), [(0.0, 0.1, 3), (0.1, 0.7, 7), (0.0, 1.0, 14), (-1e50, -1e50 * (1 - 1e-10), 10**6), (1 / 3, 2 / 3, 49)]
)
def test_no_sensitivity_below_the_exact_diagonal_is_accepted(lower, upper, dimension):
    least = LocalGaussian.least_l2(lower, upper, dimension)
    square = dimension * (Fraction(upper) - Fraction(lower)) ** 2
    assert Fraction(math.nextafter(least, 0.0)) ** 2 < square <= Fraction(least) ** 2
    assert local_gaussian(dimension, lower=lower, upper=upper).sensitivity.l2 == least
    with pytest.raises(ValidationError, match=r"sensitivity.l2 must be at least sqrt\(dimension\) \* \(upper - lower\), here"):
        local_gaussian(dimension, lower=lower, upper=upper, l2=math.nextafter(least, 0.0))


@pytest.mark.parametrize("seed", range(20))
def test_the_least_diagonal_is_the_float_at_or_just_above_the_exact_one(seed):
    random = np.random.default_rng(seed)
    lower, width = random.normal(), 10.0 ** random.uniform(-12, 12)
    upper, dimension = lower + width, int(random.integers(1, 10**6))
    least, square = LocalGaussian.least_l2(lower, upper, dimension), dimension * (Fraction(upper) - Fraction(lower)) ** 2
    assert Fraction(math.nextafter(least, 0.0)) ** 2 < square <= Fraction(least) ** 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"upper": 0.0}, "upper must be above lower by"),
        ({"dimension": 0}, "greater than or equal to 1"),
        ({"std": 0.0}, "greater than or equal to"),
        ({"std": math.inf}, "finite number"),
        ({"sensitivity": {"l2": None, "l1": 9.0}}, "sensitivity.l2 must be given for a local release"),
        ({"sensitivity": {"l2": 1.99}}, r"sensitivity.l2 must be at least sqrt\(dimension\) \* \(upper - lower\), here 2.0, got 1.99"),
        ({"sensitivity": {"l2": 2.0, "l1": 3.0}}, "sensitivity.l1 must be at least dimension"),
        ({"sensitivity": {"adjacency": "add_remove"}}, "a local release reveals the number of records"),
        ({"sensitivity": {"l2_contribution": 1.0}}, "sensitivity.l2_contribution must be absent"),
        ({"sensitivity": {"l2_real": 1.0}}, "sensitivity.l2_real must be absent"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, text):
    stated = {"l2": 2.0, "adjacency": "replace_one", "unit": "record"} | changes.get("sensitivity", {})
    fields = {"lower": 0.0, "upper": 1.0, "dimension": 4, "std": 1.0} | changes | {"sensitivity": stated}
    with pytest.raises(ValidationError, match=text):
        LocalGaussian.model_validate(fields)


def test_values_outside_the_box_are_refused_not_clipped():
    with pytest.raises(InvalidParameter, match=r"value must be within \[0.0, 1.0\] in every coordinate"):
        local_gaussian(3).release(np.array([[0.5, 0.5, 0.5], [0.5, 1.0 + 2**-52, 0.5]]), NumpySource.from_seed(1))
    with pytest.raises(InvalidParameter, match="value must be records of 3 coordinates along its last axis"):
        local_gaussian(3).release(np.full((2, 4), 0.5), NumpySource.from_seed(1))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (5, 3), (2, 4, 3)])
def test_any_number_of_records_is_released_one_by_one(shape):
    released = local_gaussian(3, std=2.0).release(np.full(shape, 0.5), NumpySource.from_seed(1))
    drawn = NumpySource.from_seed(1).standard_normal(shape)
    np.testing.assert_allclose(released, 0.5 + 2.0 * drawn, rtol=1e-8, atol=1e-8)  # both on the noise's grid


def test_scaling_multiplies_the_deviation():
    assert local_gaussian(3, std=2.0).scaled(3.0) == local_gaussian(3, std=6.0)


@pytest.mark.parametrize("size", [1, 4, 31, 50])
def test_rows_of_a_user_cost_the_root_of_their_number(size):
    release = Release(mechanism=local_gaussian(14, std=20.0))
    event = of_users(size, release) if size > 1 else release
    found = accountant_named("gdp").profile(event)
    assert found.gdp_mu == pytest.approx(math.sqrt(14.0 * size) / 20.0, rel=1e-14)
    assert list(leaves(event).values()) == [size]
    assert profile(event).epsilon(1e-5) == profile(Repeated(count=size, event=release)).epsilon(1e-5)


def test_one_vector_of_all_records_in_a_group_costs_their_number():
    """``gaussian`` can't know that a user's rows are coordinates of their own."""
    matrix = Gaussian(std=20.0, sensitivity=Sensitivity(l2=math.sqrt(14.0), adjacency="replace_one", unit="record"))
    assert profile(of_users(31, Release(mechanism=matrix))).gdp_mu == pytest.approx(31.0 * math.sqrt(14.0) / 20.0, rel=1e-14)
    assert profile(Release(mechanism=matrix)).gdp_mu == pytest.approx(local_gaussian(14, std=20.0).privacy_loss().mu, rel=1e-14)


def test_fresh_releases_and_rows_multiply():
    event = of_users(5, Repeated(count=3, event=Release(mechanism=local_gaussian(4, std=10.0))))
    assert profile(event).gdp_mu == pytest.approx(math.sqrt(15.0) * 0.2, rel=1e-14)


@pytest.mark.parametrize("size", [1, 10, 50])
def test_calibrated_noise_meets_its_target_exactly(size):
    release = Release(mechanism=local_gaussian(14))
    event = of_users(size, release) if size > 1 else release
    factor = calibrate_scale(event, epsilon=1.0, delta=1e-5)
    # std over l2 of one Gaussian release at (1, 1e-5), times the root of 14 coordinates in each row.
    assert factor == pytest.approx(3.730631635 * math.sqrt(14.0 * size), rel=1e-9)
    assert profile(scaled(event, factor)).epsilon(1e-5).upper <= 1.0


@pytest.mark.parametrize("t", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_samples_show_a_record_as_often_as_they_hold_it(count, t):
    """Where j of the samples hold it the loss is that of j releases: a binomial sum of Gaussian profiles."""
    q, mu = 0.3, 0.5
    sampled = PoissonSampled(probability=q, event=Release(mechanism=local_gaussian(4, std=4.0)))
    bound = profile(Repeated(count=count, event=sampled)).delta(t)
    shown = (
        gaussian_delta(mu * math.sqrt(j))(mpmath.mpf(t)) * math.comb(count, j) * q**j * (1 - q) ** (count - j) for j in range(1, count + 1)
    )
    exact = mpmath.log(mpmath.fsum(shown))
    assert bound.log_lower - 1e-12 <= exact <= bound.log_upper + 1e-12
    assert bound.log_upper - bound.log_lower <= 1e-4 * max(1.0, -bound.log_upper)


def test_a_sample_of_a_fixed_size_is_accounted_as_a_poisson_one():
    release = Release(mechanism=local_gaussian(4, std=4.0))
    fixed = FixedSizeSampled(sample_size=3, population_size=10, event=release)
    poisson = PoissonSampled(probability=0.3, event=release)
    assert profile(fixed).epsilon(1e-5).upper == pytest.approx(profile(poisson).epsilon(1e-5).upper, rel=1e-12)


def test_sampled_rows_of_one_user_come_one_by_one_unless_tied_together():
    release = Release(mechanism=local_gaussian(4, std=4.0))
    sampled = PoissonSampled(probability=0.3, event=release)
    assert leaves(of_users(3, sampled)) == leaves(Repeated(count=3, event=sampled))
    with pytest.raises(UnsupportedEvent, match="groups of local releases with samples of a fixed or a largest size"):
        profile(of_users(3, FixedSizeSampled(sample_size=3, population_size=10, event=release)))


@pytest.mark.parametrize("route", ["rdp", "fft"])
def test_other_routes_agree_on_a_sampled_release(route):
    sampled = Repeated(count=20, event=PoissonSampled(probability=0.3, event=Release(mechanism=local_gaussian(4, std=4.0))))
    best, other = profile(sampled).epsilon(1e-5), accountant_named(route).profile(sampled).epsilon(1e-5)
    assert other.lower <= best.upper
    assert best.lower <= other.upper <= 1.5 * best.upper


def test_beside_laplace_noise_on_other_releases_of_the_record():
    event = Composed(events=(Release(mechanism=local_gaussian(4, std=4.0)), Release(mechanism=local_laplace(4, scale=8.0))))
    bound = profile(event).epsilon(1e-5)
    alone = GdpProfile(0.5, ()).epsilon(1e-5).upper
    assert alone < bound.lower <= bound.upper < alone + 0.5
    assert bound.upper - bound.lower <= 1e-5
