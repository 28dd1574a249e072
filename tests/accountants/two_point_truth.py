"""Randomized response and local releases in exact terms: sums over all outcomes, in arithmetic of as many digits as it takes."""

from __future__ import annotations

import mpmath

from zetadp.accountants import Release
from zetadp.mechanisms import DuchiLinf, Gaussian, LocalLaplace, Sensitivity


def sensitivity(l1, **others):
    return Sensitivity(l1=l1, adjacency="replace_one", unit="record", **others)


def response(epsilon, dimension=1):
    """Randomized response itself where the dimension is odd."""
    mechanism = DuchiLinf(lower=0.0, upper=1.0, dimension=dimension, epsilon=epsilon, sensitivity=sensitivity(float(dimension)))
    return Release(mechanism=mechanism)


def local_laplace(epsilon, dimension=2):
    scale = dimension / epsilon
    noise = LocalLaplace(lower=0.0, upper=1.0, dimension=dimension, scale=scale, sensitivity=sensitivity(float(dimension)))
    return Release(mechanism=noise)


def gaussian(mu):
    return Release(mechanism=Gaussian(std=1.0 / mu, sensitivity=Sensitivity(l2=1.0, adjacency="replace_one", unit="record")))


def response_delta(epsilon):
    """H at e^t of randomized response, for any real t."""
    e = mpmath.mpf(epsilon)
    p = 1 / (1 + mpmath.exp(-e))
    return lambda t: sum(max(mpmath.mpf(0), a - mpmath.exp(t) * b) for a, b in ((p, 1 - p), (1 - p, p)))


def laplace_delta(epsilon):
    """H at e^t of Laplace noise, for any real t."""
    e = mpmath.mpf(epsilon)

    def delta(t):
        if t >= e:
            return mpmath.mpf(0)
        return 1 - mpmath.exp((t - e) / 2) if t >= -e else 1 - mpmath.exp(t)

    return delta


def gaussian_delta(mu):
    """H at e^t of N(mu, 1) against N(0, 1), for any real t."""
    m = mpmath.mpf(mu)
    return lambda t: mpmath.ncdf(m / 2 - t / m) - mpmath.exp(t) * mpmath.ncdf(-m / 2 - t / m)


def shown(delta, probability):
    """The same, shown with a probability."""
    q = mpmath.mpf(probability)
    return lambda t: (1 - q) * max(mpmath.mpf(0), 1 - mpmath.exp(t)) + q * delta(t)


def beside_responses(delta, epsilon, count):
    """What ``delta`` becomes when composed with ``count`` randomized responses: a sum over how many of them were likely ones."""
    e = mpmath.mpf(epsilon)
    p = 1 / (1 + mpmath.exp(-e))
    weights = [mpmath.binomial(count, j) * p**j * (1 - p) ** (count - j) for j in range(count + 1)]
    return lambda t: mpmath.fsum(weight * delta(t - (2 * j - count) * e) for j, weight in enumerate(weights))


def repeated_response_delta(epsilon, count, t):
    """The binomial sum, from its first positive term on, until nothing is added any more."""
    e, t = mpmath.mpf(epsilon), mpmath.mpf(t)
    p = 1 / (1 + mpmath.exp(-e))
    first = int(mpmath.floor((count + t / e) / 2)) + 1
    weight, total, odds = mpmath.binomial(count, first) * p**first * (1 - p) ** (count - first), mpmath.mpf(0), mpmath.exp(e)
    for j in range(first, count + 1):
        term = weight * (1 - mpmath.exp(t - (2 * j - count) * e))
        total += term
        if j > count * p and term < total * mpmath.mpf(10) ** (-mpmath.mp.dps - 5):
            break
        weight *= mpmath.mpf(count - j) / (j + 1) * odds
    return total


def repeated_shown_delta(epsilon, count, probability, t):
    """Each release shown with this probability: the mean, over how many were shown, of that many responses' delta."""
    s = mpmath.mpf(probability)
    first = int(mpmath.floor(mpmath.mpf(t) / mpmath.mpf(epsilon))) + 1
    return mpmath.fsum(
        mpmath.binomial(count, m) * s**m * (1 - s) ** (count - m) * repeated_response_delta(epsilon, m, t) for m in range(first, count + 1)
    )
