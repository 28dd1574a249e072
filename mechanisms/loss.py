r"""Privacy loss: a dominating pair (P, Q) of one release, with the functions that accountants need.

For neighbours with output laws P and Q let L(x) = log dP/dQ(x). A mechanism is described by one pair that dominates all others in the
hockey-stick divergence H_{e^eps}(P || Q) at every eps, in both orders; such pairs compose (Zhu, Dong and Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from zetadp.mechanisms.numerics import logspace
from zetadp.mechanisms.numerics.gdp import gdp_log_delta
from zetadp.mechanisms.numerics.integer_laws import LONG, GaussianLaw, GaussianSumLaw, IntegerLaw, LaplaceLaw, Long
from zetadp.mechanisms.numerics.rounding import rounded_up

_JOINT_NODES = 20
_FURTHEST_TILT = 2**15
"""How far the mass may lie of which moments of noise on whole numbers are summed; those of larger orders aren't known."""


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

    @property
    @abstractmethod
    def distance(self) -> float:
        """The distance of P from Q in units of the noise's scale: the parameter of this loss within its family."""

    @property
    def gdp_mu(self) -> float | None:
        """mu if the pair is N(0, 1) against N(mu, 1), otherwise None."""
        return None

    @property
    def pure_epsilon(self) -> float | None:
        """The largest loss if it is finite, otherwise None."""
        return None

    @property
    def renyi_slope(self) -> Fraction | None:
        """rho with Renyi divergences of at most order rho at every order, exactly computed; None if none is known.

        mu^2 / 2 of mu-GDP, epsilon^2 / 2 of epsilon-DP (Bun and Steinke 2016, Propositions 1.6 and 3.3).
        """
        size = self.pure_epsilon if self.gdp_mu is None else self.gdp_mu
        return None if size is None else Fraction(size) ** 2 / 2


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
    def pure_epsilon(self) -> float | None:
        return self.epsilon


@final
@dataclass(frozen=True)
class JointLoss(PrivacyLoss):
    r"""N(0, 1) against N(mu, 1) and, independently, Lap(0, 1) against Lap(epsilon, 1): both kinds of noise on what one sample holds.

    >>> round(JointLoss(1.0, 0.5).renyi(2.0) - LaplaceLoss(0.5).renyi(2.0), 6)
    1.0
    """

    mu: float
    epsilon: float

    def log_delta(self, epsilon: float) -> float:
        """By quadrature over the Laplace coordinate's loss, to about 1e-9 of delta: accountants have a proved bracket."""
        far = self.epsilon
        edges = np.linspace(-far, far, 2 * math.ceil(1.0 + far / self.mu) + 1)
        points, weights = np.polynomial.legendre.leggauss(_JOINT_NODES)
        half = 0.5 * np.diff(edges)[:, None]
        losses, shares = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * points).ravel(), (half * weights).ravel()
        masses = 0.25 * shares * np.exp(0.5 * (losses - far))
        terms = [mass * self._gaussian(epsilon - loss) for loss, mass in zip(losses.tolist(), masses.tolist(), strict=True)]
        ends = 0.5 * self._gaussian(epsilon - far), 0.5 * math.exp(-far) * self._gaussian(epsilon + far)
        total = math.fsum((*terms, *ends))
        return math.log(total) if total > 0.0 else -math.inf

    def _gaussian(self, epsilon: float) -> float:
        if epsilon >= 0.0:
            return math.exp(gdp_log_delta(self.mu, epsilon))
        # H_g(P || Q) = 1 - g + g H_{1/g}(Q || P).
        return -math.expm1(epsilon) + math.exp(epsilon + gdp_log_delta(self.mu, -epsilon))

    def renyi(self, order: float) -> float:
        return GaussianLoss(self.mu).renyi(order) + LaplaceLoss(self.epsilon).renyi(order)

    @property
    def distance(self) -> float:
        return self.mu


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
    def pure_epsilon(self) -> float | None:
        return self.epsilon


@final
@dataclass(frozen=True)
class RangeLoss(PrivacyLoss):
    r"""The worst of all pairs whose losses lie in an interval of length eta, such as the exponential mechanism's.

    delta(eps) = (1 - e^{(eps - eta) / 2})^2 / (1 - e^-eta) for |eps| <= eta: at each eps some two-point pair of that range attains it,
    and none attains it everywhere. So composing this pair is valid, and looser than the Renyi divergences: at most order eta^2 / 8.
    Proof: proofs/declared.md.

    Attributes:
      eta: > 0.

    >>> round(math.exp(RangeLoss(1.0).log_delta(0.0)), 6)
    0.244919
    """

    eta: float

    def log_delta(self, epsilon: float) -> float:
        if epsilon >= self.eta:
            return -math.inf
        return 2.0 * logspace.log_one_minus_exp(0.5 * (epsilon - self.eta)) - logspace.log_one_minus_exp(-self.eta)

    def renyi(self, order: float) -> float:
        return min(0.125 * order * self.eta**2, self.eta)

    @property
    def renyi_slope(self) -> Fraction:
        return Fraction(self.eta) ** 2 / 8

    @property
    def distance(self) -> float:
        return self.eta

    @property
    def pure_epsilon(self) -> float | None:
        return self.eta


