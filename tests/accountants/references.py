r"""Answers computed apart from the engine, for its tests: no bounds, other nodes and other arithmetic.

``log_delta`` is an inverse Laplace transform in 64 bits of mantissa, on lines of its own choice, refined until it stands still.
``convolved_delta`` is an integral over outcomes, in as many digits as one likes, of one or two releases with a whole Gaussian release.
``ExactMoment`` is one release's moment function at 30 digits.
"""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np

from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.pairs import Pair

Real, Complex = np.longdouble, np.clongdouble
IMAGINARY = Complex(1j)
PI = Real("3.14159265358979323846264338327950288")
ROOT_TWO_PI = np.sqrt(2 * PI)


class Unsettled(Exception):
    """The refinement doesn't stand still."""


def poisson(probability, shift, family=GAUSSIAN):
    return Pair(family, Mixture((1.0 - probability, probability), (0.0, shift)), Mixture((1.0,), (0.0,)))


def whole(shift, family=GAUSSIAN):
    return Pair(family, Mixture((1.0,), (shift,)), Mixture((1.0,), (0.0,)))


def replaced(probability, shift):
    both = (1.0 - probability, probability)
    return Pair(GAUSSIAN, Mixture(both, (0.0, shift)), Mixture(both[::-1], (-shift, 0.0)))


def group(probability, shift, size):
    weights = [math.comb(size, j) * probability**j * (1.0 - probability) ** (size - j) for j in range(size + 1)]
    return Pair(GAUSSIAN, Mixture(tuple(weights), tuple(j * shift for j in range(size + 1))), Mixture((1.0,), (0.0,)))


def reverse(pair):
    def mirror(mixture):
        return Mixture(mixture.weights[::-1], tuple(-shift for shift in mixture.shifts[::-1]))

    return Pair(pair.family, mirror(pair.lower), mirror(pair.upper))


def _weights(mixture, number):
    """The weight at 0 stands for 1 minus the others."""
    base = min(range(len(mixture.shifts)), key=lambda j: abs(mixture.shifts[j]))
    weights = [number(w) for w in mixture.weights]
    weights[base] = 1 - sum(weights[:base] + weights[base + 1 :], number(0))
    return weights


# -- 64 bits -------------------------------------------------------------------------------------------------------------------------


def _log1p(z):
    modulus = np.abs(1 + z)
    square = z.real * (2 + z.real) + z.imag * z.imag
    near = np.log1p(np.maximum(square, Real(-0.5))) / 2
    return np.where(square > -0.5, near, np.log(np.maximum(modulus, Real(1e-300)))) + IMAGINARY * np.arctan2(z.imag, 1 + z.real)


def _expm1(z):
    grown, half = np.expm1(z.real), np.sin(z.imag / 2)
    return grown - 2 * (grown + 1) * half * half + IMAGINARY * (grown + 1) * np.sin(z.imag)


