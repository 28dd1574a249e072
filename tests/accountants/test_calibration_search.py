from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zetadp.accountants import deadline
from zetadp.accountants.calibration.search import MOST_EVALUATIONS, Problem, Search, inverted
from zetadp.mechanisms.errors import TimeLimitReached

TIGHTNESS = 1e-7


def search(excess, start=0.0, low=-50.0, high=50.0, safety=lambda u: u):
    problem = Problem(low, high, lambda u: u, lambda value: value, safety, excess, whole=False, tightness=TIGHTNESS)
    return Search(problem).run(start)


def whole_search(excess, start, most=10**12):
    """The largest whole number with excess <= 0; positions are -log(number)."""

    def value(position):
        return min(max(math.floor(math.exp(-position) * (1.0 + 4e-15)), 1.0), float(most))

    problem = Problem(-math.log(most), -0.0, value, lambda n: -math.log(n), lambda u: u, excess, whole=True, tightness=0.0)
    return Search(problem).run(-math.log(start))


@pytest.mark.parametrize("slope", [-0.1, -0.7, -1.0, -1.3, -3.0, -40.0])
@pytest.mark.parametrize("root", [-3.0, 0.01, 8.0])
def test_a_line_is_solved_in_a_few_evaluations_whatever_its_slope(slope, root):
    found = search(lambda u: slope * (u - root))
    assert root <= found.good.value <= root + 1.1 * TIGHTNESS
    assert found.evaluations <= 5


@pytest.mark.parametrize("bend", [-0.3, -0.1, 0.1, 0.3])
def test_a_bent_curve_is_solved_in_five_evaluations(bend):
    root = 0.2
    found = search(lambda u: math.expm1(-bend * (u - root)) / bend)
    assert root <= found.good.value <= root + 1.1 * TIGHTNESS
    assert found.evaluations <= 5


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0, math.inf])
@pytest.mark.parametrize("jump", [-7.3, 0.7, 20.0])
def test_a_jump_is_closed_in_on_from_both_sides(jump, size):
    found = search(lambda u: size if u < jump else -size)
    assert found.bad.value < jump <= found.good.value <= jump + 1e-4
    assert found.evaluations < MOST_EVALUATIONS


@settings(max_examples=200, deadline=None)
@given(
    root=st.floats(-20.0, 20.0),
    start=st.floats(-30.0, 30.0),
    steep=st.floats(0.01, 100.0),
    flat=st.floats(1e-3, 1.0),
    knee=st.floats(-2.0, 2.0),
    refuses_below=st.floats(-40.0, 0.0),
)
def test_any_falling_curve_with_a_knee_ends_close_and_on_the_safe_side(root, start, steep, flat, knee, refuses_below):
    def line(u):
        return -flat * (u - knee) - (steep - flat) * max(u - knee, 0.0)

    def excess(u):
        return math.inf if u < refuses_below else line(u) - line(root)

    found = search(excess, start)
    assert excess(found.good.value) <= 0.0
    assert found.good.value >= max(root, refuses_below) - 1e-12
    # Where the evaluations run out on a plateau the answer is still safe, and the bracket says how far it may be.
    # A search that comes down the steep side to just above a knee can't see the plateau behind it: a slack of TIGHTNESS times the steep
    # slope is that many times as wide there.
    unseen = TIGHTNESS * max(steep / flat, 1.0)
    assert found.good.value <= max(root, refuses_below) + 1e-3 + unseen or found.evaluations == MOST_EVALUATIONS


@settings(max_examples=200, deadline=None)
@given(last=st.integers(1, 10**12 - 1), start=st.floats(1.0, 1e12), slope=st.floats(0.05, 3.0), offset=st.floats(0.0, 0.999))
def test_the_last_whole_number_that_is_safe_is_found_exactly(last, start, slope, offset):
    def excess(n):
        return slope * math.log(n / (last + offset)) if n > last else min(slope * math.log(n / (last + offset)), 0.0)

    found = whole_search(excess, start)
    assert (found.good.value, found.bad.value) == (last, last + 1)
    assert found.evaluations <= 25


@pytest.mark.parametrize("last", [1, 2, 3, 1000, 10**9 + 7])
def test_a_whole_number_at_a_jump_is_found_exactly(last):
    found = whole_search(lambda n: -1.0 if n <= last else math.inf, 50.0)
    assert (found.good.value, found.bad.value) == (last, last + 1)


def test_rounding_noise_in_the_excess_does_not_keep_the_search_from_ending():
    found = search(lambda u: 0.3 - u + 1e-6 * math.sin(1e9 * u), start=0.1)
    assert abs(found.good.value - 0.3) <= 1e-4
    assert found.good.excess <= 0.0
    assert found.evaluations < MOST_EVALUATIONS


def test_a_search_that_meets_nothing_ends_at_the_safest_position():
    found = search(lambda u: 1.0 + 0.001 * (50.0 - u))
    assert (found.good, found.bad.position) == (None, 50.0)
    assert found.evaluations < 12


def test_a_search_that_meets_everything_ends_at_the_least_safe_position():
    found = search(lambda u: -1.0 - 0.001 * (u + 50.0))
    assert (found.bad, found.good.position) == (None, -50.0)
    assert found.evaluations < 12


def test_a_search_looks_at_the_clock():
    with deadline.time_limit(0.0), pytest.raises(TimeLimitReached):
        search(lambda u: -u)


@given(value=st.floats(-5.0, 30.0), start=st.floats(-4.0, 4.0))
def test_the_inverse_of_a_rising_function_stays_in_its_range(value, start):
    x = inverted(math.exp, value, -3.0, 3.0, start)
    assert -3.0 <= x <= 3.0
    assert x in (-3.0, 3.0) or math.exp(x) == pytest.approx(value, rel=1e-12)
