"""Roots that are known, and least values against SciPy's, on functions that are smooth, steep, flat and jagged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import scipy.optimize

from zetadp.mechanisms.numerics.searching import least_between, root_between

RISING: list[tuple[Callable[[float], float], float, float, float]] = [
    (lambda x: x**3 - 2.0, 0.0, 3.0, 2.0 ** (1.0 / 3.0)),
    (lambda x: math.exp(x) - 1e-6, -50.0, 3.0, math.log(1e-6)),
    (lambda x: 1.0 - math.exp(-30.0 * x) - 0.999, 0.0, 40.0, math.log(1000.0) / 30.0),
    (lambda x: math.tanh(1e4 * (x - 0.3)), 0.0, 1.0, 0.3),
    (lambda x: -1.0 if x < 0.7 else 1.0, 0.0, 1.0, 0.7),
    (lambda x: x - 1e-9, 0.0, 1e9, 1e-9),
    (lambda x: math.copysign(abs(x - 5.0) ** 0.2, x - 5.0), 0.0, 7.0, 5.0),
]


@pytest.mark.parametrize(("function", "low", "high", "root"), RISING)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_roots_are_found_from_both_sides(function: Callable[[float], float], low: float, high: float, root: float, sign: float) -> None:
    assert root_between(lambda x: sign * function(x), low, high, 1e-12) == pytest.approx(root, rel=1e-10)


def test_a_root_takes_few_evaluations_and_an_end_may_be_one() -> None:
    asked: list[float] = []
    root_between(lambda x: asked.append(x) or math.exp(x) - 5.0, 0.0, 20.0, 1e-12)
    assert len(asked) < 20
    assert root_between(lambda x: x, 0.0, 1.0, 1e-12) == 0.0
    with pytest.raises(ValueError, match="expected different signs"):
        root_between(lambda x: x, 1.0, 2.0, 1e-12)


@pytest.mark.parametrize(
    "function", [lambda x: (x - 2.0) ** 2, lambda x: abs(x - 0.1), lambda x: x**4 - x, lambda x: -x, lambda x: math.cosh(3.0 * (x - 4.0))]
)
def test_least_values_are_scipys(function: Callable[[float], float]) -> None:
    found = scipy.optimize.minimize_scalar(function, bounds=(-1.0, 5.0), method="bounded", options={"xatol": 1e-6})
    place, value = least_between(function, -1.0, 5.0, 1e-6)
    assert place == pytest.approx(float(found.x), abs=3e-3)  # where it is flat, places differ more than values
    assert value == pytest.approx(float(found.fun), abs=1e-5)
    assert value == function(place)


def test_a_root_that_is_not_found_is_an_error_and_no_guess() -> None:
    with pytest.raises(ArithmeticError, match="isn't a number at"):
        root_between(lambda x: math.nan if 0.0 < x < 1.0 else x - 0.5, 0.0, 1.0, 1e-12)
