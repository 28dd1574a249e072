"""Binomial tails against sums of exact probabilities with 40 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tests.selection import thinned
from zetadp.mechanisms.numerics.binomial import log_binomial_tail


def exact(number, probability, least):
    with mpmath.workdps(40):
        q = mpmath.mpf(probability)
        term = mpmath.binomial(number, least) * q**least * (1 - q) ** (number - least)
        total, k = mpmath.mpf(0), least
        while k <= number and term > total * mpmath.mpf(10) ** -30:
            total += term
            term *= mpmath.mpf(number - k) / (k + 1) * q / (1 - q)
            k += 1
        return float(mpmath.log(total))


def cases():
    rng = np.random.default_rng(1)
    for _ in range(40):
        number, probability = int(10 ** rng.uniform(0.5, 9.5)), float(10 ** rng.uniform(-4.0, -0.05))
        mean = number * probability
        least = math.ceil(mean + rng.uniform(0.3, 30.0) * math.sqrt(mean * (1.0 - probability)) + 1.0)
        if mean + 1.0 < least <= number:
            yield number, probability, least


@pytest.mark.parametrize(("number", "probability", "least"), thinned(list(cases()), every=4))
def test_the_bound_is_above_the_tail_and_near_it(number, probability, least):
    truth = exact(number, probability, least)
    assert truth <= log_binomial_tail(number, probability, least) <= truth + 1e-8


@pytest.mark.parametrize(("number", "probability"), [(1, 0.5), (7, 0.2), (40, 0.9)])
def test_all_successes_and_more(number, probability):
    assert log_binomial_tail(number, probability, number) == pytest.approx(number * math.log(probability), abs=1e-8)
    assert log_binomial_tail(number, probability, number + 1) == -math.inf
    assert log_binomial_tail(number, probability, 0) == 0.0


def test_up_to_the_mean_nothing_is_claimed():
    assert log_binomial_tail(1000, 0.1, 90) == 0.0
