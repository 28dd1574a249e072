r"""Moments of a Poisson-sampled release: log E_Q[(1 - q + q e^L)^power], for real and complex powers, by quadrature.

For a dominating pair (P, Q) of the release, sampling with probability q has the pairs (M, Q) when a record is removed and (Q, M) when
one is added, M = (1 - q) Q + q P (Zhu, Dong and Wang 2022, Theorem 11; the null record contributes nothing). Both directions'
Renyi divergences and moment functions are such powers of dM/dQ = 1 - q + q e^L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accountants.events import Leaf

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MOST_NODES = 400_000
"""Beyond this many quadrature nodes an order isn't worth its time and memory; it is left out, which only makes a bound larger."""

_SMALL = 0.05
_SERIES_TERMS = 14


@final
@dataclass(frozen=True)
class SampledMoments:
    """Quadrature nodes of Q with log(1 - q + q e^L) at each, good for |power| up to the order they were made for."""

    log_weight: Floats
    log_ratio: Floats
    minus_one: Floats
    weighted_minus_one: Floats

    @classmethod
    def of(cls, leaf: Leaf, order: float) -> Self | None:
        """Nodes for one leaf, or None where they would be too many."""
        if leaf.mechanism.privacy_loss().node_count(order) > MOST_NODES:
            return None
        loss, log_weight = leaf.mechanism.privacy_loss().reference_nodes(order)
        q = leaf.probability
        # u = q (e^L - 1); its weighted form is kept apart since e^L alone may overflow where the weight makes it harmless.
        near = np.abs(loss) < 1.0
        minus_one = q * np.expm1(np.minimum(loss, 700.0))
        log_far = np.logaddexp(math.log1p(-q) if q < 1.0 else -math.inf, math.log(q) + loss)
        log_ratio = np.where(near, np.log1p(np.where(near, minus_one, 0.0)), log_far)
        weighted = q * (np.exp(log_weight + loss) - np.exp(log_weight))
        return cls(log_weight, log_ratio, minus_one, weighted)

    def log_moment(self, power: float) -> float:
        """log E_Q[(dM/dQ)^power] for a real power outside [0, 1]: >= 0, accurate also where it is 1e-20."""
        direct = float(special.logsumexp(self.log_weight + power * self.log_ratio))
        if direct > 0.5:
            return direct
        # E u = 0, so E (1 + u)^p - 1 = E [(1 + u)^p - 1 - p u], whose terms all have one sign: nothing cancels across nodes. Near
        # u = 0 each term is taken from its binomial series, elsewhere directly.
        small = np.abs(self.minus_one) * max(1.0, abs(power)) < _SMALL
        u = np.where(small, self.minus_one, 0.0)
        term, series = np.ones_like(u), np.zeros_like(u)
        for k in range(1, _SERIES_TERMS):
            term = term * u * (power - k + 1) / k
            if k >= 2:
                series += term
        weight = np.exp(self.log_weight)
        plain = np.exp(self.log_weight + power * self.log_ratio) - weight - power * self.weighted_minus_one
        return math.log1p(max(0.0, float(np.sum(np.where(small, weight * series, plain)))))

    def log_moment_complex(self, power: Complexes) -> Complexes:
        """log E_Q[(dM/dQ)^power] for complex powers of shape (n,), with the branch of its real part; shape (n,)."""
        exponent = self.log_weight[None, :] + power[:, None] * self.log_ratio[None, :]
        peak = exponent.real.max(axis=1)
        return peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1))
