"""Elementary functions that the contour's proofs lean on, real and complex, against 40 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments import laplace as laplace_transforms
from zetadp.accountants.densities.nodes import (
    ELEMENTARY,
    UNIT,
    expm1_complex,
    log1p_complex,
)

NULL = Mixture((1.0,), (0.0,))
ULP = 2.0 * UNIT


ENGINES = pytest.mark.parametrize("engine", ["numpy", "c"])


def values(engine, name, *arrays):
    """An elementary function's values, by NumPy or, one at a time, by the C library, which CPython's functions hand these to."""
    if engine == "numpy":
        return getattr(np, {"atan2": "arctan2"}.get(name, name))(*arrays)
    one = (lambda a, b: abs(complex(a, b))) if name == "hypot" else getattr(math, name)
    return np.array([one(*numbers) for numbers in zip(*(array.tolist() for array in arrays), strict=True)])


def worst_relative_error(exact, got, *arrays):
    """The largest |got - exact| / |exact|, with 40 digits."""
    with mpmath.workdps(40):
        truth = [exact(*map(mpmath.mpf, numbers)) for numbers in zip(*(array.tolist() for array in arrays), strict=True)]
        return max(abs((mpmath.mpf(v) - t) / t) for v, t in zip(got.tolist(), truth, strict=True))


@ENGINES
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("exp", -700, 700), ("expm1", -40, 40), ("log", 1e-300, 1e300), ("log1p", -0.75, 1e6), ("sin", -1e8, 1e8), ("cos", -1e8, 1e8)],
)
def test_elementary_functions_are_within_four_units_in_the_last_place(engine, name, low, high):
    rng = np.random.default_rng(1)
    tiny = rng.uniform(-1.0, 1.0, 300) * 10.0 ** rng.uniform(-12.0, 0.0, 300)
    x = np.concatenate([rng.uniform(low, high, 300), tiny[(tiny > low) & (tiny < high)]])
    assert worst_relative_error(getattr(mpmath, name), values(engine, name, x), x) <= 4.0 * ULP


@ENGINES
@pytest.mark.parametrize("name", ["hypot", "atan2"])
def test_two_argument_functions_are_within_four_units_in_the_last_place(engine, name):
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 400)) * 10.0 ** rng.uniform(-9.0, 9.0, (2, 400))
    assert worst_relative_error(getattr(mpmath, name), values(engine, name, a, b), a, b) <= 4.0 * ULP


def random_complex(rng, number):
    return (rng.normal(size=number) + 1j * rng.normal(size=number)) * 10.0 ** rng.uniform(-15.0, 0.5, number)


def test_complex_expm1_keeps_its_digits_near_0():
    z = random_complex(np.random.default_rng(3), 500)
    with mpmath.workdps(40):
        for v, got in zip(z.tolist(), expm1_complex(z).tolist(), strict=True):
            assert abs(mpmath.expm1(mpmath.mpc(v)) - mpmath.mpc(got)) <= ELEMENTARY * abs(v) * max(1.0, math.exp(v.real))


def test_complex_log1p_keeps_its_digits_near_0_and_near_minus_1():
    rng = np.random.default_rng(4)
    z = np.concatenate([random_complex(rng, 400), -1.0 + random_complex(rng, 400), np.exp(1j * rng.uniform(-3, 3, 100)) - 1.0])
    with mpmath.workdps(60):
        for v, got in zip(z.tolist(), log1p_complex(z).tolist(), strict=True):
            truth = mpmath.log(1 + mpmath.mpc(v))
            assert abs(truth - mpmath.mpc(got)) <= ELEMENTARY * abs(truth)
    assert abs(complex(np.log1p(1e-12 * (1 + 1j))) / (1e-12 * (1 + 1j)) - 1) > 1e-5  # numpy's own: no use here


def test_log1p_of_minus_1_is_a_number():
    assert log1p_complex(np.array([-1.0 + 0.0j])).real[0] < -300.0


def test_quadrature_weights_are_as_good_as_claimed():
    with mpmath.workdps(50):
        for x, w in zip(laplace_transforms._POSITIONS.tolist(), laplace_transforms._WEIGHTS.tolist(), strict=True):
            root = mpmath.mpf(x)
            for _ in range(4):
                value, before = mpmath.legendre(32, root), mpmath.legendre(31, root)
                slope = 32 * (before - root * value) / (1 - root**2)
                root -= value / slope
            assert abs(root - x) < ULP
            assert abs(2 / ((1 - root**2) * slope**2) / w - 1) < laplace_transforms._WEIGHT_ERROR
