r"""Roots and least values of one variable. SciPy's are as good; importing them takes a sixth of a second, which `verify` hasn't got."""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST = 200
"""Steps of a root's search: bisection alone halves 1e300 to 1e-300 in fewer than twice as many, and here each third step bisects."""
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))


def root_between(function: Callable[[float], float], low: float, high: float, relative: float) -> float:
    r"""A root between two points where the function has different signs, or is 0 at one.

    Inverse quadratic interpolation where it can be trusted, else bisection: Chandrupatla 1997, Advances in Engineering Software 28.

    Args:
      relative: how wide the last bracket may be, relative to the root.
    Raises:
      ValueError: both ends have the same sign.
      ArithmeticError: the function isn't a number somewhere, or it took too many steps.

    >>> abs(root_between(math.cos, 1.0, 2.0, 1e-12) - math.pi / 2.0) < 1e-11
    True
    """
    a, b = high, low
    at_a, at_b = function(a), function(b)
    if at_a * at_b > 0.0:
        raise ValueError(f"expected different signs at {low!r} and {high!r}, got {at_b!r} and {at_a!r}")
    c, at_c, part, best = a, at_a, 0.5, a
    for _ in range(_MOST):
        x = a + part * (b - a)
        at_x = function(x)
        if math.isnan(at_x):
            raise ArithmeticError(f"the function isn't a number at {x!r}")
        if (at_x > 0.0) == (at_a > 0.0):
            c, at_c = a, at_a
        else:
            c, b, at_c, at_b = b, a, at_b, at_a
        a, at_a = x, at_x
        best = a if abs(at_a) < abs(at_b) else b
        share = relative * abs(best) / abs(b - a) if a != b else 1.0
        if share > 0.5 or at_a == 0.0:
            return best
        place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        if 1.0 - math.sqrt(1.0 - place) < height < math.sqrt(place):
            part = at_a / (at_b - at_a) * at_c / (at_b - at_c) + (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        else:
            part = 0.5
        part = min(max(part, share), 1.0 - share)
    raise ArithmeticError(f"no root was found between {low!r} and {high!r} in {_MOST} steps")


def least_between(function: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, float]:
    r"""(place, value) near a local minimum between two points, of all places that were tried the best.

    Parabolas where they converge, else golden sections: Brent 1973, Algorithms for Minimization without Derivatives, chapter 5.

    Args:
      tolerance: how near the place is to the minimum's, absolutely.

    >>> place, value = least_between(lambda x: (x - 1.0) ** 2, 0.0, 3.0, 1e-6)
    >>> abs(place - 1.0) < 1e-6
    True
    """
    x = second = third = low + _GOLDEN * (high - low)
    at_x = at_second = at_third = function(x)
    step = before = 0.0
    for _ in range(_MOST):
        middle = 0.5 * (low + high)
        if abs(x - middle) <= 2.0 * tolerance - 0.5 * (high - low):
            break
        parabola = _vertex((x, at_x), (second, at_second), (third, at_third))
        if parabola is not None and low < x + parabola < high and abs(parabola) < 0.5 * abs(before):
            before, step = step, parabola
        else:
            before = (low if x >= middle else high) - x
            step = _GOLDEN * before
        place = x + (step if abs(step) >= tolerance else math.copysign(tolerance, step))
        value = function(place)
        if value <= at_x:
            low, high = (x, high) if place >= x else (low, x)
            third, at_third, second, at_second, x, at_x = second, at_second, x, at_x, place, value
            continue
        low, high = (place, high) if place < x else (low, place)
        if value <= at_second or second == x:
            third, at_third, second, at_second = second, at_second, place, value
        elif value <= at_third or third in (x, second):
            third, at_third = place, value
    return x, at_x


def _vertex(first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]) -> float | None:
    """From the first point to the lowest one of the parabola through three; None if they lie on a line."""
    (x, at_x), (y, at_y), (z, at_z) = first, second, third
    r, q = (x - y) * (at_x - at_z), (x - z) * (at_x - at_y)
    below = 2.0 * (q - r)
    return None if below == 0.0 else -((x - z) * q - (x - y) * r) / below
