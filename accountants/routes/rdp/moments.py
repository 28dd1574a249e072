r"""Moments of a dominating pair: log E_Q[(dP/dQ)^power], for real and complex powers, by quadrature.

The Renyi divergences and moment functions of both directions are such moments: order a of P against Q is power a, and of Q against P
power 1 - a. The family provides the nodes (``densities``). A pair's "worse direction" has different moments (proofs/pairs.md): integrals
over the half-line where P exceeds Q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.pairs import Pair

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_SMALL = 0.05
_SERIES_TERMS = 12


@final
@dataclass(frozen=True)
class PairMoments:
    """Quadrature nodes of Q with R = dP/dQ at each, valid for |power| up to the order that they were made for.

    Attributes:
      log_weight: log of Q's mass at each node.
      log_ratio: log R.
      minus_one: R - 1 where it is small, exact to its last digits; 1 elsewhere.
      weighted_minus_one: Q's mass times R - 1, stored separately because R alone may overflow where the mass makes it harmless.
      upper_half: whether the nodes cover R > 1 only; the moments are then those of the pair's worse direction.
    """

    log_weight: Floats
    log_ratio: Floats
    minus_one: Floats
    weighted_minus_one: Floats
    upper_half: bool

    @classmethod
    def of(cls, pair: Pair, order: float) -> Self | None:
        """Nodes for powers from 1 - order to order, or None if there would be too many."""
        if pair.shown < 1.0:
            whole = cls.of(Pair(pair.family, pair.upper, pair.lower), order)
            return None if whole is None else whole._shown(pair.shown)
        nodes = pair.family.ratio_nodes(pair.upper, pair.lower, order, upper_half=pair.worst_of_both)
        return None if nodes is None else cls(*nodes, upper_half=pair.worst_of_both)

    def _shown(self, shown: float) -> Self:
        """The moments of the pair shown with this probability; otherwise the loss is 0."""
        return type(self)(
            log_weight=np.append(self.log_weight + math.log(shown), math.log1p(-shown)),
            log_ratio=np.append(self.log_ratio, 0.0),
            minus_one=np.append(self.minus_one, 0.0),
            weighted_minus_one=np.append(shown * self.weighted_minus_one, 0.0),
            upper_half=False,
        )

    def log_moment(self, power: float) -> float:
        """log E_Q[R^power] for a real power outside [0, 1]: >= 0, and accurate even if it is 1e-20."""
        if self.upper_half:
            return self._log_half_moment(max(power, 1.0 - power) - 1.0)
        direct = _log_sum(self.log_weight + power * self.log_ratio)
        if direct > 0.5:
            return direct
        # E u = 0, so E (1 + u)^p - 1 = E [(1 + u)^p - 1 - p u], whose terms all have one sign: nothing cancels across nodes. Near
        # u = 0 each term is computed from its binomial series, elsewhere directly.
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
    """log of the sum of exponentials; calling scipy's function would take longer than the computation."""
    peak = float(exponents.max())
    return peak + math.log(float(np.exp(exponents - peak).sum()))
