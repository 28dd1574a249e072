r"""The l-infinity mechanism of Duchi, Jordan and Wainwright: a local release of a whole record through signs, at one epsilon."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.base import Adjacency, Assumption, Facts, Positive, Sensitivity, Step, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import ResponseLoss
from zetadp.mechanisms.sampling.source import FAIR, PROBABILITY_BITS, Array, NoiseSource

Floats = NDArray[np.float64]

_EXACT_HALVES = 64
"""Up to this half dimension the central binomial coefficient is exact, beyond it from Stirling's series (error below 1e-17)."""

_DIGITS = 120
"""More decimal digits than 2^-256 has."""

_LARGEST_EXPONENT = 300.0
"""Every e^-epsilon below 2^-256 has the same effect: its probability is rounded up to 2^-256."""


@final
class DuchiLinf(LocalRelease):
    r"""Releases a record as one of two numbers in each coordinate, unbiased: (epsilon, 0)-DP for the whole record, whatever its dimension.

    With v the record moved to [-1, 1]^n: draw V_j = +-1 with mean v_j; if n is even append one fair sign, so that d is odd; draw T from
    {-1, 1}^d, uniformly with <T, V> > 0 with probability e^epsilon / (1 + e^epsilon), else with <T, V> < 0; release B T_1 ... B T_n,

        B = coth(epsilon / 2) 2^(d - 1) / C(d - 1, (d - 1) / 2),      variance of a coordinate B^2 - v_j^2,

    moved back to the box. Where the padding isn't released (n even) opposite corners look alike with probability C(n, n/2) / 2^n.
    The minority's probability is rounded up to a multiple of 2^-256, and compared with as many random bits: the loss that is realised
    never exceeds epsilon, at any epsilon, and no real arithmetic is assumed. Moving the record to [-1, 1]^n rounds only what V is
    drawn from (a bias of 2^-50 at most, in float64), which epsilon doesn't depend on.

    Attributes:
      lower, upper: the bounds of every coordinate.
      dimension: coordinates of one record, n.
      epsilon: of one release of one record. Here it is the parameter: ``noise_scale`` is 1 / epsilon, and ``scaled`` divides epsilon.
      sensitivity: replace_one, with l1 at least n (upper - lower), as the box says; the loss doesn't depend on it.
    Raises:
      ValidationError: as ``LocalRelease``.
    Sources: Duchi, Jordan and Wainwright 2018, Section 4.2.3; Kairouz, Oh and Viswanath 2015. Proof: proofs/duchi_linf.md.

    >>> sensitivity = Sensitivity(l1=14.0, adjacency="replace_one", unit="record")
    >>> noise = DuchiLinf(lower=0.0, upper=1.0, dimension=14, epsilon=1.0, sensitivity=sensitivity)
    >>> round(noise.worst_variance, 4)
    26.6797
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Each record of a box as one of two numbers in every coordinate, unbiased, at one epsilon for the whole record.",
        assumptions=(Assumption.INDEPENDENT_NOISE,),
        sources=("Duchi, Jordan and Wainwright 2018, arXiv:1604.02390", "Kairouz, Oh and Viswanath 2015, arXiv:1311.0776"),
        errata=("S9", "S14", "S16"),
        proof="duchi_linf.md",
    )

    kind: Literal["duchi_linf"] = "duchi_linf"
    epsilon: Positive

    @classmethod
    def example(cls) -> Self:
        sensitivity = Sensitivity(l1=14.0, adjacency=Adjacency.REPLACE_ONE, unit="record")
        return cls(lower=0.0, upper=1.0, dimension=14, epsilon=1.0, sensitivity=sensitivity)

    @property
    def signs(self) -> int:
        """d, the odd number of signs that are drawn for a record."""
        return self.dimension | 1

    @property
    def size(self) -> float:
        """B: released coordinates are -B and B, in units of half the box, around its centre."""
        return central_factor(self.signs) / math.tanh(0.5 * self.epsilon)

    @property
    def outputs(self) -> tuple[float, float]:
        """The two numbers that a released coordinate can be."""
        centre, reach = self._centre_and_reach
        return centre - reach, centre + reach

    @property
    def _centre_and_reach(self) -> tuple[float, float]:
        return 0.5 * self.lower + 0.5 * self.upper, 0.5 * self.width * self.size

    @property
    def noise_scale(self) -> float:
        return 1.0 / self.epsilon

    @property
    def worst_variance(self) -> float:
        return self._centre_and_reach[1] ** 2

    @property
    def least_variance(self) -> float:
        """The smallest variance of one released coordinate: at an end of the box."""
        # B^2 - 1 = (B - 1) (B + 1), and B - 1 may be as small as 2 e^-epsilon.
        excess = (central_factor(self.signs) - 1.0) / math.tanh(0.5 * self.epsilon) + _coth_minus_one(self.epsilon)
        return (0.5 * self.width) ** 2 * excess * (self.size + 1.0)

    def variance(self, record: Floats) -> Floats:
        """Variance of each released coordinate of records in the box, of the shape of ``record``; in squared units of the record.

        Raises:
          InvalidParameter: a coordinate outside the box.
        """
        if not bool(((record >= self.lower) & (record <= self.upper)).all()):
            raise InvalidParameter("record", f"within [{self.lower!r}, {self.upper!r}] in every coordinate", "one outside")
        # B^2 - v^2 = (B^2 - 1) + (1 - v)(1 + v), and (1 - v)(1 + v) (width / 2)^2 = (upper - x)(x - lower).
        return self.least_variance + (self.upper - record) * (record - self.lower)

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        self.check_value(value, source)
        shape = tuple(value.shape)
        share = (value - self.lower) * (1.0 / self.width)
        # Signs of mean v; a uniform in (0, 1] is at most ``share`` with that probability.
        rounded = 2 * (source.uniform(shape) <= share) - 1
        drawn = source.signs((*shape[:-1], self.signs))
        kept = drawn[..., : self.dimension]
        agreements = (kept * rounded > 0).sum(-1)
        if self.signs > self.dimension:
            # The padding's product with its own fair sign is a fair sign.
            agreements = agreements + (drawn[..., -1] > 0)
        # T and -T together: T is uniform on the side that the minority's sign chooses.
        towards = 2 * (2 * agreements > self.signs) - 1
        chosen = source.signs(shape[:-1], minority_numerator(self.epsilon)) * towards
        centre, reach = self._centre_and_reach
        return centre + kept * chosen[..., None] * reach

    def privacy_loss(self) -> ResponseLoss:
        return ResponseLoss(self.epsilon, shown_probability(self.dimension))

    def scaled(self, factor: float) -> Self:
        epsilon = self.epsilon / factor
        return type(self)(lower=self.lower, upper=self.upper, dimension=self.dimension, epsilon=epsilon, sensitivity=self.sensitivity)

    def derivation(self) -> tuple[Step, ...]:
        shown = "1 for odd n; 1 - C(n, n/2) / 2^n for even n, where the padding isn't released"
        return (
            Step(symbol="n", value=float(self.dimension), formula="given", source="coordinates of one record"),
            Step(symbol="d", value=float(self.signs), formula="n, or n + 1 where n is even", source="no ties"),
            Step(symbol="B", value=self.size, formula="coth(epsilon / 2) 2^(d-1) / C(d-1, (d-1)/2)", source="proofs/duchi_linf.md"),
            Step(
                symbol="variance",
                value=self.worst_variance,
                formula="at most ((upper - lower) / 2)^2 B^2",
                source="of a released coordinate",
            ),
            Step(symbol="shown", value=shown_probability(self.dimension), formula=shown, source="proofs/duchi_linf.md"),
            Step(symbol="epsilon_0", value=self.epsilon, formula="given", source="log of the two sides' probabilities"),
        )


@final
class LocalComparison(Value):
    r"""Variance of one released coordinate at the same epsilon for the whole record; in squared units of the record.

    Attributes:
      laplace: of ``local_laplace``, the same for every record.
      duchi_worst: of ``duchi_linf``, at the centre of the box, where it is largest.
      duchi_least: at its ends.
      ratio: laplace / duchi_worst; above 1 where ``duchi_linf`` is better for every record.
      even_at: the epsilon at which laplace and duchi_worst are equal: below it ``duchi_linf`` is better, above it worse at the centre.
    """

    laplace: float
    duchi_worst: float
    duchi_least: float
    ratio: float
    even_at: float


def compare_with_laplace(mechanism: DuchiLinf) -> LocalComparison:
    r"""Both local releases of the same box at the same epsilon.

    2 (n w / epsilon)^2 against (w / 2)^2 B^2: equal where epsilon coth(epsilon / 2) = 2 sqrt(2) n / c, c = 2^(d-1) / C(d-1, (d-1)/2). The
    left side rises from 2, and the right side is at least 2 sqrt(2) (n = 1 and 2). So at small epsilon ``duchi_linf`` is always better,
    and at large epsilon it never is at the centre of the box, since B stays above 1 while Laplace noise vanishes.
    """
    n = mechanism.dimension
    laplace = 2.0 * (n * mechanism.width / mechanism.epsilon) ** 2
    level = math.sqrt(8.0) * n / central_factor(mechanism.signs)
    return LocalComparison(
        laplace=laplace,
        duchi_worst=mechanism.worst_variance,
        duchi_least=mechanism.least_variance,
        ratio=8.0 * (n / (mechanism.epsilon * mechanism.size)) ** 2,
        even_at=_epsilon_with(level),
    )


def _epsilon_with(level: float) -> float:
    """The epsilon > 0 with epsilon coth(epsilon / 2) = level > 2."""
    low, high = 0.0, level
    while high - low > 4e-16 * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if middle / math.tanh(0.5 * middle) < level else (low, middle)
    return high


def _coth_minus_one(epsilon: float) -> float:
    """coth(epsilon / 2) - 1 = 2 / (e^epsilon - 1)."""
    return 2.0 / math.expm1(epsilon) if epsilon < _LARGEST_EXPONENT else 2.0 * math.exp(-epsilon)


@lru_cache(maxsize=1024)
def central_factor(signs: int) -> float:
    r"""2^(d - 1) / C(d - 1, (d - 1) / 2) for odd d: about sqrt(pi (d - 1) / 2), to a few roundings.

    >>> central_factor(1), central_factor(3), round(central_factor(15), 6)
    (1.0, 2.0, 4.773893)
    """
    m = (signs - 1) // 2
    if m <= _EXACT_HALVES:
        return float(Fraction(4**m, math.comb(2 * m, m)))
    # log Gamma(m + 1) - log Gamma(m + 1/2) - log(m) / 2, from Stirling's series of both.
    correction = (1.0 / 8.0 - (1.0 / 192.0 - (1.0 / 640.0 - 17.0 / (14336.0 * m * m)) / (m * m)) / (m * m)) / m
    return math.sqrt(math.pi * m) * math.exp(correction)


@lru_cache(maxsize=1024)
def shown_probability(dimension: int) -> float:
    """The probability that the released signs aren't equally many of each: 1 for odd n; 1 - C(n, n/2) / 2^n, rounded up, for even n.

    >>> shown_probability(3), shown_probability(2)
    (1.0, 0.5)
    """
    if dimension % 2:
        return 1.0
    return math.nextafter(1.0 - 1.0 / central_factor(dimension + 1) * (1.0 - 1e-15), 1.0) if dimension > 2 else 0.5


@lru_cache(maxsize=1024)
def minority_numerator(epsilon: float) -> int:
    """2^256 / (1 + e^epsilon), rounded up: with this numerator the loss log((1 - p) / p) is at most epsilon, and more than 0.

    >>> minority_numerator(1000.0), minority_numerator(1e-50) < FAIR
    (1, True)
    """
    if epsilon > _LARGEST_EXPONENT:
        return 1
    with localcontext() as context:
        context.prec = _DIGITS
        # A relative error of 1e-110 upwards covers the decimal roundings.
        exact = Decimal(2) ** PROBABILITY_BITS / (1 + Decimal(epsilon).exp()) * (1 + Decimal(10) ** -110)
        return min(int(exact.to_integral_value(rounding=ROUND_CEILING)), FAIR)
