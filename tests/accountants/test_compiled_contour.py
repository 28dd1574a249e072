"""The compiled contour against NumPy's, step by step, and what it refuses. Truths that both are held against stand in other tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.accountants.engines import needs_a_compiler
from tests.accountants.references import group, poisson, replaced, reverse
from tests.selection import thinned
from zetadp.accountants.deadline import time_limit
from zetadp.accountants.densities.moments.laplace import MixedLaplace, WholeLaplace
from zetadp.accountants.densities.transforms import MixedGaussian, TransformUnavailable
from zetadp.accountants.routes.contour import engine, inversion
from zetadp.accountants.routes.contour.inversion import tolerance_for
from zetadp.accountants.routes.contour.saddle import Saddle
from zetadp.mechanisms.errors import TimeLimitReached

pytestmark = needs_a_compiler
NEVER = 1e4


def mixed(pair, count, improbable=60.0):
    return MixedGaussian(pair.upper, pair.lower, count, improbable)


DIRECTIONS = {
    "remove": lambda: ((mixed(poisson(0.01, 1.0), 1000),), 0.0),
    "add": lambda: ((mixed(reverse(poisson(0.3, 0.7)), 50),), 0.0),
    "sparse": lambda: ((mixed(poisson(1e-5, 1.0), 10**7),), 0.0),
    "cut": lambda: ((mixed(poisson(1e-3, 0.05), 100),), 0.0),
    "whole beside it": lambda: ((mixed(poisson(0.01, 1.0), 1000),), 0.3),
    "replaced": lambda: ((mixed(replaced(0.1, 0.8), 30),), 0.0),
    "group": lambda: ((mixed(group(0.02, 0.5, 4), 300),), 0.0),
    "group added": lambda: ((mixed(reverse(group(0.2, 0.3, 3)), 40),), 0.0),
    "Laplace beside it": lambda: ((WholeLaplace(0.3, 7), mixed(poisson(0.01, 1.0), 100), WholeLaplace(1e-3, 10**4)), 0.1),
    "many": lambda: (tuple(mixed(poisson(0.001 * k, 1.0 + 0.1 * k), 100 * k) for k in range(1, 6)), 0.05),
}
TARGETS = [math.log(1e-3), math.log(1e-9), -200.0]
CASES = thinned([(name, log_delta) for log_delta in TARGETS for name in DIRECTIONS], every=2)


def both(name):
    """One direction in each engine, apart from each other."""
    return engine.direction(*DIRECTIONS[name]()), inversion.Direction(*DIRECTIONS[name]())


@pytest.mark.parametrize(("name", "log_delta"), CASES)
def test_both_lay_the_same_contour_and_prove_the_same(name, log_delta):
    compiled, plain = both(name)
    assert not isinstance(compiled, inversion.Direction)
    saddle = plain.saddle_for(log_delta)
    assert compiled.saddle_for(log_delta) == pytest.approx(saddle, rel=1e-7)
    assert compiled.largest_loss == pytest.approx(plain.largest_loss, rel=1e-13)
    assert compiled.chernoff(saddle.tilt) == pytest.approx(plain.chernoff(saddle.tilt), rel=1e-9, abs=1e-9)
    assert compiled.log_integral(saddle) == pytest.approx(plain.log_integral(saddle), rel=1e-9, abs=1e-9)
    tolerance = tolerance_for(saddle.epsilon, saddle.tilt)
    one, other = (way.contour(saddle, log_delta, tolerance) for way in (compiled, plain))
    assert compiled.log_left_out == pytest.approx(plain.log_left_out, rel=1e-12)
    assert (one.tilt, one.period, one.centre) == pytest.approx((other.tilt, other.period, other.centre), rel=1e-9)
    root = other.solve(log_delta, saddle.epsilon)
    assert one.solve(log_delta, saddle.epsilon) == pytest.approx(root, rel=1e-9)
    for epsilon in (root, 1.001 * root, 0.99 * root + 0.01, 0.0):
        (low, high), (its_low, its_high) = one.bracket(epsilon), other.bracket(epsilon)
        width = max(its_high - its_low, 1e-13 * abs(its_high))
        assert low <= its_high
        assert its_low <= high
        assert high == pytest.approx(its_high, abs=width)
        assert low == -math.inf or high - low <= 1.01 * width
        assert one.estimate(epsilon) == pytest.approx(other.estimate(epsilon), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", thinned(list(DIRECTIONS), every=3))
def test_both_find_the_same_saddle_for_an_epsilon(name):
    for epsilon in (0.01, 1.0, 5.0):
        compiled, plain = both(name)
        assert compiled.saddle_at(epsilon) == pytest.approx(plain.saddle_at(epsilon), rel=1e-6)
        compiled.start = plain.start = 3.0
        assert compiled.saddle_at(epsilon) == pytest.approx(plain.saddle_at(epsilon), rel=1e-6)


def test_what_has_no_compiled_moment_function_is_numpys():
    pair = poisson(0.1, 1.0)
    sampled = MixedLaplace(pair.upper, pair.lower, 10)
    assert isinstance(engine.direction((sampled, mixed(pair, 10)), 0.1), inversion.Direction)


def raised(way, ask):
    with pytest.raises(TransformUnavailable) as found:
        ask(way)
    return str(found.value)


@pytest.mark.parametrize(
    ("transforms", "ask"),
    [
        (lambda: (mixed(poisson(0.5, 3.0), 1, NEVER),), lambda way: way.contour(Saddle(20.0, 30.0, 1.0, 900.0), -50.0, 1e-6)),
        (lambda: (mixed(poisson(1e-4, 1.0), 1),), lambda way: way.contour(way.saddle_for(math.log(1e-6)), math.log(1e-6), 1e-6)),
        (lambda: (WholeLaplace(1.0, 3),), lambda way: way.contour(Saddle(1.0, 1.0, 1.0, 1.0), -5.0, 1e-6)),
        (lambda: (WholeLaplace(1.0, 3),), lambda way: way.saddle_at(-1e15)),
        (lambda: (WholeLaplace(10.0, 1), mixed(poisson(0.1, 1.0), 1)), lambda way: way.contour(Saddle(50.0, 1.0, 1.0, 1.0), -5.0, 1e-6)),
        (lambda: (mixed(poisson(0.1, 900.0), 1, NEVER),), lambda way: way.saddle_for(-1e5)),
    ],
    ids=["a moment beyond floats", "too few", "atoms", "no saddle", "Laplace beyond floats", "too little noise"],
)
def test_both_decline_the_same_in_the_same_words(transforms, ask):
    assert raised(engine.direction(transforms(), 0.0), ask) == raised(inversion.Direction(transforms(), 0.0), ask)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_never_leaves_a_compiled_contour(wrong):
    way = both("remove")[0]
    saddle = way.saddle_for(-11.0)
    contour = way.contour(saddle, -11.0, 1e-6)
    halves = mixed(poisson(0.01, 1.0), 3).plain[:4]
    for question in (
        lambda: way.chernoff(wrong),
        lambda: way.log_integral(saddle._replace(curvature=wrong)),
        lambda: way.log_integral(saddle._replace(tilt=wrong)),
        lambda: way.contour(saddle._replace(epsilon=wrong), -11.0, 1e-6),
        lambda: way.contour(saddle._replace(curvature=wrong), -11.0, 1e-6),
        lambda: way.contour(saddle, wrong, wrong),
        lambda: contour.bracket(wrong),
        lambda: contour.estimate(wrong),
        lambda: engine.COMPILED.Direction(((*halves, wrong, 60.0, 1.0, math.inf),), 0.0, int),
        lambda: engine.COMPILED.Direction(((*halves, 3, wrong, 1.0, math.inf),), 0.0, int),
        lambda: engine.COMPILED.Direction(((*halves, 3, 60.0, 1.0, math.inf),), wrong, int),
    ):
        with pytest.raises((FloatingPointError, TransformUnavailable)):
            question()


def test_what_is_no_transform_is_refused():
    weights = (0.9, 0.1)
    for wrong in ((1.0,), (weights, (0.0,), (1.0,), (0.0,), 3, 60.0, 1.0, math.inf), ((), (), (), (), 3, 60.0, 1.0, math.inf), 3.0):
        with pytest.raises((TypeError, ValueError)):
            engine.COMPILED.Direction((wrong,), 0.0, int)
    with pytest.raises(TypeError):
        type(both("remove")[0].contour(Saddle(1.0, 1.0, 1.0, 0.1), -5.0, 1e-3))()


def test_a_compiled_contour_looks_at_the_time_limit():
    way = both("many")[0]
    saddle = way.saddle_for(-11.0)
    with time_limit(-1.0), pytest.raises(TimeLimitReached):
        way.contour(saddle, -11.0, 1e-6)


def test_a_compiled_integrand_that_overflows_is_refused():
    way = engine.direction((mixed(poisson(0.5, 30.0), 10**6),), 0.0)
    with np.errstate(all="raise"), pytest.raises((FloatingPointError, TransformUnavailable)):
        way.contour(Saddle(1e3, 1.0, 1e-3, 0.0), -5.0, 1e-6)