class _Sum:
    """M - 1 of one pair at a given tilt, as a sum over nodes."""

    def __init__(self, pair, tilt, highest):
        if pair.family is LAPLACE:
            self._log_weight, self._loss = _laplace_nodes(pair, tilt)
        else:
            self._log_weight, self._loss = _gaussian_nodes(pair, tilt, highest)

    def minus_one(self, s):
        out = np.empty(s.shape, dtype=Complex)
        rows = max(1, 200_000 // self._loss.size)
        for i in range(0, s.size, rows):
            moved = np.multiply.outer(s[i : i + rows], self._loss)
            if moved.real.max() < 100:
                out[i : i + rows] = _expm1(moved) @ np.exp(self._log_weight)
            else:
                out[i : i + rows] = (np.exp(moved + self._log_weight) - np.exp(self._log_weight)).sum(axis=1)
        return out


def _gaussian_nodes(pair, tilt, highest):
    spans = [m.shifts[-1] - m.shifts[0] for m in (pair.upper, pair.lower)]
    y = min(1.2, 0.5 / max(*spans, 1e-9), math.sqrt(8.0 / (tilt + 1.0)) / max(spans[1], 1e-9))
    step = Real(2 * math.pi * y / (48 + 2 * y * y - tilt * math.log(math.cos(spans[1] * y))))
    top = min((tilt + 1.0) * pair.upper.shifts[-1] - tilt * pair.lower.shifts[0] + 13.0, highest)
    z = Real(-13.0) + step * np.arange(int((top + 13.0) / float(step)) + 1, dtype=Real) + IMAGINARY * Real(y)
    logs = []
    for mixture in (pair.upper, pair.lower):
        excess = sum(w * _expm1(Real(a) * z - Real(a) * Real(a) / 2) for w, a in zip(_weights(mixture, Real), mixture.shifts, strict=True))
        logs.append(_log1p(excess + 0 * z))
    log_weight = logs[0] - z * z / 2 + np.log(step / ROOT_TWO_PI)
    loss = logs[0] - logs[1]
    size = np.maximum(log_weight.real, log_weight.real + Real(tilt) * loss.real)
    kept = size > size.max() - 60
    return log_weight[kept], loss[kept]


def _laplace_nodes(pair, tilt):
    """Gauss and Legendre points between shifts, and the two atoms."""
    edges = sorted({*pair.upper.shifts, *pair.lower.shifts})
    positions, weights = np.polynomial.legendre.leggauss(40)
    x, w = [np.array([Real(edges[0])]), np.array([Real(edges[-1])])], [np.ones(1, dtype=Real)] * 2
    for a, b in pairwise(edges):
        panels = math.ceil((b - a) * (1.0 + tilt))
        half = Real(b - a) / (2 * panels)
        for i in range(panels):
            x.append(Real(a) + half * (2 * i + 1) + half * positions.astype(Real))
            w.append(half * weights.astype(Real))
    x, w = np.concatenate(x), np.concatenate(w)
    densities = [
        sum(v * np.exp(-np.abs(x - Real(a))) for v, a in zip(_weights(m, Real), m.shifts, strict=True)) / 2
        for m in (pair.upper, pair.lower)
    ]
    return np.log(w * densities[0]) + 0 * IMAGINARY, np.log(densities[0] / densities[1]) + 0 * IMAGINARY


def _log_moments(parts, gaussian, s, highest):
    total = s * (s + 1) * Real(gaussian)
    for pair, count in parts:
        total = total + count * _log1p(_Sum(pair, float(s[0].real), highest).minus_one(s))
    return total


def _sides(composition):
    """(parts, half the sum of mu^2 of whole Gaussian releases)."""
    gaussian = math.fsum(
        0.5 * n * (p.upper.shifts[0] - p.lower.shifts[0]) ** 2 for p, n in composition if p.is_whole and p.family is GAUSSIAN
    )
    return [(p, n) for p, n in composition if not (p.is_whole and p.family is GAUSSIAN)], gaussian


def one_sided_log_delta(composition, epsilon, highest=math.inf):
    """log delta(epsilon) in the direction given, for ((pair, count), ...).

    Outcomes above ``highest`` are left out: where they are far less probable than delta they only disturb.
    """
    parts, gaussian = _sides(composition)

    def height(tilt):
        s = np.array([Complex(tilt)])
        return float(_log_moments(parts, gaussian, s, highest)[0].real) - tilt * epsilon - math.log(tilt * (1.0 + tilt))

    tilt = _least(height)
    previous, period = math.inf, (60.0 - height(tilt)) / tilt
    for _ in range(8):
        value = _trapezoid(parts, gaussian, epsilon, tilt, period, highest)
        if abs(value - previous) < 1e-13 * max(1.0, abs(value)):
            return value
        previous, period = value, 1.7 * period
    raise Unsettled


def _least(height):
    """Golden section for the least height over log tilt."""
    grid = [10.0 ** (0.5 * k) for k in range(-8, 13)]
    values = []
    for tilt in grid:
        values.append(height(tilt))
        if len(values) > 2 and values[-1] > values[-2] + 50.0:
            break
    best = int(np.argmin(values))
    low, high = math.log(grid[max(best - 1, 0)]), math.log(grid[min(best + 1, len(grid) - 1)])
    for _ in range(12):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if height(math.exp(a)) < height(math.exp(b)) else (a, high)
    return math.exp(0.5 * (low + high))


def _trapezoid(parts, gaussian, epsilon, tilt, period, highest):
    step = 2 * PI / Real(period)
    total, start, size, peak = Real(0), 0, 64, None
    while True:
        s = Real(tilt) + IMAGINARY * step * np.arange(start, start + size, dtype=Real)
        exponent = _log_moments(parts, gaussian, s, highest) - s * Real(epsilon) - np.log(s) - np.log(1 + s)
        if peak is None:
            peak = exponent[0].real
        values = np.exp(exponent - peak)
        if start == 0:
            values[0] /= 2
        total += values.real.sum()
        if np.abs(values[-20:]).max() < Real(1e-21) * abs(total):
            return float(np.log(total * step / PI) + peak)
        start, size = start + size, 2 * size
        if start > 200_000:
            raise Unsettled


def log_delta(composition, epsilon, highest=math.inf):
    """log delta(epsilon), the larger of both directions."""
    reversed_ = [(reverse(pair), count) for pair, count in composition]
    found = one_sided_log_delta(composition, epsilon, highest)
    return found if _is_below(reversed_, epsilon, highest, found) else max(found, one_sided_log_delta(reversed_, epsilon, highest))


def _is_below(composition, epsilon, highest, target):
    """Whether Chernoff's bound, delta <= M(t) e^{-t epsilon}, says so."""
    parts, gaussian = _sides(composition)
    for tilt in (1.0, 3.0, 10.0, 30.0):
        if float(_log_moments(parts, gaussian, np.array([Complex(tilt)]), highest)[0].real) - tilt * epsilon < target:
            return True
    return False


# -- many digits ---------------------------------------------------------------------------------------------------------------------


def gaussian_delta(mu, epsilon):
    """delta of a whole Gaussian release, in the current precision, for epsilon of any sign."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def convolved_delta(pair, mu, epsilon):
    """delta of one release of the pair with one whole Gaussian release, in the direction given: E_P delta_mu(epsilon - L)."""
    shifts = sorted({*pair.upper.shifts, *pair.lower.shifts})

    def at(x):
        p, q = (_density(m, pair.family, x) for m in (pair.upper, pair.lower))
        return p, mpmath.log(p / q)

    def integrand(x):
        p, loss = at(x)
        return p * gaussian_delta(mu, epsilon - loss)

    if pair.family is LAPLACE:
        # Outside all shifts the loss is constant, and the mass there is the density at the end.
        total = mpmath.fsum(integrand(mpmath.mpf(end)) for end in (shifts[0], shifts[-1]))
        return total + mpmath.quad(integrand, _points(shifts[0], shifts[-1], shifts))
    reach = 40
    return mpmath.quad(integrand, _points(shifts[0] - reach, shifts[-1] + reach, shifts))


def _points(low, high, shifts):
    return sorted({*(mpmath.mpf(low) + (mpmath.mpf(high) - low) * k / 24 for k in range(25)), *map(mpmath.mpf, shifts)})


def _density(mixture, family, x):
    weights = _weights(mixture, mpmath.mpf)
    if family is LAPLACE:
        return mpmath.fsum(w * mpmath.exp(-abs(x - mpmath.mpf(a))) / 2 for w, a in zip(weights, mixture.shifts, strict=True))
    return mpmath.fsum(w * mpmath.npdf(x - mpmath.mpf(a)) for w, a in zip(weights, mixture.shifts, strict=True))


class ExactMoment:
    """M(tilt + iu) - 1 of a pair of Gaussian mixtures at 30 digits, P restricted to x <= end where one is given."""

    def __init__(self, upper, lower, tilt, end=None):
        with mpmath.workdps(30):
            self._tilt = mpmath.mpf(tilt)
            spans = [m.shifts[-1] - m.shifts[0] for m in (upper, lower)]
            y = mpmath.mpf(min(1.0, 0.5 / max(*spans, 1e-9), math.sqrt(8.0 / (tilt + 1.0)) / max(spans[1], 1e-9)))
            points = self._cut_points(end, y) if end is not None else self._points(upper, lower, tilt, spans[1], y)
            self._terms = []
            for z, w in points:
                a, b = (
                    mpmath.fsum(
                        v * mpmath.exp(mpmath.mpf(s) * z - mpmath.mpf(s) ** 2 / 2)
                        for v, s in zip(_weights(m, mpmath.mpf), m.shifts, strict=True)
                    )
                    for m in (upper, lower)
                )
                self._terms.append((w * a * mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi), mpmath.log(a) - mpmath.log(b)))
            tails = (w * mpmath.ncdf(mpmath.mpf(a) - end) for w, a in zip(_weights(upper, mpmath.mpf), upper.shifts, strict=True))
            self._missing = mpmath.fsum(tails) if end is not None else mpmath.mpf(0)

    @staticmethod
    def _points(upper, lower, tilt, span, y):
        step = 2 * mpmath.pi * y / (62 + 2 * y * y - tilt * mpmath.log(mpmath.cos(span * y)))
        low, high = -12, (tilt + 1.0) * upper.shifts[-1] - tilt * lower.shifts[0] + 12
        return [(mpmath.mpc(low + k * step, y), step) for k in range(int((high - low) / step) + 1)]

    @staticmethod
    def _cut_points(end, y):
        """Gauss and Legendre on a path above the axis, and down at the cut."""
        rule = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp).calc_nodes(4, mpmath.mp.prec)
        corners = [mpmath.mpc(-12 + (end + 12) * mpmath.mpf(k) / 90, y) for k in range(91)]
        corners += [mpmath.mpc(end, y * (8 - k) / 8) for k in range(1, 9)]
        return [((a + b) / 2 + (b - a) / 2 * x, (b - a) / 2 * w) for a, b in pairwise(corners) for x, w in rule]

    def log_delta(self, count, epsilon, period):
        """log delta(epsilon) of ``count`` such releases, in this direction, from points 2 pi / period apart on the line."""
        with mpmath.workdps(30):
            total, k, step = mpmath.mpf(0), 0, 2 * mpmath.pi / period
            while True:
                s = mpmath.mpc(self._tilt, k * step)
                term = mpmath.exp(count * mpmath.log(1 + self.minus_one(k * step)) - s * epsilon) / (s * (s + 1))
                total += term.real / (1 if k else 2)
                if abs(term) < mpmath.mpf(10) ** -20 * abs(total):
                    return mpmath.log(total * step / mpmath.pi)
                k += 1

    def minus_one(self, height):
        with mpmath.workdps(30):
            s = mpmath.mpc(self._tilt, height)
            return mpmath.fsum(w * mpmath.expm1(s * loss) for w, loss in self._terms) - self._missing
