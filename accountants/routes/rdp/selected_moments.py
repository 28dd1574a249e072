r"""Renyi divergences of the best of a random number of runs, from those of one run. proofs/selected.md, section 2.

With R the base's divergence of both orders, a negative binomial number K of runs and any order b > 1,

    R_best(a) <= R(a) + (1 + eta) ((1 - 1/b) R(b) + log(1 / gamma) / b) + log E[K] / (a - 1)

(Papernot and Steinke 2022, Theorem 2), where log r of ``selected.ratio`` may take the place of what 1 + eta multiplies. For a Poisson
number of mean m, with delta(eps) of one run and d = delta(log(a / (a - 1))),

    R_best(a) <= R(a) + max(0, m d + log m / (a - 1)),     (a - 1) R_best(a) <= log(e^-m + m e^{(a - 1)(R(a) + m d)})

(ibid., Theorem 6, which leaves out K = 0 and the 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Protocol, final

from zetadp.accountants.selected.largest import shift_of_pure
from zetadp.accountants.selected.ratio import log_ratio
from zetadp.mechanisms.declared.runs import AnyRuns, PoissonRuns
from zetadp.mechanisms.numerics import logspace

_ROUNDING = 1e-13
"""Relative allowance for sums of a few terms: every term is >= 0, and correct to some units in its last place."""


class Base(Protocol):
    """What is needed of one run's Renyi profile."""

    def rdp(self, order: float) -> float | None: ...

    def log_delta_upper(self, epsilon: float) -> float: ...

    def best(self, cost: Callable[[float], float]) -> tuple[float, float]:
        """(order, cost) near the minimum over orders."""
        ...


@final
class SelectedMoments:
    """Upper bounds on the Renyi divergences of the best run, in both directions of neighbours.

    Args:
      runs: the law of how many there are.
      base: one of them.
      pure: the base's largest loss; may be infinite.
    """

    def __init__(self, runs: AnyRuns, base: Base, pure: float) -> None:
        self._runs, self._base, self._pure = runs, base, pure

    def renyi(self, order: float) -> float:
        """Of this order > 1. A divergence never falls in its order, and the bounds do near 1: the best one above it counts there."""
        best_order, best = self._best
        return min(self._bound(order), best) if order < best_order else self._bound(order)

    @cached_property
    def _best(self) -> tuple[float, float]:
        return self._base.best(self._bound)

    def _bound(self, order: float) -> float:
        renyi, mean = self._renyi(order), self._runs.mean
        if renyi == math.inf:
            return math.inf
        if not isinstance(self._runs, PoissonRuns):
            return (renyi + self._shift + math.log(mean) / (order - 1.0)) * (1.0 + _ROUNDING)
        delta = logspace.exp_up(self._base.log_delta_upper(-math.log1p(-1.0 / order) * (1.0 - _ROUNDING)))
        more = max(0.0, mean * delta + math.log(mean) / (order - 1.0) + _ROUNDING * abs(math.log(mean)) / (order - 1.0))
        exponent = (order - 1.0) * (renyi + mean * delta)
        with_none = logspace.log_add(-mean, math.log(mean) + exponent)
        # For a small mean both terms are near 1 and near 0, and their sum near 1: its rounding counts absolutely.
        with_none += _ROUNDING * (1.0 + abs(math.log(mean)) + exponent)
        return min((renyi + more) * (1.0 + _ROUNDING), with_none / (order - 1.0))

    @cached_property
    def _shift(self) -> float:
        """(1 + eta) log of the largest ratio of gamma + (1 - gamma) G between neighbours, G the probability of a better run."""
        assert not isinstance(self._runs, PoissonRuns)
        t = self._runs.spread.high
        by_order = self._base.best(lambda b: ((b - 1.0) * self._renyi(b) + t) / b)[1] if t > 0.0 else 0.0
        by_delta = log_ratio(self._runs, self._base.log_delta_upper)
        found = (1.0 + self._runs.eta) * min(by_order, by_delta) * (1.0 + _ROUNDING)
        return found if self._pure == math.inf else min(found, shift_of_pure(self._runs, self._pure))

    def _renyi(self, order: float) -> float:
        value = self._base.rdp(order)
        assert value is not None  # Renyi accounting has every order
        return value
