r"""Laws of noise on the whole numbers, as tables of logarithms. All are even and log-concave. Proofs: mechanisms/proofs/declared.md.

Logarithms are long doubles, where a processor has them, and known up to one constant for the whole law.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Long: TypeAlias = NDArray[Any]

LARGEST_EXPONENT = 745.0
"""Outcomes less probable than e^-745 of the most probable one are left out of tables."""

LONG = float(np.finfo(np.longdouble).eps)

MOST_CONVOLVED = 4096
_MOST_CONVOLVED_PER_SQUARE = 4000
"""So many sums of discrete Gaussians are made at most, in all and for each unit of scale^2: the middle of a period is then above e^-660."""

_NEAR, _NEAR_ENOUGH = 1e-12, 1e-9
"""A sum this near to one discrete Gaussian is taken for one, with this as its error: always, and where it can't be convolved."""

_CERTAIN = 45.0
_LEAF_REACH = 38.0
_RESCALED = 800
"""Bits by which a recurrence is scaled down where it grows beyond ``_LARGE``."""

_LARGE = 1e250


class IntegerLaw(ABC):
    """f on the whole numbers.

    Attributes:
      name: as used in sentences.
      is_bounded: whether the logarithm of f(x - m) / f(x) is bounded.
      is_part: whether f is the law of a part of the noise, so that what it says is true of all of it only from above.
    """

    name: ClassVar[str]
    is_bounded: ClassVar[bool] = False
    is_part: ClassVar[bool] = False

    @property
    @abstractmethod
    def scale(self) -> float:
        """The unit of distances: sigma, b, or about the standard deviation."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """f is below e^-745 of its largest value beyond."""

    @abstractmethod
    def log_weights(self, x: NDArray[np.int64]) -> Long:
        """log f, up to a constant that is the same for all x."""

    def error(self, furthest: int) -> float:
        """Relative error of f(x), |x| <= ``furthest``, besides few units for each unit of log f(x) - log f(0)."""
        del furthest
        return 0.0

    def tilted(self, distance: int) -> int:
        """How much further a table reaches of which e^{order L} moves the mass by ``distance``."""
        return distance


@final
@dataclass(frozen=True)
class GaussianLaw(IntegerLaw):
    """e^{-x^2 / (2 sigma^2)}."""

    name = "discrete Gaussian"
    sigma: float

    @property
    def scale(self) -> float:
        return self.sigma

    @property
    def reach(self) -> int:
        return math.ceil(self.sigma * math.sqrt(2.0 * LARGEST_EXPONENT)) + 1

    def log_weights(self, x: NDArray[np.int64]) -> Long:
        z: Long = x.astype(np.longdouble) / np.longdouble(self.sigma)
        return -z * z / 2


@final
@dataclass(frozen=True)
class LaplaceLaw(IntegerLaw):
    """e^{-|x| / b}."""

    name = "discrete Laplace"
    is_bounded = True
    b: float

    @property
    def scale(self) -> float:
        return self.b

    @property
    def reach(self) -> int:
        return math.ceil(self.b * LARGEST_EXPONENT) + 1

    def log_weights(self, x: NDArray[np.int64]) -> Long:
        return -np.abs(x.astype(np.longdouble) / np.longdouble(self.b))

    def tilted(self, distance: int) -> int:
        del distance
        return 0  # the largest loss is constant beyond the shifts


@final
@dataclass(frozen=True)
class SkellamLaw(IntegerLaw):
    """I_x(variance), a modified Bessel function: the difference of two Poisson numbers of mean variance / 2 each.

    >>> logs = SkellamLaw(2.0).log_weights(np.array([0, 1]))
    >>> round(float(np.exp(logs[1] - logs[0])), 6)  # I_1(2) / I_0(2)
    0.697775
    """

    name = "Skellam"
    variance: float

    @property
    def scale(self) -> float:
        return math.sqrt(self.variance)

    @property
    def reach(self) -> int:
        return _skellam_reach(self.variance)

    def log_weights(self, x: NDArray[np.int64]) -> Long:
        place = np.abs(x)
        return _skellam_logs(self.variance, self._tabled(int(place.max())))[place]

    def error(self, furthest: int) -> float:
        return (2.0 * _skellam_start(self.variance, self._tabled(furthest)) + 8.0) * LONG

    def tilted(self, distance: int) -> int:
        # From order (m + 1/2) on, at most 3/2 of the distance, it falls as a law does whose variance is larger by that.
        distance += (distance + 1) // 2
        return distance + _skellam_reach(self.variance + distance) - self.reach

    def _tabled(self, furthest: int) -> int:
        # Powers of 2, so that several reaches share a table; never a short one, which the recurrence would have to begin far beyond.
        return 1 << (max(furthest, self.reach) - 1).bit_length()


@final
@dataclass(frozen=True)
class GaussianSumLaw(IntegerLaw):
    """The sum of independent discrete Gaussians: e^{-x^2 / (2 parties sigma^2)} h(x), h even with the period ``parties``.

    Attributes:
      sigma: of each, at least 1/2.
      parties: how many.
      honest: how many there are in all, of which ``parties`` are a part; as many if None.

    >>> logs = GaussianSumLaw(0.5, 2).log_weights(np.array([0, 1]))
    >>> round(float(np.exp(logs[1] - logs[0])), 6)  # 2 (e^-2 + e^-10 + ...) / (1 + 2 e^-4 + ...)
    0.261193
    """

    name = "sum of discrete Gaussian"
    sigma: float
    parties: int
    honest: int | None = None

    @classmethod
    def of(cls, sigma: float, honest: int, largest_scale: float) -> GaussianSumLaw:
        """The law of the sum, or, if that can't be tabled, of the largest part of it that can, and whose scale is at most this."""
        most = min(honest, int((largest_scale / sigma) ** 2 * (1.0 + 1e-12)))
        return cls(sigma, max(min(most, _most_tabled(sigma, most)), 1), honest)

    @property
    def is_part(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.parties < self._all

    @property
    def scale(self) -> float:
        return self.sigma * math.sqrt(self.parties)

    @property
    def reach(self) -> int:
        return GaussianLaw(self.scale).reach  # h is largest at 0

    def concentration(self, moves: int) -> Fraction:
        """rho of zCDP: as in Kairouz, Liu and Steinke 2021, or that of one party, whose release the others' noise only protects."""
        tau = Fraction(4.0 * near_gaussian(self.sigma, self._all) * (1.0 + 1e-9))
        root = Fraction(math.nextafter(moves / math.sqrt(self._all) / self.sigma * (1.0 + 1e-15), math.inf))
        return min((root + tau) ** 2, (moves / Fraction(self.sigma)) ** 2) / 2

    def log_weights(self, x: NDArray[np.int64]) -> Long:
        z: Long = x.astype(np.longdouble) / np.longdouble(self.sigma)
        logs = -z * z / (2 * self.parties)
        if not self._is_convolved:
            return logs
        place = np.abs(x) % self.parties
        return logs + _period(self.sigma, self.parties).logs[np.minimum(place, self.parties - place)]

    def error(self, furthest: int) -> float:
        del furthest
        return _period(self.sigma, self.parties).error if self._is_convolved else near_gaussian(self.sigma, self.parties)

    @property
    def _is_convolved(self) -> bool:
        if near_gaussian(self.sigma, self.parties) <= _NEAR:
            return False
        return self.parties <= _most_convolved(self.sigma)

    @property
    def _all(self) -> int:
        return self.parties if self.honest is None else self.honest


def _most_convolved(sigma: float) -> int:
    return int(min(MOST_CONVOLVED, _MOST_CONVOLVED_PER_SQUARE * sigma**2))


def _most_tabled(sigma: float, honest: int) -> int:
    """The largest number of parties, at most ``honest``, whose sum is convolved or near enough to one discrete Gaussian."""
    low, high = min(_most_convolved(sigma), honest), honest
    if near_gaussian(sigma, high) <= _NEAR_ENOUGH:
        return high
    # Nearness falls with each party that is added.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if near_gaussian(sigma, middle) <= _NEAR_ENOUGH else (low, middle)
    return low


@lru_cache(maxsize=64)
def near_gaussian(sigma: float, parties: int) -> float:
    """e such that the sum's f is that of one discrete Gaussian of deviation parameter sigma sqrt(parties), up to factors in [e^-e, e^e].

    For sigma >= 1/2; four times this is tau of Kairouz, Liu and Steinke 2021.
    """
    k = np.arange(1, parties, dtype=np.float64)
    return 2.5 * float(np.exp(-2.0 * math.pi**2 * sigma**2 * k / (k + 1.0)).sum())


def _skellam_reach(variance: float) -> int:
    """The least R, nearly, with log f(0) - log f(R) >= int_0^R asinh(t / variance) dt >= 745."""

    def fall(reach: float) -> float:
        # R asinh(R / v) - (sqrt(R^2 + v^2) - v), the latter without its difference.
        return reach * math.asinh(reach / variance) - reach * reach / (math.hypot(reach, variance) + variance)

    low, high = 0, 1
    while fall(high) < LARGEST_EXPONENT * (1.0 + 1e-9):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fall(middle) >= LARGEST_EXPONENT * (1.0 + 1e-9) else (middle, high)
    return high + 1


def _skellam_start(variance: float, furthest: int) -> int:
    """Where the backward recurrence begins, so that the ratio with which it begins has no effect that counts at ``furthest``."""
    return furthest + math.ceil(40.0 / math.asinh((furthest + 0.5) / variance)) + 1


@lru_cache(maxsize=8)
def _skellam_logs(variance: float, furthest: int) -> Long:
    """log I_k - log I_0 for 0 <= k <= ``furthest``, from I_{k - 1} = I_{k + 1} + (2 k / variance) I_k, whose terms are positive."""
    start = _skellam_start(variance, furthest)
    mu, order = np.longdouble(variance), np.longdouble(start) + np.longdouble(0.5)
    factors = 2 * np.arange(start + 1, dtype=np.longdouble) / mu
    values, rescaled = np.ones(start + 1, dtype=np.longdouble), np.zeros(start + 1, dtype=np.int64)
    here, after = np.longdouble(1), mu / (order + np.sqrt(mu * mu + order * order))
    down, times = np.ldexp(np.longdouble(1), -_RESCALED), 0
    for k in range(start, 0, -1):
        here, after = after + factors[k] * here, here
        if here > _LARGE:
            here, after, times = here * down, after * down, times + 1
        values[k - 1], rescaled[k - 1] = here, times
    logs = np.log(values[: furthest + 1])
    logs = (logs - logs[0]) + (rescaled[: furthest + 1] - rescaled[0]) * (_RESCALED * np.log(np.longdouble(2)))
    logs.flags.writeable = False
    return logs


@final
class _Period(NamedTuple):
    """log h(k) for 0 <= k <= parties / 2, and its error."""

    logs: Long
    error: float


@final
class _Sum(NamedTuple):
    """The law of a sum on -R..R, a lower bound of it but for rounding, and its relative error where it isn't far below what was cut."""

    weights: Long
    error: float


@lru_cache(maxsize=8)
def _period(sigma: float, parties: int) -> _Period:
    half, square = parties // 2, 2.0 * parties * sigma**2
    k = np.arange(half + 1)
    needed = half**2 / square
    while True:
        reach = math.ceil(math.sqrt(square * (needed + _CERTAIN + 25.0)))
        found = _power(sigma, parties, max(reach, half))
        logs = np.log(found.weights[len(found.weights) // 2 + k])
        # What was cut is at most 8 parties times the larger of both: subgaussian tails of parts of the sum, and of each party.
        cut = math.log(8.0 * parties) + max(-(reach**2) / square * (1.0 - 1e-9), -(_LEAF_REACH**2) / 2.0)
        if float(logs[-1]) >= cut + _CERTAIN:
            break
        assert needed < LARGEST_EXPONENT  # the number of parties is limited so that this is never reached
        needed += max(20.0, cut + _CERTAIN - float(logs[-1])) if math.isfinite(float(logs[-1])) else 20.0
    z: Long = k.astype(np.longdouble) / np.longdouble(sigma)
    logs = logs + z * z / (2 * parties)
    return _Period(logs - logs[0], found.error + 8.0 * LARGEST_EXPONENT * LONG)


def _power(sigma: float, parties: int, reach: int) -> _Sum:
    """The law of the sum of so many, by squaring."""
    square, total, left = _one(sigma, reach), None, parties
    while True:
        if left % 2:
            total = square if total is None else _convolved(total, square, reach)
        left //= 2
        if not left:
            assert total is not None  # parties >= 1
            return total
        square = _convolved(square, square, reach)


def _convolved(first: _Sum, second: _Sum, reach: int) -> _Sum:
    whole = np.convolve(first.weights, second.weights)
    middle = len(whole) // 2
    terms = min(len(first.weights), len(second.weights))
    return _Sum(whole[max(0, middle - reach) : middle + reach + 1], first.error + second.error + (terms + 2.0) * LONG)


def _one(sigma: float, reach: int) -> _Sum:
    """One discrete Gaussian, rounded from 30 digits."""
    last = min(reach, math.ceil(_LEAF_REACH * sigma))
    with localcontext(prec=30):
        square = 2 * Decimal(sigma) ** 2
        half = [np.longdouble(str((-Decimal(x * x) / square).exp())) for x in range(last + 1)]
    weights = np.array([*half[:0:-1], *half], dtype=np.longdouble)
    return _Sum(weights / weights.sum(), (len(weights) + 4.0) * LONG)
