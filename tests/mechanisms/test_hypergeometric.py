"""Hypergeometric probabilities against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from zetadp.mechanisms.numerics.hypergeometric import hypergeometric


@pytest.mark.parametrize(("population", "members", "sample"), [(10, 2, 5), (7, 3, 3), (5, 5, 2), (200, 40, 190), (4, 3, 4), (300, 1, 7)])
def test_every_probability_is_the_float_at_or_just_above_the_exact_one(population, members, sample):
    found = hypergeometric(population, members, sample)
    whole = math.comb(population, sample)
    exact = [Fraction(math.comb(members, j) * math.comb(population - members, sample - j), whole) for j in range(len(found))]
    assert sum(exact) == 1
    for one, true in zip(found, exact, strict=True):
        assert true <= Fraction(one) <= true * (1 + Fraction(1, 2**52))


def test_a_huge_population_is_nearly_binomial():
    found, q = hypergeometric(10**12, 3, 10**9), 1e-3
    assert found == pytest.approx([math.comb(3, j) * q**j * (1 - q) ** (3 - j) for j in range(4)], rel=1e-8)
