r"""Noise in shares: sums of floors that cost what one noise costs, on a grid whose sums are short and don't wrap around."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import gdp_log_delta
from zetadp.mechanisms.sampling.grid import contraction
from zetadp.mechanisms.sampling.shares import LARGEST_HELD, WIDENED, ShareGrid, most_sampled


def _grid(numbers: int = 1000, honest: int = 9, distance: float = 1.0, std: float = 1.0) -> ShareGrid:
    return ShareGrid.of(std=std, distance=distance, numbers=numbers, parties=11, honest=honest, bound=distance * std, expected=660.0)


@given(st.integers(1, 9), st.integers(-50, 50), st.integers(0, 2**32))
def test_a_sum_of_floors_is_a_function_of_the_sum_if_the_query_is_a_multiple(honest: int, steps: int, seed: int) -> None:
    noise = 3.0 * np.random.default_rng(seed).standard_normal(honest)
    query, total = honest * steps, noise.sum()
    residues = noise - total / honest
    again = np.floor((query + total) / honest + residues)
    # Where a number is so near a whole one that float64 decides its floor otherwise, nothing is said.
    assert query + np.floor(noise).sum() == again.sum() or np.abs(noise - np.rint(noise)).min() < 1e-12


def _sum_of_floors(std: float, parties: int) -> np.ndarray:
    edges = np.arange(-60, 62)
    one, law = np.diff(ndtr(edges / std)), np.array([1.0])
    for _ in range(parties):
        law = np.convolve(law, one)
    return law


def _delta(law: np.ndarray, shift: int, epsilon: float) -> float:
    moved, still = np.concatenate((np.zeros(shift), law)), np.concatenate((law, np.zeros(shift)))
    return float(np.maximum(moved - math.exp(epsilon) * still, 0.0).sum())


@pytest.mark.parametrize(("std", "parties"), [(0.2, 2), (0.3, 3), (0.5, 4), (1.0, 3)])
def test_a_query_in_multiples_costs_no_more_than_gaussian_noise_and_one_in_between_does(std: float, parties: int) -> None:
    law = _sum_of_floors(std, parties)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        allowed = math.exp(gdp_log_delta(parties / (std * math.sqrt(parties)), epsilon))
        assert _delta(law, parties, epsilon) <= allowed * (1.0 + 1e-9) + 1e-14
    if (std, parties) == (0.3, 3):  # what the theorem is for: with so little noise single steps may be seen better than through one noise
        assert _delta(law, 1, 4.0) > 1.5 * math.exp(gdp_log_delta(1.0 / (std * math.sqrt(parties)), 4.0))


@given(
    numbers=st.sampled_from([1, 20, 3000]), honest=st.integers(1, 20), distance=st.sampled_from([0.05, 1.0, 7.0]), seed=st.integers(0, 9)
)
def test_rounded_queries_are_no_further_apart_than_accounted_for(numbers: int, honest: int, distance: float, seed: int) -> None:
    grid = ShareGrid.of(std=0.7, distance=distance, numbers=numbers, parties=20, honest=honest, bound=distance * 0.7, expected=50.0)
    random = np.random.default_rng(seed)
    first = random.standard_normal(numbers)
    move = random.choice((-1.0, 1.0), numbers)
    second = first + move * (0.7 * distance / np.linalg.norm(move))
    rounded = [honest * np.rint(np.clip(values * grid.factor, -grid.held, grid.held)) for values in (first, second)]
    assert np.linalg.norm(rounded[0] - rounded[1]) / (2.0**grid.bits * math.sqrt(honest)) <= distance
    assert 1.0 < grid.widened <= 1.0 / (1.0 - WIDENED)
    assert grid.step * 2.0**grid.bits * math.sqrt(honest) == pytest.approx(0.7 * grid.widened, rel=1e-12)


def test_a_value_is_never_stretched_further_than_its_distance_allows() -> None:
    """Exactly: a factor that float64 rounded up would make neighbours further apart than what is accounted for."""
    random = np.random.default_rng(0)
    for std, distance in zip(random.uniform(0.1, 10.0, 200).tolist(), random.uniform(0.1, 7.0, 200).tolist(), strict=True):
        for honest in (2, 3, 7):
            grid = _grid(honest=honest, distance=distance, std=std)
            kept = contraction(distance, 1000, "l2", math.sqrt(honest) * 2.0**-grid.bits * (1.0 + 2.0**-52 * LARGEST_HELD))
            # factor <= kept 2^bits / (sqrt(honest) std), squared
            assert Fraction(grid.factor) ** 2 * honest * Fraction(std) ** 2 <= (Fraction(kept) * 2**grid.bits) ** 2
            assert grid.factor * math.sqrt(honest) * std * 2.0**-grid.bits > kept * (1.0 - 2.0**-48)


@pytest.mark.parametrize("expected", [1e-3, 1.0, 60.0, 1e5])
def test_more_units_than_the_most_are_sampled_as_rarely_as_said(expected: float) -> None:
    most = most_sampled(expected)
    for count, rarely in ((most, True), (most - 1.0 - 1e-4 * expected, False)):
        exponent = count - expected - count * math.log(count / expected)
        assert (exponent <= -101.0 * math.log(2.0)) is rarely


def test_sums_have_room_for_every_sample_and_all_noise() -> None:
    for numbers in (20, 10**4, 10**6):
        grid = _grid(numbers)
        largest = grid.honest * grid.factor * 1.0 * most_sampled(660.0)
        noise = 2.0**grid.bits * math.sqrt(11) * math.sqrt(2.0 * math.log(numbers * 2.0**102))
        assert largest + noise + 11 * (1 + grid.honest) < 2 ** (grid.width - 1)
        assert grid.held >= grid.factor * most_sampled(660.0)


def test_noise_for_which_no_grid_is_fine_enough_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="numbers in shares"):
        _grid(numbers=10**6, distance=1e-5)
    with pytest.raises(InvalidParameter, match="steps of its grid"):
        ShareGrid.of(std=1.0, distance=1e6, numbers=10**6, parties=3, honest=3, bound=1e6, expected=1e9)
