r"""What noise reveals about the size of a lot when a noisy sum is divided by the realised number of records. proofs/realised_lot.md.

With all gradients zero, a lot of n records gives N(0, (c/n)^2) on each of 2p real coordinates, and one more record N(0, (c/(n+1))^2): two
laws of different scale, which become easier to distinguish as p grows, whatever c is. In x = |y|^2 / (2 (c/n)^2) both are Gamma laws of
shape p, with the rates 1 and (1 + 1/n)^2 = 1 + k, so the hockey-stick divergences are integrals of one positive function each, without
cancellation:

    H(n, n+1) = int_t^inf g_1(x) (1 - e^{-k (x - t)}) dx,           t = (2p log(1 + 1/n) + eps) / k,
    H(n+1, n) = int_0^u g_{1+k}(x) (1 - e^{-k (u - x)}) dx,         u = (2p log(1 + 1/n) - eps) / k.

Errata Z11.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

Floats = NDArray[np.float64]

LARGEST_DIMENSION = 10**12
LARGEST_LOT = 10**9

_DROP = 45.0
"""The integration covers the integrand above e^-45 of its peak: it is log-concave, so less than e^-43 of its integral is elsewhere."""
_PANELS = 24
_ERROR = 1e-11
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SERIES_BELOW = 0.02
_SERIES = tuple((-1.0) ** n / n for n in range(12, 1, -1))
_FAR = 1e10
_ABOVE_MINUS_ONE = math.nextafter(-1.0, 0.0)
LARGEST_EPSILON = 1e50


def realised_lot_log_delta(lot: int, dimension: int, epsilon: float) -> float:
    r"""Upper bound on log delta(epsilon) of the pair "lot" and "lot + 1 records", all gradients zero, each sum divided by its own size.

    It says nothing about other gradients: the release as a whole has at least this delta. Rounding: proofs/realised_lot.md.

    Args:
      lot: records in the smaller lot; 1 to 10^9.
      dimension: number p of complex parameters; 1 to 10^12.
      epsilon: 0 to 10^50.
    Raises:
      InvalidParameter: an argument out of its range.

    >>> round(math.exp(realised_lot_log_delta(64, 5000, 1.0)), 3)
    0.577
    """
    if not 1 <= lot <= LARGEST_LOT:
        raise InvalidParameter("lot", f"in [1, {LARGEST_LOT}]", lot)
    if not 1 <= dimension <= LARGEST_DIMENSION:
        raise InvalidParameter("dimension", f"in [1, {LARGEST_DIMENSION}]", dimension)
    if not 0.0 <= epsilon <= LARGEST_EPSILON:
        raise InvalidParameter("epsilon", f"in [0, {LARGEST_EPSILON!r}]", epsilon)
    step = 1.0 / lot
    k = step * (2.0 + step)
    # 2 log(1 + 1/n) - k, which cancels almost entirely.
    gap = -2.0 * _phi(step) - step * step
    share = epsilon / dimension
    from_smaller = _log_integral(dimension, (gap + share) / k, k, 1.0)
    from_larger = _log_integral(dimension, (gap - share) / k + 2.0 * math.log1p(step) - share, k / (1.0 + k), -1.0)
    return min(0.0, max(from_smaller, from_larger))


def _log_integral(shape: float, edge: float, rate: float, sign: float) -> float:
    """log of the integral of the Gamma(shape, 1) density g times 1 - e^{-rate |x - x_0|} over sign (x - x_0) > 0, rounded up.

    x = shape (1 + w) and x_0 = shape (1 + edge): g(x) dx = sqrt(shape / 2 pi) e^{-shape phi(w) - c} dw / (1 + w), phi(w) = w - log(1 + w),
    c what Stirling's formula lacks. Loader 2000.
    """
    longest = math.inf if sign > 0.0 else 1.0 + edge
    if not longest > 0.0:
        return -math.inf
    pull = rate * shape
    if sign * edge * shape > _FAR:
        # Chernoff's bound on the tail: here 1 + w loses the decisive digits, and log delta is below -10^7 or nearly so.
        return -shape * _phi(edge) * (1.0 - 1e-14)

    def log_height(y: float) -> float:
        w = max(edge + sign * y, _ABOVE_MINUS_ONE)
        return -shape * _phi(w) - math.log1p(w) + math.log(-math.expm1(-pull * y))

    def slope(y: float) -> float:
        w = max(edge + sign * y, _ABOVE_MINUS_ONE)
        return -sign * (shape * w + 1.0) / (1.0 + w) + (pull / math.expm1(pull * y) if pull * y < 700.0 else 0.0)

    unit = min(1.0 / pull, 1.0 / math.sqrt(shape))
    top = _largest(lambda y: slope(y) > 0.0, 0.0, unit, longest)
    peak = log_height(top) if 0.0 < top < longest else log_height(0.5 * min(unit, longest))
    right = _largest(lambda y: log_height(y) > peak - _DROP, top, max(unit, top), longest)
    left = top - _largest(lambda y: log_height(top - y) > peak - _DROP, 0.0, unit, top) if top > 0.0 else 0.0
    edges = np.linspace(left, right, _PANELS + 1)
    half = 0.5 * (edges[1] - edges[0])
    y = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES).ravel()
    w = np.maximum(edge + sign * y, _ABOVE_MINUS_ONE)
    logs = -shape * _phis(w) - np.log1p(w) + np.log(-np.expm1(-pull * y)) + np.tile(np.log(half * _WEIGHTS), _PANELS)
    log_value = float(np.logaddexp.reduce(logs)) + 0.5 * math.log(shape / (2.0 * math.pi)) - _stirling_error(shape)
    return log_value + _ERROR + 1e-15 * (abs(log_value) + math.sqrt(shape) + shape * abs(edge))


def _largest(holds: Callable[[float], bool], start: float, unit: float, end: float) -> float:
    """The largest y in [start, end) up to which ``holds``, which holds from ``start`` on or nowhere, by doubling and bisection."""
    low, reach = start, unit
    while start + reach < end and holds(start + reach):
        low, reach = start + reach, 2.0 * reach
    high = min(start + reach, end)
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _phi(w: float) -> float:
    """w - log(1 + w) for w > -1."""
    if abs(w) >= _SERIES_BELOW:
        return w - math.log1p(w)
    value = 0.0
    for coefficient in _SERIES:
        value = value * w + coefficient
    return w * w * value


def _phis(w: Floats) -> Floats:
    """``_phi`` element by element."""
    near = np.clip(w, -_SERIES_BELOW, _SERIES_BELOW)
    return np.where(near == w, near * near * np.polyval(_SERIES, near), w - np.log1p(w))


def _stirling_error(shape: float) -> float:
    """log Gamma(shape) less (shape - 1/2) log shape - shape + log(2 pi) / 2."""
    if shape < 20.0:
        return float(scipy.special.gammaln(shape)) - (shape - 0.5) * math.log(shape) + shape - 0.5 * math.log(2.0 * math.pi)
    square = 1.0 / (shape * shape)
    return (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / shape
