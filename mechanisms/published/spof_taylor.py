r"""Taylor polynomials of the loss and the bound on their error as printed in the SPOF paper (errata S1 to S4 and S10)."""

from __future__ import annotations

import math

from zetadp.mechanisms.analysis.taylor import loss
from zetadp.mechanisms.published import spof

_LARGEST_EXPONENT = 500.0
"""e^500 times the largest G, 1e50, is below the largest float."""


def polynomial(x: float, z: float, a: float) -> float:
    r"""Equations (9) and (11): the true value and slope at a, and (2 x - 1) s (1 - s) (z - a)^2 instead of s (1 - s) (z - a)^2 / 2.

    At a = 0, equation (12): ln 2 + (1/2 - x) z + (x/2 - 1/4) z^2.

    >>> round(polynomial(1.0, 2.0, 0.0), 6)
    0.693147
    """
    step = z - a
    return loss(x, a) + spof.linear_coefficient(x, a) * step + spof.quadratic_coefficient(x, a) * step * step


def stabilised_polynomial(x: float, z: float, c: float) -> float:
    """Equation (31), for a = 0: ln 2 + c^2 alpha_3 + alpha_2 (1 + 2 c) z + alpha_3 z^2; it isn't (12) at z + c (errata S10)."""
    constant, linear, quadratic = spof.stabilised_coefficients(x, c)
    return math.log(2.0) + constant + linear * z + quadratic * z * z


def proposition_1_bound(derivative_bound: float, distance: float) -> float | None:
    r"""2 G (e^delta - 1 - delta - delta^2 / 2) for a G >= |f^(r)(a)| of every order r >= 3; None beyond the range of floats.

    No such G exists (errata S4).

    >>> round(proposition_1_bound(1.0, 1.0), 9)
    0.436563657
    """
    if distance > _LARGEST_EXPONENT:
        return None
    if distance >= 1.0:
        return 2.0 * derivative_bound * (math.expm1(distance) - distance - 0.5 * distance * distance)
    # The series itself, where the difference would cancel.
    term = distance**3 / 6.0
    total = 0.0
    for order in range(4, 24):
        total += term
        term *= distance / order
    return 2.0 * derivative_bound * total
