"""The local Laplace release: what it accepts, its loss and its variance."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from tests.mechanisms.local import local_laplace, sensitivity
from zetadp.accountants import Release, Repeated, profile
from zetadp.mechanisms import InvalidParameter, Laplace, LaplaceLoss, LocalLaplace, NumpySource, Sensitivity


def test_epsilon_is_the_boxes_diameter_over_the_scale():
    assert local_laplace(dimension=14, scale=14.0).privacy_loss() == LaplaceLoss(1.0)
    assert local_laplace(dimension=2, lower=-3.0, upper=5.0, scale=4.0).privacy_loss() == LaplaceLoss(4.0)


def test_a_larger_stated_sensitivity_is_what_is_charged():
    assert local_laplace(dimension=14, scale=14.0, l1=28.0).privacy_loss() == LaplaceLoss(2.0)


def test_variance_of_a_coordinate_is_twice_the_square_of_the_scale():
    # Fourteen coordinates in [0, 1] at epsilon = 1.
    assert local_laplace(dimension=14, scale=14.0).worst_variance == 392.0


@pytest.mark.parametrize("seed", range(40))
def test_epsilon_is_never_rounded_below_the_exact_quotient(seed):
    random = np.random.default_rng(seed)
    lower, width, scale = random.normal(), 10.0 ** random.uniform(-8, 8), 10.0 ** random.uniform(-8, 8)
    dimension = int(random.integers(1, 100))
    upper = lower + width
    mechanism = local_laplace(dimension=dimension, lower=lower, upper=upper, scale=scale)
    diameter = dimension * (Fraction(upper) - Fraction(lower))
    assert Fraction(mechanism.privacy_loss().epsilon) * Fraction(scale) >= Fraction(mechanism.sensitivity.l1) >= diameter
    assert mechanism.privacy_loss().epsilon == pytest.approx(float(diameter) / scale, rel=1e-15)


@pytest.mark.parametrize(
    ("lower", "upper", "dimension"), [(0.0, 0.1, 3), (0.1, 0.7, 7), (-1e50, -1e50 * (1 - 1e-10), 10**6), (1 / 3, 2 / 3, 49)]
)
def test_no_sensitivity_below_the_exact_diameter_is_accepted(lower, upper, dimension):
    least = LocalLaplace.least_l1(lower, upper, dimension)
    exact = dimension * (Fraction(upper) - Fraction(lower))
    assert Fraction(math.nextafter(least, 0.0)) < exact <= Fraction(least)
    assert local_laplace(dimension=dimension, lower=lower, upper=upper, l1=least).sensitivity.l1 == least
    with pytest.raises(ValidationError, match=r"sensitivity.l1 must be at least dimension \* \(upper - lower\), here"):
        local_laplace(dimension=dimension, lower=lower, upper=upper, l1=math.nextafter(least, 0.0))


def test_a_sum_that_rounds_down_is_found_out():
    """0.1 + 0.1 + ... in floats falls short of the exact diameter for some dimension; such an l1 must not pass."""
    short = [n for n in range(1, 200) if Fraction(n * 0.1) < n * Fraction(0.1)]
    assert short
    for dimension in short:
        with pytest.raises(ValidationError, match=r"sensitivity\.l1 must be at least"):
            local_laplace(dimension=dimension, upper=0.1, l1=dimension * 0.1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"upper": 0.0}, "upper must be above lower by"),
        ({"upper": -1.0}, "upper must be above lower by"),
        ({"upper": 1e-51}, "upper must be above lower by"),
        ({"upper": math.inf}, "finite number"),
        ({"upper": 1e51}, "less than or equal to"),
        ({"lower": math.nan}, "finite number"),
        ({"dimension": 0}, "greater than or equal to 1"),
        ({"dimension": 10**6 + 1}, "less than or equal to 1000000"),
        ({"dimension": 2.0}, "valid integer"),
        ({"scale": 0.0}, "greater than or equal to"),
        ({"scale": -1.0}, "greater than or equal to"),
        ({"scale": math.inf}, "finite number"),
        ({"sensitivity": {"l1": None, "l2": 9.0}}, "sensitivity.l1 must be given for a local release"),
        ({"sensitivity": {"l1": 9.0, "l2": 1.0}}, "sensitivity.l2 must be at least sqrt"),
        ({"sensitivity": {"l1": 9.0, "adjacency": "add_remove"}}, "a local release reveals the number of records"),
        ({"sensitivity": {"l1": 9.0, "adjacency": "zero_out"}}, "sensitivity.adjacency must be replace_one"),
        ({"sensitivity": {"l1": 9.0, "l1_contribution": 4.0}}, "sensitivity.l1_contribution must be absent"),
        ({"sensitivity": {"l1": 9.0, "l2": 9.0, "l2_real": 4.0}}, "sensitivity.l2_real must be absent"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, text):
    stated = {"l1": 3.0, "adjacency": "replace_one", "unit": "record"} | changes.get("sensitivity", {})
    fields = {"lower": 0.0, "upper": 1.0, "dimension": 3, "scale": 1.0} | changes | {"sensitivity": stated}
    with pytest.raises(ValidationError, match=text):
        LocalLaplace.model_validate(fields)


@pytest.mark.parametrize("outside", [1.0 + 2**-52, -5e-324, 7.0, -1e300])
def test_values_outside_the_box_are_refused_not_clipped(outside):
    value = np.full((4, 3), 0.5)
    value[2, 1] = outside
    with pytest.raises(InvalidParameter, match=r"value must be within \[0.0, 1.0\] in every coordinate") as caught:
        local_laplace(dimension=3).release(value, NumpySource.from_seed(1))
    assert repr(outside) not in str(caught.value)


def test_bounds_are_compared_in_double_precision():
    """0.1 as a float32 lies above 0.1: a narrower comparison would let it pass."""
    assert np.float64(np.float32(0.1)) > 0.1
    with pytest.raises(InvalidParameter, match="within"):
        local_laplace(dimension=1, upper=0.1).release(np.array([0.1], dtype=np.float32), NumpySource.from_seed(1))


@pytest.mark.parametrize("shape", [(), (2,), (3, 2), (3, 4)])
def test_records_of_another_length_are_refused(shape):
    with pytest.raises(InvalidParameter, match="value must be records of 3 coordinates along its last axis"):
        local_laplace(dimension=3).release(np.full(shape, 0.5), NumpySource.from_seed(1))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (5, 3), (2, 4, 3)])
def test_any_number_of_records_is_released_one_by_one(shape):
    released = local_laplace(dimension=3).release(np.full(shape, 0.5), NumpySource.from_seed(1))
    assert released.shape == shape
    assert len(np.unique(released)) == released.size


def test_the_ends_of_the_box_are_inside():
    box = local_laplace(dimension=2, lower=-0.3, upper=0.7)
    assert box.release(np.array([-0.3, 0.7]), NumpySource.from_seed(1)).shape == (2,)


def test_unit_and_box_survive_scaling():
    noise = local_laplace(dimension=3, scale=2.0)
    assert noise.scaled(3.0) == local_laplace(dimension=3, scale=6.0)
    assert noise.sensitivity == Sensitivity.model_validate(sensitivity(3.0).model_dump())


def test_opposite_corners_of_several_coordinates_are_so_many_releases_of_one():
    """One coordinate moved by all fourteen, which no box of that side holds, would have 1 - e^-1/2 at 0."""
    whole = profile(Release(mechanism=local_laplace(n := 14, scale=14.0)))
    sides = Laplace(scale=14.0, sensitivity=Sensitivity(l1=1.0, adjacency="replace_one", unit="record"))
    corners = profile(Repeated(count=n, event=Release(mechanism=sides)))
    assert whole.delta(0.0).upper == pytest.approx(0.10417, abs=1e-5)
    assert whole.delta(0.0).upper < -math.expm1(-0.5)
    assert whole.delta(1.0 - 1e-3).lower > 0.0
    for epsilon in (0.0, 0.3, 0.999):
        assert whole.delta(epsilon).lower <= corners.delta(epsilon).upper
        assert corners.delta(epsilon).lower <= whole.delta(epsilon).upper


@pytest.mark.parametrize("seed", range(20))
def test_one_coordinate_has_at_least_its_share(seed):
    random = np.random.default_rng(seed)
    lower, width, scale = random.normal(), 10.0 ** random.uniform(-8, 8), 10.0 ** random.uniform(-8, 8)
    dimension = int(random.integers(1, 1000))
    mechanism = local_laplace(dimension, lower=lower, upper=lower + width, scale=scale)
    one = mechanism.coordinate()
    assert (one.lower, one.upper, one.dimension, one.scale) == (mechanism.lower, mechanism.upper, 1, scale)
    assert one.sensitivity.unit == mechanism.sensitivity.unit
    assert dimension * Fraction(one.sensitivity.l1) >= Fraction(mechanism.sensitivity.l1)
    assert one.sensitivity.l1 == pytest.approx(mechanism.sensitivity.l1 / dimension, rel=1e-15)
    assert one.coordinate() == one
