r"""Privacy loss: a dominating pair (P, Q) of one release, with the functions that accountants need.

For neighbours with output laws P and Q let L(x) = log dP/dQ(x). A mechanism is described by one pair that dominates all others in the
hockey-stick divergence H_{e^eps}(P || Q) at every eps, in both orders; such pairs compose (Zhu, Dong and Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.numerics import logspace
from zetadp.mechanisms.numerics.gdp import gdp_log_delta

Floats = NDArray[np.float64]


class PrivacyLoss(ABC):
    """A dominating pair, symmetric in its order for every mechanism here (so no ``reverse`` is needed).

    Attributes:
      shown: probability in (0, 1] that the output distinguishes the neighbours at all.
    """

    shown: float = 1.0

    @abstractmethod
    def log_delta(self, epsilon: float) -> float:
        """log H_{e^epsilon}(P || Q), for epsilon >= 0; -inf if delta is 0."""

    @abstractmethod
    def renyi(self, order: float) -> float:
        """The Renyi divergence of this order > 1, equal in both directions."""

    @abstractmethod
    def reference_nodes(self, order: float) -> tuple[Floats, Floats]:
        r"""Nodes (L_i, log w_i), with sum_i w_i f(L_i) = E_Q f(L) for the functions f of a subsampled moment.

        Args:
          order: the largest |power| of e^L that f contains; the nodes reach as far as this power needs.
        Returns:
          losses and log weights, each of shape (nodes,).
        """

    @abstractmethod
    def node_count(self, order: float) -> float:
        """The number of nodes that ``reference_nodes`` would make. Check it first, since a tiny noise scale makes it astronomical."""

    @property
    @abstractmethod
    def distance(self) -> float:
        """The distance of P from Q in units of the noise's scale: the parameter of this loss within its family."""

    @property
    @abstractmethod
    def gdp_mu(self) -> float | None:
        """mu if the pair is N(0, 1) against N(mu, 1), otherwise None."""

    @property
    @abstractmethod
    def pure_epsilon(self) -> float | None:
        """The largest loss if it is finite, otherwise None."""


@final
@dataclass(frozen=True)
class GaussianLoss(PrivacyLoss):
    r"""N(0, 1) against N(mu, 1): L = mu x - mu^2 / 2 under either law. Dong, Roth and Su 2022.

    >>> round(GaussianLoss(1.0).renyi(2.0), 6)
    1.0
    """

    mu: float

    def log_delta(self, epsilon: float) -> float:
        return gdp_log_delta(self.mu, epsilon)

    def renyi(self, order: float) -> float:
        return 0.5 * order * self.mu**2

    @property
    def distance(self) -> float:
        return self.mu

    @property
    def gdp_mu(self) -> float | None:
        return self.mu

    @property
    def pure_epsilon(self) -> float | None:
        return None

    def reference_nodes(self, order: float) -> tuple[Floats, Floats]:
        # Trapezoid rule in x ~ Q = N(0, 1), L = mu x - mu^2 / 2. The tilt e^{order L} moves the mass to order * mu, and its reverse to
        # -order * mu; 14 standard deviations beyond either the integrand is below e^-98 of its peak.
        # A subsampled moment is analytic for |Im x| < pi / mu (1 - q + q e^L vanishes there), hence a step that shrinks with 1 / mu.
        reach, step = self._grid(order)
        x = np.arange(-math.ceil(reach / step), math.ceil(reach / step) + 1) * np.float64(step)
        return self.mu * x - 0.5 * self.mu**2, math.log(step) - 0.5 * x**2 - 0.5 * math.log(2.0 * math.pi)

    def node_count(self, order: float) -> float:
        reach, step = self._grid(order)
        return 2.0 * reach / step

    def _grid(self, order: float) -> tuple[float, float]:
        return 14.0 + order * self.mu, min(1.0 / 8.0, 1.0 / (2.0 * self.mu))


