r"""Quadratures in x for mixtures of noise on the line: of the law of their loss, and of the moments of their ratio.

With P = f A and Q = f B, f the noise density, A = sum_j p_j e^{z_j} and z_j(x) = log f(x - a_j) / f(x), moments are computed from A - 1 and
B - 1, sums of p_j (e^{z_j} - 1), so that nothing is lost where the pair's halves hardly differ.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from zetadp.accountants.densities.base import Floats, LossLaw, RatioNodes
from zetadp.accountants.densities.curve import log_ratio
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.noise import Noise

MOST_NODES = 400_000
"""Beyond this many quadrature nodes an order isn't worth its time and memory; it is left out, which only makes a bound larger."""

CLOSE = 0.1
"""Log ratios up to which R - 1 is kept to its last digits: moments take series of less."""

_PANEL_NODES = 24
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def losses(noise: Noise, upper: Mixture, lower: Mixture) -> LossLaw:
    """The losses of mixtures of this noise under P, for estimates."""
    x, weights = _loss_nodes(noise, upper, lower)
    found = log_ratio(noise, upper, lower, x)[0]
    with np.errstate(divide="ignore"):
        logs = np.log(weights) + _log_density(noise, upper, x)
    return LossLaw(found, logs, _atoms(noise, upper, lower))


def _loss_nodes(noise: Noise, upper: Mixture, lower: Mixture) -> tuple[Floats, Floats]:
    """Gauss-Legendre panels in x that break at every shift."""
    shifts = sorted({*upper.shifts, *lower.shifts})
    width = noise.panel_width(shifts[-1] - shifts[0])
    edges = [shifts[0] - noise.reach]
    for stop in (*shifts, shifts[-1] + noise.reach):
        number = min(max(1, math.ceil((stop - edges[-1]) / width)), 400)
        edges += list(np.linspace(edges[-1], stop, number + 1)[1:])
    points, weights = _rule()
    ends = np.asarray(edges)
    half = 0.5 * np.diff(ends)
    x = (0.5 * (ends[1:] + ends[:-1]))[:, None] + half[:, None] * points
    return x.ravel(), (half[:, None] * weights).ravel()


@lru_cache(maxsize=1)
def _rule() -> tuple[Floats, Floats]:
    points, weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
    return np.asarray(points), np.asarray(weights)


def _log_density(noise: Noise, mixture: Mixture, x: Floats) -> Floats:
    parts = [noise.log_density(x - shift) + math.log(weight) for weight, shift in zip(mixture.weights, mixture.shifts, strict=True)]
    return np.logaddexp.reduce(parts, axis=0)


def _atoms(noise: Noise, upper: Mixture, lower: Mixture) -> tuple[float, ...]:
    ends = noise.plateaus(upper, lower)
    if ends is None:
        return ()
    low, high = log_ratio(noise, upper, lower, np.array(ends))[0]
    return float(low), float(high)


def ratio_nodes(noise: Noise, upper: Mixture, lower: Mixture, order: float, *, upper_half: bool) -> RatioNodes | None:
    """Nodes for powers of dP/dQ from 1 - order to order, or None if there would be too many."""
    return nodes_from(noise, upper, lower, order, _crossing(noise, upper, lower) if upper_half else -math.inf)


def nodes_from(noise: Noise, upper: Mixture, lower: Mixture, order: float, start: float) -> RatioNodes | None:
    """The same on the half-line from ``start`` on."""
    nodes = noise.moment_nodes(upper, lower, order, start)
    if nodes is None:
        return None
    x, log_mass = nodes
    log_above, above, weighted_above = _relative(noise, upper, x, log_mass)
    log_below, below, weighted_below = _relative(noise, lower, x, log_mass)
    ratio = log_above - log_below
    close = np.abs(ratio) < CLOSE
    minus_one = np.where(close, (above - below) / np.where(close, 1.0 + below, 1.0), 1.0)
    return RatioNodes(log_mass + log_below, ratio, minus_one, weighted_above - weighted_below)


def _relative(noise: Noise, mixture: Mixture, x: Floats, log_mass: Floats) -> tuple[Floats, Floats, Floats]:
    """(log A, A - 1, mass times A - 1) of a mixture with density f A, at nodes of f with these masses."""
    if mixture.shifts == (0.0,):
        zeros = np.zeros_like(x)
        return zeros, zeros, zeros
    minus_one, weighted, log_far = np.zeros_like(x), np.zeros_like(x), np.full_like(x, -math.inf)
    mass = np.exp(log_mass)
    for weight, shift in zip(mixture.weights, mixture.shifts, strict=True):
        z = noise.moment_relative(x, shift)
        log_far = np.logaddexp(log_far, math.log(weight) + z)
        if shift != 0.0:
            minus_one += weight * np.expm1(np.minimum(z, 700.0))
            weighted += weight * (np.exp(log_mass + z) - mass)
    near = np.abs(minus_one) < 0.5
    return np.where(near, np.log1p(np.where(near, minus_one, 0.0)), log_far), minus_one, weighted


def panels(edges: Floats, density: float) -> tuple[Floats, Floats] | None:
    """(x, log of dx) of the Gauss-Legendre rule with 16 points on every panel, at least ``density`` panels per unit between edges."""
    numbers = np.maximum(np.ceil(np.diff(edges) * density), 1.0)
    if not float(numbers.sum()) * len(_POINTS) <= MOST_NODES:
        return None
    pieces: list[Floats] = [np.linspace(a, b, int(n) + 1)[:-1] for a, b, n in zip(edges, edges[1:], numbers, strict=False)]
    bounds: Floats = np.append(np.concatenate(pieces), edges[-1])
    half, middle = 0.5 * np.diff(bounds)[:, None], 0.5 * (bounds[1:] + bounds[:-1])[:, None]
    return (middle + half * _POINTS).ravel(), np.log(half * _WEIGHTS).ravel()


def _crossing(noise: Noise, upper: Mixture, lower: Mixture) -> float:
    """The point where P begins to exceed Q. Its error hardly matters: (R^k - 1)(R - R^-k) vanishes there to second order."""
    low, high = lower.shifts[0], upper.shifts[-1]
    point, nothing = np.zeros(1), np.zeros(1)
    for _ in range(60):
        point[0] = 0.5 * (low + high)
        above, below = (_relative(noise, mixture, point, nothing)[1][0] for mixture in (upper, lower))
        low, high = (point[0], high) if above <= below else (low, point[0])
    return float(high)


def crossing(noise: Noise, upper: Mixture, lower: Mixture, level: float) -> float:
    """The point where log dP/dQ is about this; as far as tails reach, where it is no such thing there."""
    low, high = lower.shifts[0] - noise.underflow, upper.shifts[-1] + noise.underflow
    for _ in range(60):
        point = 0.5 * (low + high)
        low, high = (point, high) if log_ratio(noise, upper, lower, np.array([point]))[0][0] <= level else (low, point)
    return high
