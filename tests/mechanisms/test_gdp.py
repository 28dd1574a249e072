from __future__ import annotations

import math
import random

import mpmath
import pytest
from scipy import special

from mechanisms.errors import InvalidParameter
from mechanisms.gdp import gdp_log_delta, gdp_trade_off, log_delta_error, trade_off_error
from tests.golden.oracles import oracle_rows


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_delta"))
def test_log_delta_agrees_with_forty_digits(inputs, oracle):
    computed = gdp_log_delta(float(inputs["mu"]), float(inputs["eps"]))
    assert computed == pytest.approx(float(oracle["ln_value"]), rel=1e-13, abs=1e-30)


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("gdp_tradeoff"))
def test_trade_off_agrees_with_forty_digits(inputs, oracle):
    assert gdp_trade_off(float(inputs["mu"]), float(inputs["alpha"])) == pytest.approx(float(oracle["value"]), rel=1e-13)


def _exact_log_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60 + int(0.5 * (epsilon / mu) ** 2 / 2.3)):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.log(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


def test_stated_error_holds_over_six_decades_of_mu():
    generator = random.Random(1)
    for _ in range(300):
        mu = 10 ** generator.uniform(-6, 2)
        tail = generator.choice([generator.uniform(-8, 40), generator.uniform(-1, 5), 10 ** generator.uniform(-5, 1.5)])
        epsilon = max(0.0, mu * (tail + mu / 2))
        exact = _exact_log_delta(mu, epsilon)
        assert abs(float(gdp_log_delta(mu, epsilon) - exact)) <= log_delta_error(float(exact)), (mu, epsilon)


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


def test_stated_error_of_the_trade_off_holds_down_to_tiny_rates():
    generator = random.Random(4)
    for _ in range(200):
        mu, alpha = 10 ** generator.uniform(-4, 1.2), generator.choice([10 ** generator.uniform(-300, 0), generator.uniform(0.01, 0.99)])
        with mpmath.workdps(400):
            quantile = mpmath.findroot(lambda x, a=alpha: mpmath.log(mpmath.ncdf(x)) - mpmath.log(a), float(special.ndtri(alpha)))
            exact = mpmath.ncdf(-quantile - mu)
            error = abs(float(gdp_trade_off(mu, alpha) / exact - 1)) if exact > 1e-300 else 0.0
        assert error <= trade_off_error(mu, alpha), (mu, alpha)


def test_published_trade_off_is_within_1e_12_at_ordinary_rates():
    assert max(trade_off_error(mu, alpha) for mu in (0.1, 1.0, 5.0) for alpha in (1e-6, 0.01, 0.5, 0.99)) < 1e-12
