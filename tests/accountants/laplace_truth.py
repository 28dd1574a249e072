"""Laplace releases in exact terms, from their densities: convolutions of losses one by one, and sums over what happened to each."""

from __future__ import annotations

import math

import mpmath

from tests.accountants.two_point_truth import laplace_delta
from tests.mechanisms.local import local_laplace
from zetadp.accountants import Release


def record(epsilon, dimension):
    """One record of so many coordinates, of this pure epsilon in all."""
    return Release(mechanism=local_laplace(dimension, scale=dimension / epsilon))


def beside_laplace(delta, epsilon):
    """What ``delta`` becomes when composed with one Laplace release: an integral over that release's loss, with kinks where they may be."""
    e = mpmath.mpf(epsilon)

    def composed(t):
        kinks = {-e, e} | {x for x in (t - k * e for k in range(-9, 10)) if -e < x < e}
        between = mpmath.quad(lambda loss: mpmath.exp((loss - e) / 2) / 4 * delta(t - loss), sorted(kinks))
        return delta(t - e) / 2 + mpmath.exp(-e) / 2 * delta(t + e) + between

    return composed


def product_delta(epsilons):
    """H at e^t of the product of Laplace pairs at these distances, multiples of the smallest."""
    delta = laplace_delta(epsilons[0])
    for epsilon in epsilons[1:]:
        delta = beside_laplace(delta, epsilon)
    return delta


def repeated_laplace_delta(epsilon, count, t):
    r"""H at e^t >= 1 of ``count`` Laplace pairs: over how many losses are e (z), -e (c) or between (j), j uniform shares of a tilted law.

    Between, e - L = 2 y with density e^-y / 2 on (0, e): the j of them have 2^-j e^-s times the volume of a cube's slice (Irwin, Hall).
    """
    e, gap = mpmath.mpf(epsilon), (count * mpmath.mpf(epsilon) - mpmath.mpf(t)) / 2
    total = mpmath.mpf(0)
    for c in range(count + 1):
        rest = gap - c * e
        if rest <= 0:
            break
        for j in range(count - c + 1):
            ways = math.factorial(count) // (math.factorial(c) * math.factorial(j) * math.factorial(count - c - j))
            weight = ways * mpmath.mpf(2) ** -count * mpmath.exp(-c * e)
            total += weight * (1 - mpmath.exp(-2 * rest) if j == 0 else _slices(e, j, rest))
    return total


def _slices(e, j, rest):
    """int_0^rest v(s) e^-s (1 - e^{2 (s - rest)}) ds, v(s) the volume of {0 < y_i < e, sum y_i = s}."""

    def volume(s):
        terms = ((-1) ** k * math.comb(j, k) * (s - k * e) ** (j - 1) for k in range(int(mpmath.floor(s / e)) + 1) if k <= j)
        return mpmath.fsum(terms) / math.factorial(j - 1)

    end = min(rest, j * e)
    kinks = [k * e for k in range(j) if k * e < end] + [end]
    return mpmath.quad(lambda s: volume(s) * mpmath.exp(-s) * (1 - mpmath.exp(2 * (s - rest))), kinks)