@final
@dataclass(frozen=True)
class ConcentratedLoss(PrivacyLoss):
    r"""Any pair with Renyi divergences of at most order rho in both directions, for every order > 1: rho-zCDP. Bun and Steinke 2016.

    Of no such pair is it known that it dominates all others, so only Renyi accounting answers, and ``log_delta`` is a bound.

    Attributes:
      rho: > 0.
    """

    rho: float

    def log_delta(self, epsilon: float) -> float:
        return 0.0 if epsilon <= self.rho else -((epsilon - self.rho) ** 2) / (4.0 * self.rho)

    def renyi(self, order: float) -> float:
        return order * self.rho

    @property
    def renyi_slope(self) -> Fraction:
        return Fraction(self.rho)

    @property
    def distance(self) -> float:
        return math.sqrt(2.0 * self.rho)


@final
@dataclass(frozen=True)
class FailingLoss(PrivacyLoss):
    r"""Randomized response at epsilon or, with probability delta, everything: the worst (epsilon, delta)-DP pair.

    Kairouz, Oh and Viswanath 2015, Theorem 3.4. Its loss is infinite with probability delta, so no Renyi divergence is finite.

    Attributes:
      epsilon: >= 0.
      delta: in (0, 1).
    """

    epsilon: float
    delta: float

    def log_delta(self, epsilon: float) -> float:
        rest = ResponseLoss(self.epsilon).log_delta(epsilon) if self.epsilon > 0.0 else -math.inf
        return logspace.log_add(math.log(self.delta), math.log1p(-self.delta) + rest)

    def renyi(self, order: float) -> float:
        del order
        return math.inf

    @property
    def distance(self) -> float:
        return self.epsilon


@final
@dataclass(frozen=True)
class IntegerLoss(PrivacyLoss):
    r"""A law f of noise on the whole numbers against f(x - m), m = distance scale.

    Attributes:
      law: of the noise.
      distance_in_scales: m / law.scale.

    >>> round(math.exp(IntegerLoss(LaplaceLaw(2.0), 0.5).log_delta(0.0)), 6)
    0.244919
    """

    law: IntegerLaw
    distance_in_scales: float

    @property
    def moves(self) -> int:
        """m: a distance that was stretched by a rounding allowance is still the same whole number."""
        return round(self.distance_in_scales * self.law.scale)

    def log_delta(self, epsilon: float) -> float:
        logs = self._logs(0)
        p, q = np.exp(logs[: len(logs) - self.moves]), np.exp(logs[self.moves :])
        delta = float(np.maximum(p - np.exp(np.longdouble(epsilon)) * q, 0.0).sum() / np.exp(logs).sum())
        return math.log(delta) if delta > 0.0 else -math.inf

    def renyi(self, order: float) -> float:
        m = self.moves
        match self.law:
            case GaussianLaw():
                return 0.5 * order * self.distance_in_scales**2  # Canonne, Kamath and Steinke 2020, Theorem 14
            case LaplaceLaw(b=b):
                # For x <= 0 the ratio is e^{-m / b}, for x >= m e^{m / b}, and e^{(2x - m) / b} between them; sums of f are geometric.
                half = -logspace.log_one_minus_exp(-1.0 / b)
                between = [(order * (2 * x - m) - x) / b for x in range(1, m)]
                total = logspace.log_sum([half - order * m / b, half + (order - 1.0) * m / b, *between])
                return min((total + math.log(math.tanh(0.5 / b))) / (order - 1.0) * (1.0 + 1e-12), m / b)
            case _:
                slope = self.renyi_slope
                bound = math.inf if slope is None else order * float(slope) * (1.0 + 1e-12)
                if order * m > _FURTHEST_TILT:
                    return bound
                logs = self._logs(self.law.tilted(math.ceil((order + 1.0) * m)))
                one, other = logs[: len(logs) - m], logs[m:]
                error = self.law.error(len(logs)) + (len(logs) + 8.0 * float(-logs.min())) * LONG
                log_moment = _log_sum(order * one - (order - 1.0) * other) - _log_sum(logs) + 2.0 * order * error
                return min(bound, log_moment / (order - 1.0) * (1.0 + 1e-12))

    @property
    def distance(self) -> float:
        return self.distance_in_scales

    @property
    def pure_epsilon(self) -> float | None:
        return rounded_up(self.moves / Fraction(self.law.b)) if isinstance(self.law, LaplaceLaw) else None

    @property
    def renyi_slope(self) -> Fraction | None:
        match self.law:
            case GaussianLaw(sigma=scale) | LaplaceLaw(b=scale):
                return (self.moves / Fraction(scale)) ** 2 / 2
            case GaussianSumLaw():
                return self.law.concentration(self.moves)
            case _:
                return None

    def _logs(self, further: int) -> Long:
        """log f, whose m-th entry on from that of x - m is that of x."""
        reach = self.law.reach + self.moves + further
        return self.law.log_weights(np.arange(-reach, reach + 1, dtype=np.int64))


def _log_sum(logs: Long) -> float:
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum()))
