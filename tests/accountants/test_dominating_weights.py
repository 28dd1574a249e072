"""Weights of dominating pairs: rounding moves them so that the pair still dominates."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tests.accountants.test_dominating import leaf
from zetadp.accountants.densities import GAUSSIAN
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.dominating import pair_of


def test_a_tiny_probability_is_kept_exactly():
    pair = pair_of(leaf(GAUSSIAN, 1e-50))
    assert pair.upper == Mixture((1.0, 1e-50), (0.0, 1.0))


@pytest.mark.parametrize(("probability", "size"), [(1e-50, 10), (0.03, 200), (0.5, 12)])
def test_rounding_moves_a_replaced_groups_weights_outwards_only(probability, size):
    pair, q = pair_of(leaf(GAUSSIAN, probability, group=size, adjacency="replace_one", move=2.0, contribution=1.0)), Fraction(probability)
    exact = [math.comb(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1)]
    assert all(Fraction(weight) >= one for weight, one in zip(pair.upper.weights[1:], exact[1:], strict=True))
    assert pair.symmetric
    assert pair.upper.weights[0] == pytest.approx(float(exact[0]), rel=1e-11)


@pytest.mark.parametrize(
    ("probability", "size"), [(1e-50, 10), (0.3, 200), (1 - 1e-12, 3), (0.5, 40), pytest.param(1e-3, 500, marks=pytest.mark.slow)]
)
def test_rounding_moves_a_groups_weights_up_only(probability, size):
    pair = pair_of(leaf(GAUSSIAN, probability, group=size))
    q, lowest = Fraction(probability), round(-pair.lower.shifts[0])
    exact = [math.comb(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1)]
    above_exact, above = Fraction(0), Fraction(0)
    for j in range(size, lowest, -1):
        above_exact += exact[j]
        above += Fraction(pair.upper.weights[j - lowest])
        assert above >= above_exact
    assert pair.upper.shifts[-1] - pair.lower.shifts[0] == pytest.approx(size)
    assert float(above) <= float(above_exact) * (1 + 1e-12) + 1e-290


def test_a_group_certain_to_be_sampled_whole_is_a_whole_release_of_the_group():
    assert pair_of(leaf(GAUSSIAN, 1.0, group=7)).upper == Mixture((1.0,), (7.0,))