@final
@dataclass(frozen=True)
class LaplaceLoss(PrivacyLoss):
    r"""Lap(0, 1) against Lap(epsilon, 1). proofs/laplace.md shows that one shifted coordinate dominates every shift of that l1 length.

    delta(eps) = 1 - e^{(eps - epsilon) / 2} for 0 <= eps < epsilon, else 0.
    """

    epsilon: float

    def log_delta(self, epsilon: float) -> float:
        if epsilon >= self.epsilon:
            return -math.inf
        return math.log(-math.expm1(0.5 * (epsilon - self.epsilon)))

    def renyi(self, order: float) -> float:
        # Mironov 2017, Proposition 6. For small a e the two terms' sum is 1 up to rounding; there Bun and Steinke 2016, Proposition 3.3
        # (every epsilon-DP mechanism has Renyi divergence at most a epsilon^2 / 2) is nearly equal and has no cancellation.
        a, e = order, self.epsilon
        if a * e < 1e-3:
            return 0.5 * a * e**2
        first = math.log(a / (2.0 * a - 1.0)) + (a - 1.0) * e
        second = math.log((a - 1.0) / (2.0 * a - 1.0)) - a * e
        return min(logspace.log_add(first, second) / (a - 1.0), e)

    @property
    def distance(self) -> float:
        return self.epsilon

    @property
    def gdp_mu(self) -> float | None:
        return None

    @property
    def pure_epsilon(self) -> float | None:
        return self.epsilon

    def reference_nodes(self, order: float) -> tuple[Floats, Floats]:
        # Under Q: L = -e with weight 1/2, L = e with weight e^{-e}/2, and between them L = 2x - e with density e^{-x}/2 on (0, e).
        # There f(L) is entire in x except for the branch points of 1 - q + q e^L at |Im x| = pi/2: panels no longer than 1/2 of
        # 16 Gauss-Legendre points each leave an error below 1e-18 of the panel's maximum; for large orders panels shorten as 1/order.
        e = self.epsilon
        panels = math.ceil(self.node_count(order) / 16.0)
        points, weights = np.polynomial.legendre.leggauss(16)
        edges = np.linspace(0.0, e, panels + 1)
        half = 0.5 * (edges[1:] - edges[:-1])[:, None]
        x = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * points).ravel()
        log_weight = (np.log(half * weights)).ravel() - x - math.log(2.0)
        ends = np.array([-e, e]), np.array([-math.log(2.0), -e - math.log(2.0)])
        return np.concatenate((2.0 * x - e, ends[0])), np.concatenate((log_weight, ends[1]))

    def node_count(self, order: float) -> float:
        return 16.0 * max(1.0, math.ceil(self.epsilon * max(2.0, order / 4.0)))


@final
@dataclass(frozen=True)
class ResponseLoss(PrivacyLoss):
    r"""Randomized response, shown with some probability: L is epsilon, -epsilon or, if nothing is shown, 0.

    Under P, L = epsilon has probability shown e^epsilon / (1 + e^epsilon) and L = -epsilon has shown / (1 + e^epsilon); Q is the mirror
    image. With shown = 1 it dominates every (epsilon, 0)-DP mechanism (Kairouz, Oh and Viswanath 2015, Theorem 3.4).

    Attributes:
      epsilon: > 0.
      shown: probability in (0, 1] that the output distinguishes the neighbours at all.

    >>> round(math.exp(ResponseLoss(1.0).log_delta(0.0)), 6)
    0.462117
    """

    epsilon: float
    shown: float = 1.0

    def log_delta(self, epsilon: float) -> float:
        if epsilon >= self.epsilon:
            return -math.inf
        return math.log(self.shown) + math.log(-math.expm1(epsilon - self.epsilon)) - math.log1p(math.exp(-self.epsilon))

    def renyi(self, order: float) -> float:
        # The moment is 1 + shown x, x = (e^{a e} + e^{(1 - a) e}) / (1 + e^e) - 1 = 2 sinh(a e / 2) sinh((a - 1) e / 2) / cosh(e / 2).
        a, e = order, self.epsilon
        log_x = (a - 1.0) * e + logspace.log_one_minus_exp(-a * e) + logspace.log_one_minus_exp((1.0 - a) * e) - math.log1p(math.exp(-e))
        log_x += math.log(self.shown)
        log_moment = math.log1p(math.exp(log_x)) if log_x < 0.0 else log_x + math.log1p(math.exp(-log_x))
        return min(log_moment / (a - 1.0), e)

    @property
    def distance(self) -> float:
        return self.epsilon

    @property
    def gdp_mu(self) -> float | None:
        return None

    @property
    def pure_epsilon(self) -> float | None:
        return self.epsilon

    def reference_nodes(self, order: float) -> tuple[Floats, Floats]:
        del order  # there are only three atoms
        e, log_shown = self.epsilon, math.log(self.shown)
        likely = -math.log1p(math.exp(-e))
        losses, log_weights = np.array([-e, e]), log_shown + np.array([likely, likely - e])
        if self.shown == 1.0:
            return losses, log_weights
        return np.append(losses, 0.0), np.append(log_weights, math.log1p(-self.shown))

    def node_count(self, order: float) -> float:
        del order
        return 3.0
