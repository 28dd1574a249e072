r"""The true distribution of the factor b by which noise on an encoder's input multiplies the output of a hidden unit.

A unit with noiseless output h = sigmoid(w . x) gives sigmoid(w . (x + n)) = b h for the input x + n. With n_i independent N(0, sigma^2),
D = w . n is N(0, effective_std^2), effective_std = sigma |w|_2, and

    b = e^D / (1 + h (e^D - 1)) = 1 / ((1 - h) e^-D + h),       0 < b < 1/h,

increasing in D, so every question about b is one about a normal variable: with u(x) = ln(x (1 - h) / (1 - h x)),

    Pr[b <= x] = Phi(u(x) / effective_std),                      b has median 1 whatever h and sigma are.

None of this earns a privacy guarantee (proofs/environmental_noise.md). Source: the SPOF paper, Appendices E and F; errata S19 to S24.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_LOG_HALF = -math.log(2.0)
_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SPLIT = 134217729.0
"""2^27 + 1: splits a float64 into two halves whose products are exact."""

_WIDE = 3.0
"""From this deviation of D on, moments are integrals against the slope of b (width 1) rather than against the density of D."""
_STEP = 0.45
"""Step of the trapezoidal rule over D. The integrands are analytic within |Im D| < pi, so its error is e^{-2 pi^2 / step} = e^-43."""
_TAIL = 45.0
"""Cut-off for slopes that fall like e^{-|D|}."""
_DEVIATIONS = 9.0


def effective_std(noise_std: float, weight_norm: float) -> float:
    """Standard deviation of D = w . n: sigma |w|_2 (its variance is sigma^2 |w|_2^2: errata S23).

    >>> effective_std(0.5, 4.0)
    2.0
    """
    return noise_std * weight_norm


def log_multiplier(exponent: float, h: float) -> float:
    r"""ln b at D = ``exponent``, for h in [0, 1). Both forms add positive terms only.

    >>> log_multiplier(0.0, 0.3), log_multiplier(-1e50, 0.3)
    (0.0, -1e+50)
    """
    if h == 0.0:
        return exponent
    if exponent <= 0.0:
        return exponent - _log_mixture(1.0 - h, h, exponent)
    return -_log_mixture(h, 1.0 - h, -exponent)


def _log_mixture(rest: float, weight: float, exponent: float) -> float:
    """ln(rest + weight e^exponent) for exponent <= 0 and two weights that add to 1; each as given, as 1 - 1e-50 is 1."""
    change = weight * math.expm1(exponent)
    return math.log1p(change) if change > -0.5 else math.log(rest + weight * math.exp(exponent))


def log_odds_shift(x: float, h: float) -> float:
    r"""The D that gives b = x > 0: ln(x (1 - h) / (1 - h x)), infinite from x = 1/h on.

    1 - h x is computed exactly, and near x = 1 the quotient is 1 + (x - 1) / (1 - h x): no digits are lost at either end.

    >>> log_odds_shift(1.0, 0.7), log_odds_shift(2.0, 0.5), round(math.exp(log_odds_shift(0.5, 0.5)), 15)
    (0.0, inf, 0.333333333333333)
    """
    room = _room(x, h)
    return _shift(x, h, room) if room > 0.0 else math.inf


def _shift(x: float, h: float, room: float) -> float:
    excess = (x - 1.0) / room
    return math.log1p(excess) if abs(excess) < 0.5 else math.log(x) + math.log((1.0 - h) / room)


def _room(x: float, h: float) -> float:
    """1 - h x without loss if h x is near 1: the product's rounding error is computed exactly. Dekker 1971."""
    product = h * x
    big = h * _SPLIT
    h_high = big - (big - h)
    big = x * _SPLIT
    x_high = big - (big - x)
    h_low, x_low = h - h_high, x - x_high
    error = ((h_high * x_high - product) + h_high * x_low + h_low * x_high) + h_low * x_low
    return (1.0 - product) - error


def log_normal_cdf(z: float) -> float:
    """ln Phi(z), accurate even if Phi(z) is near 1."""
    return float(scipy.special.log_ndtr(z)) if z < 0.0 else math.log1p(-0.5 * math.erfc(z * _SQRT_HALF))


def log_cdf(x: float, h: float, std: float) -> float:
    r"""ln Pr[b <= x] for x > 0; ``std`` is ``effective_std``, and 0 leaves b = 1.

    >>> round(math.exp(log_cdf(0.5, 0.5, 1.0)), 12), log_cdf(0.999, 0.5, 0.0), log_cdf(1.0, 0.5, 0.0)
    (0.135968607641, -inf, 0.0)
    """
    if std == 0.0:
        return 0.0 if x >= 1.0 else -math.inf
    return log_normal_cdf(log_odds_shift(x, h) / std)


def log_pdf(x: float, h: float, std: float) -> float:
    r"""ln of the density of b at x > 0, for std > 0: phi(u / std) / (std x (1 - h x)); -inf outside the support (0, 1/h).

    >>> round(math.exp(log_pdf(0.5, 0.5, 1.0)), 12), log_pdf(2.0, 0.5, 1.0)
    (0.58182604912, -inf)
    """
    room = _room(x, h)
    if room <= 0.0:
        return -math.inf
    return -0.5 * (_shift(x, h, room) / std) ** 2 - _LOG_SQRT_2_PI - math.log(std) - math.log(x) - math.log(room)


def log_quantile(probability: float, h: float, std: float) -> float:
    """ln of the x with Pr[b <= x] = ``probability`` in (0, 1).

    >>> log_quantile(0.5, 0.3, 1e50)
    0.0
    """
    return log_multiplier(std * float(scipy.special.ndtri(probability)), h)


