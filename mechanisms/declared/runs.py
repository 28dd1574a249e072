r"""How often a private selection ran its base: laws of the random number K of runs, drawn before anything is seen, by others."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias, final

import scipy
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

LARGEST_MEAN, LARGEST_SHAPE = 1e6, 1e3

LARGEST_SPREAD = 600.0
"""The most that log(1 / gamma) may be, so that 1 / gamma is a float."""

_ROUNDING = 1e-14
"""Allowance for the logarithm of a mean computed from log(1 / gamma), relative to 1 plus the sizes of its terms: some forty units."""

FromOne = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=1.0, le=LARGEST_MEAN)]


class Ends(NamedTuple):
    """A number between two ends."""

    low: float
    high: float


class NegativeBinomialRuns(Value, ABC):
    r"""P[K = k] proportional to (1 - gamma)^k Gamma(k + eta) / k!, for k >= 1: at least one run.

    Attributes:
      mean: E[K], 1 to 10^6; it determines gamma. With mean 1 there is exactly one run.
    """

    mean: FromOne

    @property
    @abstractmethod
    def eta(self) -> float:
        """The shape, > -1: 1 is the geometric law, 0 the logarithmic one."""

    @cached_property
    def spread(self) -> Ends:
        """log(1 / gamma), from E[K] = eta (1 / gamma - 1) / (1 - gamma^eta), which rises with it; for eta = 0 its limit."""
        if self.mean == 1.0:
            return Ends(0.0, 0.0)
        target = math.log(self.mean)
        root = float(scipy.optimize.brentq(lambda t: _log_mean(t, self.eta) - target, 1e-20, LARGEST_SPREAD, xtol=1e-300, rtol=1e-15))
        low = high = root
        # The root is only a proposal: steps of growing size end where the mean is proved to be on the right side.
        step = 4e-16
        while low > 0.0 and _log_mean(low, self.eta) + _error(low, self.eta) > target:
            low, step = max(low * (1.0 - step), 0.0) if step < 1.0 else 0.0, 2.0 * step
        step = 4e-16
        while _log_mean(high, self.eta) - _error(high, self.eta) < target:
            high, step = high * (1.0 + step), 2.0 * step
        return Ends(low, high)


def _log_mean(t: float, eta: float) -> float:
    x = eta * t
    return math.log(math.expm1(t) / t) + (0.0 if x == 0.0 else math.log(x / -math.expm1(-x)))


def _error(t: float, eta: float) -> float:
    x = eta * t
    return _ROUNDING * (1.0 + abs(math.log(math.expm1(t) / t)) + (0.0 if x == 0.0 else abs(math.log(x / -math.expm1(-x)))))


@final
class GeometricRuns(NegativeBinomialRuns):
    """After every run another one follows with the same probability, 1 - 1 / mean.

    >>> round(math.exp(-GeometricRuns(mean=4.0).spread.high), 12)
    0.25
    """

    kind: Literal["geometric"] = "geometric"

    @property
    def eta(self) -> float:
        return 1.0


@final
class LogarithmicRuns(NegativeBinomialRuns):
    """P[K = k] proportional to (1 - gamma)^k / k."""

    kind: Literal["logarithmic"] = "logarithmic"

    @property
    def eta(self) -> float:
        return 0.0


@final
class TruncatedNegativeBinomialRuns(NegativeBinomialRuns):
    """The whole family, by its shape.

    Attributes:
      shape: eta, above -1, up to 1000.
    Raises:
      ValidationError: the mean is so large for the shape that gamma is below e^-600.
    """

    kind: Literal["truncated_negative_binomial"] = "truncated_negative_binomial"
    shape: Annotated[float, Strict(), Field(allow_inf_nan=False, gt=-1.0, le=LARGEST_SHAPE)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if _log_mean(LARGEST_SPREAD, self.shape) < math.log(self.mean) + 1e-9:
            raise InvalidParameter("mean", f"smaller for the shape {self.shape!r}: gamma would be below e^-{LARGEST_SPREAD:g}", self.mean)
        return self

    @property
    def eta(self) -> float:
        return self.shape


@final
class PoissonRuns(Value):
    """K is Poisson. It may be 0; then nothing is released, and that shows.

    Attributes:
      mean: E[K], > 0 and up to 10^6.
    """

    kind: Literal["poisson"] = "poisson"
    mean: Annotated[float, Strict(), Field(allow_inf_nan=False, ge=1e-6, le=LARGEST_MEAN)]


_Runs: TypeAlias = GeometricRuns | LogarithmicRuns | TruncatedNegativeBinomialRuns | PoissonRuns
AnyRuns = Annotated[_Runs, Field(discriminator="kind")]
