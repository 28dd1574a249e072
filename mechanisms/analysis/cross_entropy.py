r"""The binary cross-entropy softplus(z) - x z, its second-order expansion about any point, and how far one record moves each coefficient.

Only -x z depends on the record x. So only one of the expansion's coefficients is private, whatever the expansion point and the
stabilisation constant are (errata S3, S26). Proof: proofs/cross_entropy.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

LARGEST_POINT = 1e6
"""For larger expansion points and stabilisation constants, a float64 coefficient would keep fewer than nine digits of the record."""


def sigmoid(a: float) -> float:
    r"""1 / (1 + e^-a), without overflow.

    >>> sigmoid(0.0), sigmoid(-1e3), sigmoid(1e300)
    (0.5, 0.0, 1.0)
    """
    small = math.exp(-abs(a))
    return 1.0 / (1.0 + small) if a >= 0.0 else small / (1.0 + small)


def softplus(a: float) -> float:
    r"""log(1 + e^a), without overflow and with all digits even if it is tiny.

    >>> softplus(1e3), softplus(-50.0) == math.exp(-50.0)
    (1000.0, True)
    """
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


def sigmoid_slope(a: float) -> float:
    r"""sigmoid(a) sigmoid(-a), the second derivative of softplus; even in a, at most 1/4.

    >>> sigmoid_slope(0.0), sigmoid_slope(-3.0) == sigmoid_slope(3.0)
    (0.25, True)
    """
    small = math.exp(-abs(a))
    return small / (1.0 + small) ** 2


@final
@dataclass(frozen=True)
class Expansion:
    r"""The expansion of softplus(z + c) - x (z + c) in powers of z, to second order about z + c = a.

    With s = sigmoid(a) and v = s (1 - s):

        [softplus(a) + s (c - a) + v (c - a)^2 / 2 - c x]  +  [s + v (c - a) - x] z  +  (v / 2) z^2.

    Attributes:
      expansion_point: a.
      stabilisation: c, a public constant; one that depends on a record makes every coefficient depend on it (errata S13).

    >>> Expansion(0.0, 0.0).coefficients(0.25) == (math.log(2.0), 0.25, 0.125)
    True
    """

    expansion_point: float
    stabilisation: float

    @property
    def _shift(self) -> float:
        return self.stabilisation - self.expansion_point

    @property
    def public_constant(self) -> float:
        """The part of the constant term that doesn't depend on the record."""
        a = self.expansion_point
        return softplus(a) + (sigmoid(a) + 0.5 * sigmoid_slope(a) * self._shift) * self._shift

    @property
    def public_linear(self) -> float:
        """The part of the coefficient of z that doesn't depend on the record; the private part is -x."""
        a = self.expansion_point
        return sigmoid(a) + sigmoid_slope(a) * self._shift

    @property
    def quadratic(self) -> float:
        """The coefficient of z^2. It doesn't depend on the record."""
        return 0.5 * sigmoid_slope(self.expansion_point)

    def coefficients(self, x: float) -> tuple[float, float, float]:
        """The coefficients of 1, z and z^2, for one feature x in [0, 1]."""
        return self.public_constant - self.stabilisation * x, self.public_linear - x, self.quadratic

    def value(self, x: float, z: float) -> float:
        """The expansion at z."""
        constant, linear, quadratic = self.coefficients(x)
        return constant + (linear + quadratic * z) * z


def loss(x: float, z: float) -> float:
    """The loss itself, softplus(z) - x z = -x log sigmoid(z) - (1 - x) log(1 - sigmoid(z))."""
    return softplus(z) - x * z


def coefficient_l1(dimension: int) -> float:
    """l1 sensitivity of all coefficients of z and z^2 when a record in [0, 1]^n is replaced: n, for every a and c."""
    return float(dimension)


def coefficient_l1_with_constant(dimension: int, stabilisation: float) -> float:
    """The same with the constant terms released as well, in powers of z: n (1 + |c|). A gradient never sees them."""
    return dimension * (1.0 + abs(stabilisation))


def taylor_l1_with_constant(dimension: int, expansion_point: float) -> float:
    """The same in powers of z + c - a, where the constant is softplus(a) - a x: n (1 + |a|)."""
    return dimension * (1.0 + abs(expansion_point))


def affine_l1(dimension: int, at_zero: tuple[float, ...], at_one: tuple[float, ...]) -> float:
    r"""l1 sensitivity of coefficients that are affine in their feature, when a record in [0, 1]^n is replaced: n sum_k |f_k(1) - f_k(0)|.

    Args:
      dimension: n.
      at_zero, at_one: the coefficients of one feature at x = 0 and at x = 1.
    """
    return dimension * math.fsum(abs(one - zero) for zero, one in zip(at_zero, at_one, strict=True))


def derivative_bound(a: float) -> float:
    r"""2 max over x of the six |f_k^(r)(a)|, the right side of SPOF's (18) for one feature: 2 [softplus(|a|) + sigmoid(|a|) + v].

    Even in a and increasing in |a|; its minimum is 2 log 2 + 3/2, at a = 0 (errata S25).

    >>> round(derivative_bound(0.0), 6)
    2.886294
    """
    return 2.0 * (softplus(abs(a)) + sigmoid(abs(a)) + sigmoid_slope(a))


def derivative_l1(a: float) -> float:
    r"""max over x, x' of the six |f_k^(r)(a) - f'_k^(r)(a)|, SPOF's (17) for one feature: log(2 + 2 cosh a) + 1 + 2 v."""
    return softplus(a) + softplus(-a) + 1.0 + 2.0 * sigmoid_slope(a)
