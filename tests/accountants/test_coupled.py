"""How probable it is that any release differs: epsilon is 0 where that is rarer than delta, however little noise there is."""

from __future__ import annotations

import math

import pytest

from tests.accountants.events import fixed_size, gaussian, laplace, training
from tests.selection import chosen, thinned
from zetadp.accountants import Composed, PoissonSampled, Repeated, profile
from zetadp.accountants.events import leaves
from zetadp.accountants.routes.single.coupled import is_surely_zero, log_total_variation

RARE = training(1.63e-5, 0.0537, 7183)
EVER = -math.expm1(7183 * math.log1p(-1.63e-5))
"""Of two records with so little noise everybody tells which was sampled: this is delta(0), up to 1e-19."""


def test_epsilon_is_zero_from_the_probability_on_that_anybody_is_sampled() -> None:
    for accountant in ("auto", "contour", "fft"):
        bound = profile(RARE, accountant=accountant).epsilon(0.1457)
        assert (bound.lower, bound.upper) == (0.0, 0.0)
    assert is_surely_zero(leaves(RARE), math.log(EVER * (1.0 + 1e-12)))
    assert not is_surely_zero(leaves(RARE), math.log(EVER * (1.0 - 1e-12)))
    assert log_total_variation(leaves(RARE)) == pytest.approx(math.log(EVER), rel=1e-12)
    assert log_total_variation(leaves(RARE)) >= math.log(EVER)


@pytest.mark.parametrize("epsilon", chosen([0.0, 1.0, 50.0], [1.0]))
def test_delta_never_exceeds_that_probability(epsilon: float) -> None:
    bound = profile(RARE).delta(epsilon)
    assert bound.log_lower <= math.log(EVER)
    assert math.log(EVER) <= bound.log_upper <= math.log(EVER) * (1.0 - 1e-10)


@pytest.mark.parametrize(
    "event",
    thinned(
        [
            training(0.01, 0.5, 1),
            training(0.3, 0.7, 20),
            training(0.05, 0.3, 10, adjacency="zero_out"),
            fixed_size(3, 50, 0.8, 12),
            fixed_size(3, 50, 0.8, 12, adjacency="zero_out"),
            Repeated(count=6, event=PoissonSampled(probability=0.02, event=laplace(0.4))),
            Composed(events=(training(0.02, 0.4, 5), gaussian(3.0))),
        ],
        every=3,
    ),
    ids=str,
)
def test_the_bound_is_above_delta_at_zero(event) -> None:
    high = log_total_variation(leaves(event))
    assert high < 0.0
    assert profile(event).delta(0.0).log_lower <= high
    assert not is_surely_zero(leaves(event), profile(event).delta(0.0).log_lower - 1e-9)


def test_one_release_has_its_own_total_variation() -> None:
    event = training(0.01, 0.5, 1)
    assert log_total_variation(leaves(event)) == pytest.approx(profile(event).delta(0.0).log_upper, rel=1e-12)


def test_a_release_of_everybody_bounds_nothing_by_its_sample() -> None:
    assert not is_surely_zero(leaves(gaussian(0.01)), math.log(0.999))
