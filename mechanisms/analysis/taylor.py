r"""The error of a second-order Taylor polynomial of the cross-entropy loss, exactly and in closed bounds.

The loss of one feature x in [0, 1] at the logit z is softplus(z) - x z, softplus(z) = ln(1 + e^z). x only enters linearly, so expanding
at a leaves the remainder of softplus, whatever x is:

    R(z) = softplus(z) - softplus(a) - s (z - a) - s (1 - s) (z - a)^2 / 2,      s = sigmoid(a).

Proved in proofs/taylor.md: |R| <= delta^3 / (36 sqrt 3) over |z - a| <= delta for every a, |R| <= delta^4 / 192 for a = 0, and that the
largest |R| of an interval is at an end of it. No constant bounds all derivatives. Errata S1 to S4.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from numpy.polynomial.legendre import leggauss

from zetadp.mechanisms.analysis.cross_entropy import sigmoid, sigmoid_slope, softplus
from zetadp.mechanisms.numerics.logspace import SMALLEST_FLOAT

THIRD_DERIVATIVE_BOUND = 1.0 / (6.0 * math.sqrt(3.0))
"""max |softplus'''| = max |s (1 - s) (1 - 2 s)|, attained where 1 - 2 s = 1 / sqrt 3 up to sign."""
FOURTH_DERIVATIVE_BOUND = 0.125
"""max |softplus''''| = max |s (1 - s) (1 - 6 s (1 - s))|, attained at 0."""

_CLOSE = 1.0
"""Up to this distance the remainder is an integral of its third derivative; beyond it the formula is used as written."""
_NODES, _WEIGHTS = (tuple(float(value) for value in values) for values in leggauss(20))
_FAR_BELOW = -37.0
"""Below this point softplus(z) is e^z to the last digit."""
_UNDERFLOWS = -700.0


def loss(x: float, z: float) -> float:
    """Cross-entropy of the feature x in [0, 1] at the logit z: x softplus(-z) + (1 - x) softplus(z), both terms >= 0.

    >>> round(loss(1.0, 2.0), 6)
    0.126928
    """
    return x * softplus(-z) + (1.0 - x) * softplus(z)


def polynomial(x: float, z: float, a: float) -> float:
    """The second-order Taylor polynomial of ``loss`` at a; at a = 0 it is ln 2 + (1/2 - x) z + z^2 / 8.

    >>> round(polynomial(1.0, 2.0, 0.0), 6)
    0.193147
    """
    step = z - a
    linear = (1.0 - x) * sigmoid(a) - x * sigmoid(-a)
    return loss(x, a) + linear * step + 0.5 * sigmoid_slope(a) * step * step


def remainder(z: float, a: float) -> float:
    r"""R(z), with full relative precision even near a. Zero only at z = a, or if e^-|a| is smaller than any float.

    >>> round(remainder(2.0, 0.0), 9), remainder(1e-6, 0.0) < 0.0, remainder(3.0, 3.0)
    (-0.06621917, True, 0.0)
    """
    return _remainder_after(z - a, a)


def _remainder_after(step: float, a: float) -> float:
    """R(a + step); a + step itself may round to a."""
    if a > 0.0:
        # softplus(z) = z + softplus(-z), and a line has no remainder.
        return _remainder_after(-step, -a)
    z = a + step
    if abs(step) <= _CLOSE:
        # Taylor's integral form, whose integrand has one sign unless 0 is between a and z: nothing cancels as z approaches a.
        middle, half = 0.5 * step, 0.5 * step
        total = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            at = middle + half * node
            total += weight * (step - at) ** 2 * third_derivative(a + at)
        return 0.5 * half * total + 0.0
    if max(z, a) <= _FAR_BELOW:
        factor = 1.0 + step + 0.5 * step * step
        # e^a alone may be below all floats where its product with the factor, at least 1/2, isn't.
        return math.exp(z) - (math.exp(a) * factor if a > _UNDERFLOWS else math.exp(a + math.log(factor)))
    return softplus(z) - softplus(a) - sigmoid(a) * step - 0.5 * sigmoid_slope(a) * step * step


def third_derivative(z: float) -> float:
    """softplus'''(z) = s (1 - s) (1 - 2 s)."""
    return -sigmoid_slope(z) * math.tanh(0.5 * z)


def largest_remainder(a: float, distance: float) -> float:
    r"""max |R(z)| over |z - a| <= distance: it lies at an end (proofs/taylor.md). To rounding; never 0 for a distance > 0, also where
    e^-|a| is below all floats.

    >>> round(largest_remainder(0.0, 2.0), 9), largest_remainder(5.0, 0.0)
    (0.06621917, 0.0)
    """
    largest = max(abs(_remainder_after(distance, a)), abs(_remainder_after(-distance, a)))
    return max(largest, SMALLEST_FLOAT) if distance > 0.0 else 0.0


def cubic_bound(distance: float) -> float:
    """distance^3 / (36 sqrt 3): bounds |R| for every a."""
    return distance**3 * THIRD_DERIVATIVE_BOUND / 6.0


def quartic_bound(distance: float) -> float:
    """distance^4 / 192: bounds |R| for a = 0, where the third derivative vanishes."""
    return distance**4 * FOURTH_DERIVATIVE_BOUND / 24.0


def convergence_radius(a: float) -> float:
    """Distance from a to the nearest singularity of ln(1 + e^z), at i pi: sqrt(a^2 + pi^2). Beyond it the series diverges."""
    return math.hypot(a, math.pi)


@cache
def derivative_at_zero(order: int) -> Fraction:
    r"""softplus^(r)(0) for r >= 2, exactly: (2^r - 1) B_r / r with the Bernoulli number B_r; 0 for odd r.

    >>> derivative_at_zero(2), derivative_at_zero(8), derivative_at_zero(9)
    (Fraction(1, 4), Fraction(-17, 16), Fraction(0, 1))
    """
    return (2**order - 1) * _bernoulli(order) / order


@cache
def _bernoulli(order: int) -> Fraction:
    if order == 0:
        return Fraction(1)
    if order > 1 and order % 2:
        return Fraction(0)
    return -sum((math.comb(order + 1, k) * _bernoulli(k) for k in range(order)), Fraction(0)) / (order + 1)


def first_order_above(bound: float) -> int:
    r"""The smallest r >= 3 with |softplus^(r)(0)| > bound: there is one for every bound.

    >>> first_order_above(1.0), first_order_above(0.1)
    (8, 4)
    """
    order = 4
    while abs(derivative_at_zero(order)) <= bound:
        order += 2
    return order
