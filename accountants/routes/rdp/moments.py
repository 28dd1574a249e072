r"""Moments of a dominating pair: log E_Q[(dP/dQ)^power], for real and complex powers, by quadrature.

Both directions' Renyi divergences and moment functions are such powers: order a of P against Q is power a, of Q against P power 1 - a.
With P = f A and Q = f B, f the noise density, A = sum_j p_j e^{z_j} and z_j(x) = log f(x - a_j) / f(x), everything is taken from A - 1 and
B - 1, sums of p_j (e^{z_j} - 1), so that nothing is lost where the pair's halves hardly differ. A pair's "worse direction" has moments of
its own (proofs/pairs.md), integrals over the half-line where P exceeds Q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from accountants.pairs import Family, Mixture, Pair

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_NODES = 400_000
"""Beyond this many quadrature nodes an order isn't worth its time and memory; it is left out, which only makes a bound larger."""

_REACH = 14.0
"""Standard deviations beyond the outermost peak: the integrand is below e^-98 of that peak there."""

_STEP = 1.0 / 8.0
"""Trapezoid step: e^{-2 pi y / step} with the growth e^{y^2 / 2} of f at Im x = y is below 1e-17 for y = pi / 4."""

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SMALL = 0.05
_SERIES_TERMS = 12
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@final
@dataclass(frozen=True)
class PairMoments:
    """Quadrature nodes of Q with R = dP/dQ at each, good for |power| up to the order they were made for.

    Attributes:
      log_weight: log of Q's mass at each node.
      log_ratio: log R.
      minus_one: R - 1 where it is small, exact to its last digits; 1 elsewhere.
      weighted_minus_one: Q's mass times R - 1, kept apart since R alone may overflow where the mass makes it harmless.
      upper_half: the nodes cover R > 1 only, and the moments are those of the pair's worse direction.
    """

    log_weight: Floats
    log_ratio: Floats
    minus_one: Floats
    weighted_minus_one: Floats
    upper_half: bool

    @classmethod
    def of(cls, pair: Pair, order: float) -> Self | None:
        """Nodes for powers from 1 - order to order, or None where they would be too many."""
        if pair.family is Family.RESPONSE or pair.shown < 1.0:
            return cls._of_atoms(pair, order)
        start = _crossing(pair) if pair.worst_of_both else -math.inf
        nodes = (_gaussian_nodes if pair.family is Family.GAUSSIAN else _laplace_nodes)(pair, order, start)
        if nodes is None:
            return None
        x, log_mass = nodes
        log_upper, upper, weighted_upper = _relative(pair.family, pair.upper, x, log_mass)
        log_lower, lower, weighted_lower = _relative(pair.family, pair.lower, x, log_mass)
        log_ratio = log_upper - log_lower
        close = np.abs(log_ratio) < 2.0 * _SMALL
        return cls(
            log_weight=log_mass + log_lower,
            log_ratio=log_ratio,
            minus_one=np.where(close, (upper - lower) / np.where(close, 1.0 + lower, 1.0), 1.0),
            weighted_minus_one=weighted_upper - weighted_lower,
            upper_half=pair.worst_of_both,
        )

    @classmethod
    def _of_atoms(cls, pair: Pair, order: float) -> Self | None:
        """Randomized response, or a pair that is shown with some probability: the loss is 0 where it isn't."""
        if pair.family is Family.RESPONSE:
            loss = np.array([-pair.distance, pair.distance])
            log_weight = np.array([0.0, -pair.distance]) - math.log1p(math.exp(-pair.distance))
            base = cls(log_weight, loss, np.expm1(np.minimum(loss, 1.0)), np.exp(log_weight + loss) - np.exp(log_weight), upper_half=False)
        else:
            base = cls.of(Pair(pair.family, pair.upper, pair.lower), order)
        if base is None or pair.shown == 1.0:
            return base
        return cls(
            log_weight=np.append(base.log_weight + math.log(pair.shown), math.log1p(-pair.shown)),
            log_ratio=np.append(base.log_ratio, 0.0),
            minus_one=np.append(base.minus_one, 0.0),
            weighted_minus_one=np.append(pair.shown * base.weighted_minus_one, 0.0),
            upper_half=False,
        )

    def log_moment(self, power: float) -> float:
        """log E_Q[R^power] for a real power outside [0, 1]: >= 0, accurate also where it is 1e-20."""
        if self.upper_half:
            return self._log_half_moment(max(power, 1.0 - power) - 1.0)
        direct = _log_sum(self.log_weight + power * self.log_ratio)
        if direct > 0.5:
            return direct
        # E u = 0, so E (1 + u)^p - 1 = E [(1 + u)^p - 1 - p u], whose terms all have one sign: nothing cancels across nodes. Near
        # u = 0 each term is taken from its binomial series, elsewhere directly.
        small = np.abs(self.minus_one) * max(1.0, abs(power)) < _SMALL
        u = np.where(small, self.minus_one, 0.0)
        series = np.ones_like(u)
        for k in range(_SERIES_TERMS, 2, -1):
            series *= u * ((power - k + 1) / k)
            series += 1.0
        series *= 0.5 * power * (power - 1.0) * u * u
        weight = np.exp(self.log_weight)
        plain = np.exp(self.log_weight + power * self.log_ratio) - weight - power * self.weighted_minus_one
        return math.log1p(max(0.0, float(np.sum(np.where(small, weight * series, plain)))))

    def _log_half_moment(self, k: float) -> float:
        # (R^k - 1)(R - R^-k) as R^{k + 1} (1 - R^-k)(1 - R^-(k + 1)): products of positive terms, summed without cancellation.
        loss = np.maximum(self.log_ratio, 0.0)
        with np.errstate(divide="ignore"):
            log_terms = (k + 1.0) * loss + np.log(-np.expm1(-k * loss)) + np.log(-np.expm1(-(k + 1.0) * loss))
        total = _log_sum(self.log_weight + log_terms)
        return float(np.logaddexp(0.0, total)) if total > 0.0 else math.log1p(math.exp(total))

    def log_moment_complex(self, power: Complexes) -> Complexes:
        """log E_Q[R^power] for complex powers of shape (n,), with the branch of its real part; shape (n,)."""
        if self.upper_half:
            power = np.where(power.real > 0.5, power, 1.0 - power)
        exponent = self.log_weight[None, :] + power[:, None] * self.log_ratio[None, :]
        peak = exponent.real.max(axis=1)
        if not self.upper_half:
            total = np.exp(exponent - peak[:, None]).sum(axis=1)
            # Far along a contour the sum may vanish within rounding.
            return peak + np.log(np.where(total == 0.0, 1e-300, total))
        peak = np.maximum(peak, 0.0)
        loss = np.maximum(self.log_ratio, 0.0)
        factors = np.expm1((1.0 - power)[:, None] * loss) * np.expm1(-power[:, None] * loss)
        return peak + np.log(np.exp(-peak) + (np.exp(exponent - peak[:, None]) * factors).sum(axis=1))


