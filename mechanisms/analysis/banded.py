r"""Banded Toeplitz strategies for sums of noisy gradients: the size of the sums' noise, and the coefficients that make it smallest."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

Column = NDArray[np.float64]

LARGEST_STEPS = 10**6


def mean_squared_noise(coefficients: tuple[float, ...], steps: int) -> float:
    r"""Mean variance of the noise of y_1 + ... + y_t over t = 1, ..., n, where noise of std 1 is added to C x with l2-normalised columns.

    With C's first column c and w the cumulative sums of the first column of C^-1 it is |c|^2 sum_s (n - s) w_s^2 / n. Independent noise
    (one coefficient) has (n + 1) / 2.

    Args:
      coefficients: c_0 > 0, c_1, ... of C's first column.
      steps: n, 1 to 10^6.

    >>> round(mean_squared_noise((1.0,), 9), 4), round(mean_squared_noise((1.0, 0.5), 9), 4)
    (5.0, 3.3402)
    """
    column = _column(coefficients, steps)
    return _loss(column, steps)[0]


def optimal_coefficients(bands: int, steps: int) -> tuple[float, ...]:
    r"""The coefficients, c_0 = 1, that minimise ``mean_squared_noise``, by descent from the square root of the matrix of sums.

    Args:
      bands: 2 to 64.
      steps: 2 to 10^6, at least ``bands``.
    Sources: Choquette-Choo et al. 2023, arXiv:2306.08153; Kalinin and Lampert 2024, arXiv:2405.13763 (the start).
    """
    from scipy.optimize import minimize  # loaded where it is needed: the service reads this module when it starts

    if not 2 <= bands <= min(64, steps):
        raise InvalidParameter("bands", f"from 2 to {min(64, steps)}", bands)
    start = np.array(square_root_coefficients(bands)[1:])

    def loss(rest: Column) -> tuple[float, Column]:
        value, slope = _loss(np.concatenate(([1.0], rest)), steps)
        return math.log(value), slope[1:] / value

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * (bands - 1), options={"ftol": 1e-14, "gtol": 1e-10})
    # Never rising: what is off by rounding is taken back.
    return tuple(float(one) for one in np.minimum.accumulate(np.concatenate(([1.0], found.x))))


def square_root_coefficients(bands: int) -> tuple[float, ...]:
    """The first ``bands`` coefficients of (1 - x)^(-1/2), whose square is the matrix of prefix sums: 1, 1/2, 3/8, 5/16, ..."""
    found = [1.0]
    for lag in range(1, bands):
        found.append(found[-1] * (2 * lag - 1) / (2 * lag))
    return tuple(found)


def inverse_square_root_coefficients(bands: int) -> tuple[float, ...]:
    """w_1, ..., w_b of 1 - w_1 x - w_2 x^2 - ... = (1 - x)^(1/2): 1/2, 1/8, 1/16, ..."""
    found = [0.5]
    for lag in range(2, bands + 1):
        found.append(found[-1] * (2 * lag - 3) / (2 * lag))
    return tuple(found)


def multiples_of_norm_one(coefficients: tuple[float, ...], bits: int) -> tuple[float, ...]:
    """The multiples of 2^-bits next to the coefficients in the largest unit, to 2^-30 of it, in which their squares add up to at most 1."""
    scale = 2**bits
    lower, upper = Fraction(0), Fraction(1) / Fraction(coefficients[0])
    for _ in range(30):
        middle = (lower + upper) / 2
        whole = [round(scale * middle * Fraction(one)) for one in coefficients]
        lower, upper = (middle, upper) if sum(one * one for one in whole) <= scale * scale else (lower, middle)
    return tuple(round(scale * lower * Fraction(one)) / scale for one in coefficients)


def _column(coefficients: tuple[float, ...], steps: int) -> Column:
    if not 1 <= steps <= LARGEST_STEPS:
        raise InvalidParameter("steps", f"from 1 to {LARGEST_STEPS}", steps)
    column = np.array(coefficients[:steps], dtype=np.float64)
    if not (len(column) and column[0] > 0.0 and np.all(np.isfinite(column))):
        raise InvalidParameter("coefficients", "finite, with c_0 > 0", coefficients)
    return column


def _loss(column: Column, steps: int) -> tuple[float, Column]:
    """The mean squared noise, and its slope in every coefficient."""
    from scipy.signal import lfilter

    pulse = np.zeros(steps)
    pulse[0] = 1.0
    inverse = np.asarray(lfilter([1.0], column, pulse))
    sums = np.cumsum(inverse)
    left = np.arange(steps, 0, -1) / steps
    noise, square = float(np.sum(left * sums * sums)), float(np.sum(column * column))
    # The slope of 1 / ((1 - x) c(x)) in c_j is -x^j / ((1 - x) c(x)^2).
    moved = np.asarray(lfilter([1.0], column, sums))
    slopes = [-2.0 * float(np.sum(left[lag:] * sums[lag:] * moved[: steps - lag])) for lag in range(len(column))]
    return square * noise, square * np.array(slopes) + 2.0 * noise * column
