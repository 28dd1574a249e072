from __future__ import annotations

import math
import random

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.golden.oracles import oracle_rows
from tests.selection import chosen, thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, gdp_log_deltas, gdp_trade_off, log_delta_error, log_delta_slopes, trade_off_error
from zetadp.mechanisms.numerics.mills import log_difference


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("gdp_delta"), every=3))
def test_log_delta_agrees_with_forty_digits(inputs, oracle):
    computed = gdp_log_delta(float(inputs["mu"]), float(inputs["eps"]))
    assert computed == pytest.approx(float(oracle["ln_value"]), rel=1e-13, abs=1e-30)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_tradeoff"))
def test_trade_off_agrees_with_forty_digits(inputs, oracle):
    assert gdp_trade_off(float(inputs["mu"]), float(inputs["alpha"])) == pytest.approx(float(oracle["value"]), rel=1e-13)


def _exact_log_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """From the same closed form with as many digits as cancel, to 60; far out by the scaled tails, whose digits don't run out."""
    tail = max(0.0, epsilon / mu - mu / 2)
    with mpmath.workdps(90 + int(max(0.0, -math.log10(mu))) + int(3 * math.log10(1.0 + tail))):
        m, e, root = mpmath.mpf(mu), mpmath.mpf(epsilon), mpmath.sqrt(2)
        x, y = e / m - m / 2, e / m + m / 2
        if x < 0:
            return mpmath.log1p(-(mpmath.erfc(-x / root) + mpmath.exp(e) * mpmath.erfc(y / root)) / 2)
        return mpmath.log((_scaled_tail(x) - _scaled_tail(y)) / 2) - x * x / 2


def _scaled_tail(t: mpmath.mpf) -> mpmath.mpf:
    """e^{t^2/2} erfc(t / sqrt 2); beyond 10^4 by the asymptotic series, whose terms fall below 10^-200 within 60."""
    if t < 1e4:
        return mpmath.exp(t * t / 2) * mpmath.erfc(t / mpmath.sqrt(2))
    total, term = mpmath.mpf(0), 1 / t
    for k in range(60):
        total, term = total + term, -term * (2 * k + 1) / t**2
    return total * mpmath.sqrt(2 / mpmath.pi)


def _points(generator: random.Random, count: int) -> list[tuple[float, float]]:
    """(mu, epsilon) over eighteen decades of mu: at random, in the bulk, in the tail, where the two terms cancel."""
    points: list[tuple[float, float]] = []
    for _ in range(count):
        mu = 10 ** generator.uniform(-12, 6)
        tail = generator.choice([generator.uniform(-8, 40), generator.uniform(-1, 9), 10 ** generator.uniform(-5, 5)])
        points.append((mu, generator.choice([max(0.0, mu * (tail + mu / 2)), 10 ** generator.uniform(-12, 6)])))
    return points


def test_stated_error_holds_over_eighteen_decades_of_mu_and_down_to_any_delta():
    for mu, epsilon in _points(random.Random(1), 600):
        exact = _exact_log_delta(mu, epsilon)
        assert abs(float(gdp_log_delta(mu, epsilon) - exact)) <= log_delta_error(float(exact)), (mu, epsilon)


@pytest.mark.parametrize("mu", [17.0, 80.0, 1e4, 1e9])
def test_near_one_the_error_is_a_share_of_what_delta_lacks(mu: float) -> None:
    generator = random.Random(3)
    for _ in range(60):
        epsilon = mu * (generator.uniform(-39.0, -1.5) + 0.5 * mu)
        if epsilon < 0.0:
            continue
        exact = _exact_log_delta(mu, epsilon)
        found = gdp_log_delta(mu, epsilon)
        assert abs(float(found - exact)) <= log_delta_error(found) <= 3.1e-12 * abs(found) + 1e-299


def test_half_of_the_stated_error_is_enough_on_these_points():
    assert all(
        abs(float(gdp_log_delta(mu, epsilon) - exact)) <= 0.5 * log_delta_error(float(exact))
        for mu, epsilon in _points(random.Random(2), 200)
        for exact in [_exact_log_delta(mu, epsilon)]
    )


@pytest.mark.parametrize(("low", "high", "allowed"), [(-0.5, 1.0, 16), (1.0, 8.0, 8), (8.0, 100.0, 8)])
def test_erfcx_is_as_exact_as_the_proof_assumes(low, high, allowed):
    generator = random.Random(5)
    with mpmath.workdps(40):
        for x in (generator.uniform(low, high) for _ in range(2000)):
            exact = mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x)
            assert abs(float(special.erfcx(x)) / exact - 1) <= allowed * 2.0**-53, x


@pytest.mark.parametrize("x", thinned([-0.67, -0.3, 0.0, 1.0, 4.9, 6.9999, 7.0001, 8.0, 100.0, 1e5], every=5))
@pytest.mark.parametrize("share", [1e-12, 1e-4, 0.02, 0.03, 0.05, 0.1])
def test_difference_of_the_mills_ratio_is_exact_on_both_sides_of_every_switch(x, share):
    mu = share * max(1.0, abs(x))
    with mpmath.workdps(140):
        exact = mpmath.log((_scaled_tail(mpmath.mpf(x)) - _scaled_tail(mpmath.mpf(x) + mpmath.mpf(mu))) / 2)
    assert abs(float(log_difference(x, mu) - exact)) <= 1.5e-13 + 3e-16 * abs(float(exact))


