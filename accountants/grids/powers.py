r"""Powers of spectra by squaring, with roundings that can be counted: the library's powers give no bound. proofs/fft.md (4.2), (4.8)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Complexes = NDArray[np.complex128]
Both: TypeAlias = tuple[Complexes, Complexes]
_Factor = TypeVar("_Factor")


def power(base: Complexes, exponent: int) -> Complexes:
    """base^exponent, exponent >= 1: one rounding of known size per product."""
    return _by_squaring(base, exponent, operator.mul)


def product_of_both(left: Both, right: Both) -> Both:
    """(A, D) of a product of factors b + s: A the product of the b, D that of the b + s less A. No term of D is a difference."""
    return left[0] * right[0], left[1] * right[1] + left[1] * right[0] + left[0] * right[1]


def power_of_both(base: Both, exponent: int) -> Both:
    """The same for a power, from (b, s).

    >>> b, s = np.array([0.9 + 0j]), np.array([1e-20 + 0j])
    >>> bool(abs(power_of_both((b, s), 3)[1][0] - 3e-20 * 0.81) < 1e-35)
    True
    """
    return _by_squaring(base, exponent, product_of_both)


def _by_squaring(base: _Factor, exponent: int, product: Callable[[_Factor, _Factor], _Factor]) -> _Factor:
    result: _Factor | None = None
    square = base
    while True:
        if exponent & 1:
            result = square if result is None else product(result, square)
        exponent >>= 1
        if exponent == 0:
            assert result is not None
            return result
        square = product(square, square)
