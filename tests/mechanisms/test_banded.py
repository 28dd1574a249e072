r"""Coefficients of banded strategies: the noise of sums against dense matrices, and that nothing near the optimum is better."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from zetadp.mechanisms.analysis.banded import mean_squared_noise, optimal_coefficients
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.strategy import square_root_coefficients


def _dense(coefficients: tuple[float, ...], steps: int) -> float:
    """|A C^-1|^2 |c|^2 / n in the Frobenius norm, A the matrix of prefix sums."""
    strategy = sum(value * np.eye(steps, k=-lag) for lag, value in enumerate(coefficients))
    factor = np.linalg.solve(strategy.T, np.tril(np.ones((steps, steps))).T).T
    return float(np.sum(factor**2) * np.sum(np.square(coefficients)) / steps)


@pytest.mark.parametrize("coefficients", [(1.0,), (1.0, 0.5), (2.0, 1.0, 0.75), square_root_coefficients(8)])
def test_the_noise_of_sums_is_that_of_the_dense_factor(coefficients: tuple[float, ...]) -> None:
    for steps in (8, 30):
        assert mean_squared_noise(coefficients, steps) == pytest.approx(_dense(coefficients, steps), rel=1e-12)


def test_two_bands_of_two_steps_have_the_best_second_coefficient() -> None:
    # (1 + c^2)(2 + (1 - c)^2) / 2 has the slope 2 c^3 - 3 c^2 + 4 c - 1, over all c, at its minimum.
    first, second = optimal_coefficients(2, 2)
    assert first == 1.0
    assert 2 * second**3 - 3 * second**2 + 4 * second - 1 == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("bands", "steps"), [(4, 400), (16, 300), (64, 2000)])
def test_nothing_near_the_optimal_coefficients_is_better(bands: int, steps: int) -> None:
    found = optimal_coefficients(bands, steps)
    best = mean_squared_noise(found, steps)
    assert best < 0.95 * mean_squared_noise(square_root_coefficients(bands), steps) < (steps + 1) / 2
    assert all(later <= before for before, later in pairwise(found))
    draw = np.random.default_rng(bands)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(10):
            moved = (1.0, *(np.array(found[1:]) * (1.0 + size * draw.standard_normal(bands - 1))).tolist())
            assert mean_squared_noise(moved, steps) >= best


@pytest.mark.parametrize(("bands", "steps"), [(1, 10), (65, 100), (4, 3)])
def test_a_band_that_does_not_fit_is_refused(bands: int, steps: int) -> None:
    with pytest.raises(InvalidParameter, match="bands must be from 2 to"):
        optimal_coefficients(bands, steps)
