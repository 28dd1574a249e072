r"""The standard normal density: Gaussian noise, real or complex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities.base import Floats
from zetadp.accountants.densities.location import LocationDensity
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.quadrature import MOST_NODES, panels
from zetadp.accountants.densities.transforms import MixedGaussian, Transform
from zetadp.mechanisms.loss import GaussianLoss, PrivacyLoss

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_TABLE_NODES = 512

_MOMENT_REACH = 14.0
"""Standard deviations beyond the outermost peak of a moment's integrand, where the integrand is below e^-98 of that peak."""

_MOMENT_STEP = 1.0 / 8.0
"""Trapezoid step: e^{-2 pi y / step} with the growth e^{y^2 / 2} of f at Im x = y is below 1e-17 for y = pi / 4."""


@final
@dataclass(frozen=True)
class GaussianDensity(LocationDensity):
    """f(x) = e^{-x^2 / 2} / sqrt(2 pi). Beyond 38 the tail underflows."""

    loss_type = GaussianLoss
    name = "Gaussian"
    norm = "l2"
    has_atoms = False
    is_normal = True
    has_transform = True
    dp_accounting_name = "gaussian"
    underflow = 38.0
    reach = 38.0

    def loss(self, distance: float) -> PrivacyLoss:
        return GaussianLoss(distance)

    def largest_loss(self, upper: Mixture, lower: Mixture) -> float:
        del upper, lower  # one of the two directions has none
        return math.inf

    def tail(self, x: Floats, log_factor: Floats) -> tuple[Floats, Floats]:
        # scipy's ndtr is off by up to 1.5 x^2 units as measured; we allow 3 x^2.
        error = UNIT * (8.0 + 3.0 * np.square(np.maximum(x, 0.0)))
        result = np.exp(np.minimum(log_factor, 600.0)) * scipy.special.ndtr(-x)
        wide = (log_factor > 300.0) | (x > 30.0)
        if wide.any():
            result[wide] = np.exp(np.minimum(log_factor[wide] + scipy.special.log_ndtr(-x[wide]), 600.0))
        return result, error

    def relative(self, x: Floats, shift: float) -> tuple[Floats, Floats]:
        return shift * (x - 0.5 * shift), 4.0 * abs(shift) * (np.abs(x) + abs(shift))

    def moment_relative(self, x: Floats, shift: float) -> Floats:
        return shift * x - 0.5 * shift**2

    def log_density(self, x: Floats) -> Floats:
        return -0.5 * x**2 - _LOG_SQRT_2PI

    def closed_thresholds(self, upper: Mixture, lower: Mixture, epsilons: Floats) -> Floats | None:
        """For one component against one, or against two of which one is the same."""
        if len(upper.weights) == len(lower.weights) == 1:
            distance = upper.shifts[0] - lower.shifts[0]
            return epsilons / distance + 0.5 * (upper.shifts[0] + lower.shifts[0])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if len(upper.weights) == 2 and lower.shifts == (upper.shifts[0],):
                q, distance = upper.weights[1], upper.span
                # e^z = (e^eps - 1 + q) / q; beyond e^30 the logarithm of the ratio is eps - log q.
                z = np.where(epsilons < 30.0, np.log1p(np.expm1(np.minimum(epsilons, 30.0)) / q), epsilons - np.log(q))
                return upper.shifts[0] + np.nan_to_num(z, nan=-np.inf) / distance + 0.5 * distance
            if len(lower.weights) == 2 and upper.shifts == (lower.shifts[1],):
                q, distance = lower.weights[0], lower.span
                z = -np.log1p(np.expm1(-epsilons) / q)
                return upper.shifts[0] + np.nan_to_num(z, nan=np.inf) / distance - 0.5 * distance
        return None

    def table_nodes(self, shifts: list[float]) -> Floats:
        return np.linspace(shifts[0] - self.underflow, shifts[-1] + self.underflow, _TABLE_NODES * min(len(shifts), 8))

    def panel_width(self, span: float) -> float:
        return min(1.5, 2.0 / max(1e-9, span) + 0.25)

    def moment_nodes(self, upper: Mixture, lower: Mixture, order: float, start: float) -> tuple[Floats, Floats] | None:
        return _moment_nodes(upper, lower, order, start)

    def transform(self, upper: Mixture, lower: Mixture, count: int, improbable: float) -> Transform:
        return MixedGaussian(upper, lower, count, improbable)


DENSITY = GaussianDensity()


def _moment_nodes(upper: Mixture, lower: Mixture, order: float, start: float) -> tuple[Floats, Floats] | None:
    """(x, log of f dx) up to _MOMENT_REACH beyond every peak of f A^p B^{1 - p}, 1 - order <= p <= order; from ``start`` on."""
    # The integrand's logarithm has the slope -x + p s + (1 - p) t, where s and t are the posterior mean shifts of A and B at x: they lie
    # within the mixtures' shifts and increase in x. For p < 0 and x <= 0, s is at most its value at 0.
    high = max(0.0, order * upper.shifts[-1] + (1.0 - order) * lower.shifts[0], (1.0 - order) * upper.shifts[0] + order * lower.shifts[-1])
    low = min(
        0.0, order * upper.shifts[0] + (1.0 - order) * lower.shifts[-1], (1.0 - order) * _mean_at_zero(upper) + order * lower.shifts[0]
    )
    low, high = max(low - _MOMENT_REACH, start), high + _MOMENT_REACH
    span = max(upper.span, lower.span)
    if low >= high:
        return np.empty(0), np.empty(0)
    if start > -math.inf:
        # A half-line has an end, where the trapezoid rule would be poor.
        nodes = panels(np.array([low, high]), max(1.0, span))
        return None if nodes is None else (nodes[0], nodes[1] - 0.5 * nodes[0] ** 2 - _LOG_SQRT_2PI)
    # A and B have zeros from Im x = pi / span on and keep their size up to half of that, so the step shrinks with 1 / span.
    step = min(_MOMENT_STEP, 0.25 / span) if span > 0.0 else _MOMENT_STEP
    if not (high - low) / step <= MOST_NODES:
        return None
    x = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * np.float64(step)
    return x, math.log(step) - 0.5 * x**2 - _LOG_SQRT_2PI


def _mean_at_zero(mixture: Mixture) -> float:
    """The posterior mean shift at x = 0, or a little more where likelihoods would underflow."""
    likelihood = [weight * math.exp(-0.5 * min(shift**2, 1400.0)) for weight, shift in zip(mixture.weights, mixture.shifts, strict=True)]
    return math.fsum(a * shift for a, shift in zip(likelihood, mixture.shifts, strict=True)) / math.fsum(likelihood)