def _log_sum(exponents: Floats) -> float:
    """log of the sum of exponentials; scipy's takes longer to call than to compute here."""
    peak = float(exponents.max())
    return peak + math.log(float(np.exp(exponents - peak).sum()))


def _relative(family: Family, mixture: Mixture, x: Floats, log_mass: Floats) -> tuple[Floats, Floats, Floats]:
    """(log A, A - 1, mass times A - 1) of a mixture with density f A, at nodes of f with these masses."""
    if mixture.shifts == (0.0,):
        zeros = np.zeros_like(x)
        return zeros, zeros, zeros
    minus_one, weighted, log_far = np.zeros_like(x), np.zeros_like(x), np.full_like(x, -math.inf)
    mass = np.exp(log_mass)
    for weight, shift in zip(mixture.weights, mixture.shifts, strict=True):
        z = shift * x - 0.5 * shift**2 if family is Family.GAUSSIAN else np.abs(x) - np.abs(x - shift)
        log_far = np.logaddexp(log_far, math.log(weight) + z)
        if shift != 0.0:
            minus_one += weight * np.expm1(np.minimum(z, 700.0))
            weighted += weight * (np.exp(log_mass + z) - mass)
    near = np.abs(minus_one) < 0.5
    return np.where(near, np.log1p(np.where(near, minus_one, 0.0)), log_far), minus_one, weighted


