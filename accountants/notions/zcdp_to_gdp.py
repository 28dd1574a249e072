r"""A mu for every mechanism with rho-zCDP: bounds on the curve of tests, cell by cell, that meet randomised response at their first corner.

For one event of probability p and q, logit p = c - d and -logit q = c + d, rho is at least F(c, d) = (c / d) log(cosh((c + d) / 2) /
cosh((c - d) / 2)), the Renyi divergence of one well chosen order. F rises with c and falls with d, so c is at most c(d), which rises
too; and mu = h(c + d) + h(c - d), h(x) = Phi^-1(1 / (1 + e^-x)), rises with c and falls with d. On a cell d in [d1, d2] therefore
mu <= h(c(d2) + d1) + h(c(d2) - d1). Proof: proofs/notions.md, section 10.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

_FIRST, _LAST, _RATIO = 1e-4, 1e4, 1.05
_NEWTON_STEPS = 12
_ROUNDING = 1e-12
"""Relative allowance for F, h and the quantile function behind it: thousands of their roundings."""
_NEAR = 1e-4
_FAR = 100.0
_TAIL = 1.44

Floats = NDArray[np.float64]


def certified_mu(rho: float, epsilon: float, attained: float) -> float:
    """An upper bound on mu, near ``attained``, which randomised response with this epsilon has."""
    scale = max(1.0, epsilon)
    count = math.ceil(math.log(_LAST / _FIRST) / math.log(_RATIO))
    d = np.concatenate(([0.0], scale * np.geomspace(_FIRST, _LAST, count)))
    with np.errstate(all="ignore"):
        c = _largest(rho, epsilon, d[1:])
        highest = float(np.max(_mu(c, d[:-1])))
    # Beyond the last cell mu <= 1.44 sqrt(rho).
    return max(highest * (1.0 + _ROUNDING), _TAIL * math.sqrt(rho), attained)


def _largest(rho: float, epsilon: float, d: Floats) -> Floats:
    """Upper ends of c(d): Newton's steps in logarithms, raised until F says that they suffice."""
    c, target = np.maximum(epsilon, np.sqrt(rho * d)), math.log(rho)
    for _ in range(_NEWTON_STEPS):
        log_level = np.log(_level(c, d))
        gap = target - log_level
        # F grows at least as c and at most as c^2, but for small corrections.
        c = c * np.exp(gap / np.clip((np.log(_level(c * 1.0001, d)) - log_level) / math.log(1.0001), 0.5, 2.5))
        if float(np.max(np.abs(gap))) < 1e-12:
            break
    c *= 1.0 + _ROUNDING
    while bool(np.any(short := _level(c, d) < rho * (1.0 + 0.25 * _ROUNDING))):
        c = np.where(short, c * 1.001, c)
    return c


def _level(c: Floats, d: Floats) -> Floats:
    """F(c, d); cosh A / cosh B - 1 = 2 sinh((A + B) / 2) sinh((A - B) / 2) / cosh B, by logarithms."""
    between = np.abs(c - d)
    log_excess = 0.5 * (c + d - between) + np.log(-np.expm1(-c)) + np.log(-np.expm1(-d)) - np.log1p(np.exp(-between))
    return c / d * np.logaddexp(0.0, log_excess)


def _mu(c: Floats, d: Floats) -> Floats:
    """h(c + d) + h(c - d), or above it: by h's largest slope where the two nearly cancel."""
    low = d - c
    size = np.minimum(np.abs(low), _FAR)
    log_slope = 0.5 * _quantile(size) ** 2 - size - 2.0 * np.log1p(np.exp(-size)) + 0.5 * math.log(2.0 * math.pi)
    # h'(x) <= 1 / (sqrt(2 x) - 1.18), since h(x) >= sqrt(2 x) - 1.18.
    slope = np.where(low < _FAR, np.exp(log_slope), 1.0 / (np.sqrt(2.0 * low) - 1.18))
    return np.where(c < _NEAR * d, 2.0 * c * slope, _quantile(c + d) - _quantile(low))


def _quantile(x: Floats) -> Floats:
    """h, odd; near 0 by erf, else from the smaller tail."""
    size = np.abs(x)
    near = math.sqrt(2.0) * scipy.special.erfinv(np.tanh(0.5 * size))
    return np.sign(x) * np.where(size < 1.0, near, -scipy.special.ndtri_exp(-np.logaddexp(0.0, size)))
