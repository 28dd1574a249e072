from __future__ import annotations

import math

import pytest

from tests.accountants.events import WORK_SET, gaussian, laplace, training
from tests.golden.oracles import oracle_rows
from tests.selection import chosen, thinned
from zetadp.accountants import Repeated, profile
from zetadp.mechanisms import NumericalFloor, UnsupportedEvent


# The contour's and fft's brackets hold all of them; here the two that a grid answers soonest, and the one that it answers widely.
@pytest.mark.parametrize(
    ("probability", "std", "count", "delta", "exact"), chosen(WORK_SET, [row for row in WORK_SET if row[1] >= 4.0 or row[2] == 1_000_000])
)
def test_epsilon_brackets_the_exact_one(probability, std, count, delta, exact):
    bound = profile(training(probability, std, count), "pld").epsilon(delta)
    slack = 1e-6  # the exact values have seven digits
    assert bound.lower <= exact + slack
    assert exact - slack <= bound.upper <= exact * (1.0 + (1e-4 if count < 1_000_000 else 0.03))


def test_epsilon_beyond_seven_hundred_keeps_its_digits():
    assert profile(training(0.5, 0.5, 1000), "pld").epsilon(1e-5).upper == pytest.approx(877.65695, abs=0.05)


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("subsampled_gaussian_one_step"), every=3))
def test_one_step_brackets_forty_digits_in_the_worse_direction(inputs, oracle):
    exact = max(float(oracle["value"]["remove"]), float(oracle["value"]["add"]))
    found = profile(training(float(inputs["q"]), float(inputs["s"]), 1), "pld")
    if exact < 1e-8:
        with pytest.raises(NumericalFloor):
            found.delta(float(inputs["eps"]))
        return
    bound = found.delta(float(inputs["eps"]))
    assert bound.lower <= exact <= bound.upper <= exact * 1.01 + 1e-10


def test_repeated_laplace_brackets_the_exact_epsilon():
    bound = profile(Repeated(count=1000, event=laplace(100.0)), "pld").epsilon(1e-6)
    assert bound.lower <= 1.3629246 <= bound.upper <= 1.363


def test_delta_below_the_floor_is_refused_with_a_way_out():
    with pytest.raises(NumericalFloor, match="delta = 1e-12 is beyond this route's floor of 1e-08: use accountant rdp or gdp"):
        profile(training(0.01, 1.0, 10), "pld").epsilon(1e-12)


def test_delta_is_never_understated_at_the_floor():
    # There the library alone is 1e-3 and more below the truth.
    exact = 8.185122967800666
    assert profile(training(0.01, 1.0, 10_000), "pld").epsilon(1e-8).upper >= exact


def test_loss_beyond_the_grid_is_refused():
    with pytest.raises(UnsupportedEvent, match="too far for a grid"):
        profile(gaussian(0.001), "pld")


def test_an_answer_that_would_fall_below_the_floor_is_refused():
    with pytest.raises(NumericalFloor, match="smaller epsilon"):
        profile(gaussian(1.0), "pld").delta(9.0)


def test_delta_at_infinite_epsilon_is_zero():
    assert profile(gaussian(1.0), "pld").delta(math.inf).upper == 0.0