def test_arrays_get_the_same_numbers_as_one_at_a_time():
    points = [*_points(random.Random(3), 5000), (0.0, 1.0), (1.0, math.inf), (1e-200, 1.0), (1e-300, 1e200), (3.0, 0.0), (1e9, 5e17 + 1e9)]
    mu, epsilon = (np.array(column) for column in zip(*points, strict=True))
    one_by_one = np.array([gdp_log_delta(*point) for point in points])
    # Compilers round exp and log of arrays otherwise, by a unit in the last place.
    assert gdp_log_deltas(mu, epsilon) == pytest.approx(one_by_one, rel=4e-16, abs=1e-14)


def test_arrays_are_broadcast_and_checked():
    assert gdp_log_deltas([[1.0], [2.0]], [0.5, 1.0, 2.0]).shape == (2, 3)
    assert gdp_log_deltas(1.0, 1.0).shape == ()
    with pytest.raises(InvalidParameter, match="epsilon must be >= 0"):
        gdp_log_deltas(1.0, [1.0, math.nan])
    with pytest.raises(InvalidParameter, match="mu must be finite"):
        gdp_log_deltas([1.0, math.inf], 1.0)


def test_slopes_are_the_derivatives():
    for mu, epsilon in [(1.0, 1.0), (0.01, 0.03), (30.0, 500.0), (0.3, 4.0), (2.0, 0.1)]:
        value, by_epsilon, by_mu = log_delta_slopes(mu, epsilon)
        step = 1e-5
        assert value == pytest.approx(gdp_log_delta(mu, epsilon), rel=1e-15)
        assert by_epsilon == pytest.approx(
            (gdp_log_delta(mu, epsilon * (1 + step)) - gdp_log_delta(mu, epsilon * (1 - step))) / (2 * step * epsilon), rel=1e-4
        )
        assert by_mu == pytest.approx(
            (gdp_log_delta(mu * (1 + step), epsilon) - gdp_log_delta(mu * (1 - step), epsilon)) / (2 * step * mu), rel=1e-4
        )


def test_relative_error_of_delta_is_below_1e_12_down_to_1e_300():
    for mu in (1e-4, 0.01, 0.3, 1.0, 5.0):
        epsilon = 0.5 * mu**2 + mu * 37.0  # delta near 1e-300
        exact = _exact_log_delta(mu, epsilon)
        assert -710 < exact < -685
        assert abs(float(gdp_log_delta(mu, epsilon) - exact)) < 1e-12


def test_delta_of_zero_mu_is_zero():
    assert gdp_log_delta(0.0, 0.0) == -math.inf


@pytest.mark.parametrize("mu", [1e-150, 1e100])
def test_extreme_mu_gives_a_probability(mu):
    assert gdp_log_delta(mu, 1.0) <= 0.0


@pytest.mark.parametrize(
    ("mu", "epsilon", "text"), [(-1.0, 1.0, "mu must be finite and >= 0, got -1.0"), (1.0, -1.0, "epsilon must be >= 0, got -1.0")]
)
def test_arguments_out_of_range_are_named(mu, epsilon, text):
    with pytest.raises(InvalidParameter) as caught:
        gdp_log_delta(mu, epsilon)
    assert str(caught.value) == text


def test_nan_is_refused():
    with pytest.raises(InvalidParameter, match="epsilon must be >= 0, got nan"):
        gdp_log_delta(1.0, math.nan)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("classic_gaussian_threshold"))
def test_the_classic_noise_gives_exactly_its_delta_at_the_threshold(inputs, oracle):
    # Errata P11: std = sqrt(2 ln(1.25 / delta)) / epsilon is (epsilon, delta)-DP up to this epsilon and not beyond.
    delta, epsilon = float(inputs["delta"]), float(oracle["value"])
    mu = epsilon / math.sqrt(2.0 * math.log(1.25 / delta))
    assert gdp_log_delta(mu, epsilon) == pytest.approx(math.log(delta), abs=1e-11)


@pytest.mark.parametrize("rounds", chosen([40, 200], [40]))
def test_stated_error_of_the_trade_off_holds_down_to_tiny_rates(rounds):
    generator = random.Random(4)
    for _ in range(rounds):
        mu, alpha = 10 ** generator.uniform(-4, 1.2), generator.choice([10 ** generator.uniform(-300, 0), generator.uniform(0.01, 0.99)])
        with mpmath.workdps(400):
            quantile = mpmath.findroot(lambda x, a=alpha: mpmath.log(mpmath.ncdf(x)) - mpmath.log(a), float(special.ndtri(alpha)))
            exact = mpmath.ncdf(-quantile - mu)
            error = abs(float(gdp_trade_off(mu, alpha) / exact - 1)) if exact > 1e-300 else 0.0
        assert error <= trade_off_error(mu, alpha), (mu, alpha)


def test_published_trade_off_is_within_1e_12_at_ordinary_rates():
    assert max(trade_off_error(mu, alpha) for mu in (0.1, 1.0, 5.0) for alpha in (1e-6, 0.01, 0.5, 0.99)) < 1e-12