class Moments(NamedTuple):
    """Logarithms of the mean and of the variance of b; the variance of a constant is 0, its logarithm -inf."""

    log_mean: float
    log_variance: float


def moments(h: float, std: float) -> Moments:
    r"""Mean and variance of b, to about 13 digits; in closed form if b is constant (std = 0) or lognormal (h = 0).

    For h > 1/2 it uses 1 - b h, which has the law of b h with 1 - h instead of h: Var b_h = ((1 - h) / h)^2 Var b_{1-h}.

    >>> [round(math.exp(value), 12) for value in moments(0.5, 2.0)], moments(0.9, 0.0)
    ([1.0, 0.394294490398], Moments(log_mean=0.0, log_variance=-inf))
    """
    if std == 0.0:
        return Moments(0.0, -math.inf)
    square = std * std
    if h == 0.0:
        # ln(e^v (e^v - 1)) with v the variance of D.
        return Moments(
            0.5 * square, square + math.log(math.expm1(square)) if square < 1.0 else 2.0 * square + math.log1p(-math.exp(-square))
        )
    if h > 0.5:
        other, variance = _moments(1.0 - h, std)
        odds = (1.0 - h) / h
        return Moments(math.log1p(-odds * other), 2.0 * math.log(odds) + math.log(variance))
    gain, variance = _moments(h, std)
    return Moments(math.log1p(gain), math.log(variance))


def _moments(h: float, std: float) -> tuple[float, float]:
    """E[b - 1] and Var b for h in (0, 1/2], std > 0."""
    if std <= _WIDE:
        step = min(0.5, _STEP / std)
        z: Floats = step * np.arange(-math.ceil(_DEVIATIONS / step), math.ceil((_DEVIATIONS + 2.0 * std) / step) + 1, dtype=np.float64)
        weight = (step / math.sqrt(2.0 * math.pi)) * np.exp(-0.5 * z * z)
        # b - 1, whose mean square doesn't cancel against the square of its mean: that is of the order of std^4 for a small std.
        change = (h - 1.0) * np.expm1(-std * z) * _multipliers(std * z, h)
        gain = float(weight @ change)
        return gain, float(weight @ (change * change)) - gain * gain
    top = math.log((1.0 - h) / h) + _TAIL
    d: Floats = np.arange(-_TAIL, top + _STEP, _STEP, dtype=np.float64)
    b = _multipliers(d, h)
    # E g(b) = int g'(b) b'(d) Pr[D > d] dd with g(0) = 0, and b'(d) = b (1 - h b) = (1 - h) e^-d b^2.
    mass: Floats = _STEP * scipy.special.ndtr(-d / std) * (1.0 - h) * np.exp(-d) * b * b
    mean = float(mass.sum())
    return mean - 1.0, float(2.0 * (mass @ b)) - mean * mean


def _multipliers(exponents: Floats, h: float) -> Floats:
    """b at each D, for |D| up to 700."""
    return 1.0 / ((1.0 - h) * np.exp(-exponents) + h)


def log_probability_all_below_one(units: int, samples: int, h: float, std: float) -> float:
    r"""ln Pr[b_max < 1] for b_max = units times the largest of ``samples`` independent b of one law: samples ln F(1 / units).

    Never above -samples ln 2, whatever h and std are: F(1 / units) <= F(1) = 1/2. Errata S24.

    >>> round(log_probability_all_below_one(7, 100, 0.0, 1.0), 6), log_probability_all_below_one(1, 3, 0.5, 0.0)
    (-365.611156, -inf)
    """
    if std == 0.0:
        return -math.inf
    # u(1 / units), with 1 / units never rounded.
    shift = -math.log1p((units - 1) / (1.0 - h))
    return samples * (_LOG_HALF if shift == 0.0 else log_normal_cdf(shift / std))


class ProbabilityBounds(NamedTuple):
    """Natural logarithms of a lower and an upper bound on a probability."""

    log_lower: float
    log_upper: float


def log_probability_sum_below_one(units: int, h: float, std: float) -> ProbabilityBounds:
    r"""Bounds on Pr[b_1 + ... + b_units < 1] for independent b_r of one law; equal (exact) for one unit and for std = 0.

    The sum is below 1 only if every b_r is, each with probability 1/2, and it is if every b_r is below 1 / units. Without independence
    the upper bound 1/2 of a single unit remains.

    >>> [round(math.exp(bound), 6) for bound in log_probability_sum_below_one(2, 0.5, 50.0)]
    [0.241312, 0.25]
    """
    if std == 0.0:
        return ProbabilityBounds(-math.inf, -math.inf)
    return ProbabilityBounds(log_probability_all_below_one(units, units, h, std), units * _LOG_HALF)


def coefficient_sensitivity(features: int, b: float) -> float:
    r"""l1 sensitivity of the published coefficients b (1/2 - x_i), b^2 (x_i/2 - 1/4), replace-one, x in [0, 1]^features: n (b + b^2/2).

    For a public constant b only. With the published b (instead of b^2) on the second coefficient it is 1.5 n b. Errata S19, S20.

    >>> coefficient_sensitivity(14, 7.0)
    441.0
    """
    return features * (b + 0.5 * b * b)


def log_ratio_of_scaled_releases(q: float, b: float, other: float, scale: float) -> float:
    r"""ln of the density at q of b Lap(scale) over that of other Lap(scale): |q| (1/other - 1/b) / scale + ln(other / b).

    Unbounded in q for b != other, so a noise scale that depends on the data gives no pure differential privacy at any level (errata S21).

    >>> round(log_ratio_of_scaled_releases(1000.0, 0.5, 1.0, 21.0), 4)
    -46.9259
    """
    return abs(q) * (1.0 / other - 1.0 / b) / scale + math.log(other / b)