def _gaussian_nodes(pair: Pair, order: float, start: float) -> tuple[Floats, Floats] | None:
    """(x, log of f dx) up to _REACH beyond every peak of f A^p B^{1 - p}, 1 - order <= p <= order; from ``start`` on."""
    upper, lower = pair.upper, pair.lower
    # The integrand's logarithm has the slope -x + p s + (1 - p) t, s and t the posterior mean shifts of A and B at x: within the
    # mixtures' shifts, and increasing in x. For p < 0 and x <= 0, s is at most its value at 0.
    high = max(0.0, order * upper.shifts[-1] + (1.0 - order) * lower.shifts[0], (1.0 - order) * upper.shifts[0] + order * lower.shifts[-1])
    low = min(
        0.0, order * upper.shifts[0] + (1.0 - order) * lower.shifts[-1], (1.0 - order) * _mean_at_zero(upper) + order * lower.shifts[0]
    )
    low, high = max(low - _REACH, start), high + _REACH
    span = max(upper.span, lower.span)
    if start > -math.inf:
        # A half-line has an end, where the trapezoid rule would be poor.
        nodes = _panels(np.array([low, high]), max(1.0, span))
        return None if nodes is None else (nodes[0], nodes[1] - 0.5 * nodes[0] ** 2 - _LOG_SQRT_2PI)
    # A and B have zeros from Im x = pi / span on, and keep their size up to half of it: the step shrinks with 1 / span.
    step = min(_STEP, 0.25 / span) if span > 0.0 else _STEP
    if not (high - low) / step <= MOST_NODES:
        return None
    x = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * np.float64(step)
    return x, math.log(step) - 0.5 * x**2 - _LOG_SQRT_2PI


def _mean_at_zero(mixture: Mixture) -> float:
    """The posterior mean shift at x = 0, or a little more where likelihoods would underflow."""
    likelihood = [weight * math.exp(-0.5 * min(shift**2, 1400.0)) for weight, shift in zip(mixture.weights, mixture.shifts, strict=True)]
    return math.fsum(a * shift for a, shift in zip(likelihood, mixture.shifts, strict=True)) / math.fsum(likelihood)


def _laplace_nodes(pair: Pair, order: float, start: float) -> tuple[Floats, Floats] | None:
    """(x, log of f dx): panels between the densities' kinks, and one node for each of the tails, where A and B are constant."""
    kinks = sorted({0.0, start, *pair.upper.shifts, *pair.lower.shifts})
    edges = np.array([kink for kink in kinks if kink >= start and kink > -math.inf])
    # Between kinks the integrand is entire except for branch points at |Im x| = pi / 2; e^{2 order x} is the steepest it gets.
    nodes = _panels(edges, max(2.0, order / 4.0))
    if nodes is None:
        return None
    x, log_width = nodes
    log_mass = log_width - np.abs(x) - math.log(2.0)
    ends = [edges[-1]] if start > -math.inf else [edges[0], edges[-1]]
    # A node at an end stands for the whole tail beyond it: int e^{-|x|} / 2.
    return np.append(x, ends), np.append(log_mass, [-abs(float(end)) - math.log(2.0) for end in ends])


def _panels(edges: Floats, density: float) -> tuple[Floats, Floats] | None:
    """(x, log of dx) of Gauss and Legendre's rule with 16 points on every panel, at least ``density`` panels a unit between edges."""
    numbers = np.maximum(np.ceil(np.diff(edges) * density), 1.0)
    if not float(numbers.sum()) * len(_POINTS) <= MOST_NODES:
        return None
    pieces: list[Floats] = [np.linspace(a, b, int(n) + 1)[:-1] for a, b, n in zip(edges, edges[1:], numbers, strict=False)]
    bounds: Floats = np.append(np.concatenate(pieces), edges[-1])
    half, middle = 0.5 * np.diff(bounds)[:, None], 0.5 * (bounds[1:] + bounds[:-1])[:, None]
    return (middle + half * _POINTS).ravel(), np.log(half * _WEIGHTS).ravel()


def _crossing(pair: Pair) -> float:
    """Where P begins to exceed Q. Its error hardly matters: (R^k - 1)(R - R^-k) vanishes there to second order."""
    low, high = pair.lower.shifts[0], pair.upper.shifts[-1]
    point, nothing = np.zeros(1), np.zeros(1)
    for _ in range(60):
        point[0] = 0.5 * (low + high)
        upper, lower = (_relative(pair.family, mixture, point, nothing)[1][0] for mixture in (pair.upper, pair.lower))
        low, high = (point[0], high) if upper <= lower else (low, point[0])
    return float(high)
