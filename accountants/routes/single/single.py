r"""One release: its delta is a closed form of tail functions (``densities``), exact to rounding in both directions of neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.arithmetic import within_floats
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.grids.hockey_stick import calls, reverse
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, narrowed, widened
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.routes.rdp.rdp import leaf_steps
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor

ROUTE = "single"

SMALLEST_DELTA = 1e-298
"""Below it the little that each underflow may lose (``TINY``) is more than a hundredth of delta, and this route has no answer."""

_LEAST_POWER, _LARGEST_POWER, _POINTS = -120, 110, 34

Floats = NDArray[np.float64]


@final
class SingleProfile(PrivacyProfile):
    """The profile of one release, whole or sampled."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        pair = pair_of(leaf)
        self._upper, self._lower = _orders(widened(pair)), _orders(narrowed(pair))

    @property
    def route(self) -> str:
        return ROUTE

    def delta(self, epsilon: float) -> DeltaBound:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=ROUTE)
        with within_floats(ROUTE):
            high, low = self._delta_upper(epsilon), self._delta_lower(epsilon)
        if 0.0 < high < SMALLEST_DELTA:
            raise NumericalFloor("delta", high, SMALLEST_DELTA, "use accountant rdp, which has no floor")
        log_upper = math.log(high) if high > 0.0 else -math.inf
        log_lower = math.log(low) if low > 0.0 else -math.inf
        return DeltaBound(log_lower=log_lower, log_upper=min(log_upper, 0.0), route=ROUTE)

    def epsilon(self, delta: float) -> Bound:
        check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise NumericalFloor("delta", delta, SMALLEST_DELTA, "use accountant rdp, which has no floor")
        with within_floats(ROUTE):
            lower, upper = self._smallest(delta, lower_end=True), self._smallest(delta, lower_end=False)
        return Bound(lower=lower, upper=upper, route=ROUTE)

    def derivation(self) -> tuple[Step, ...]:
        formula = "H(e^eps) = P(L > eps) - e^eps Q(L > eps), the larger of both orders of the pair"
        return (
            *leaf_steps({self._leaf: 1}),
            Step(symbol="delta(eps)", value=formula, formula="one release in closed form", source="accountants/proofs/fft.md, section 1"),
        )

    def _delta_upper(self, epsilon: float) -> float:
        return float(self._uppers(np.array([epsilon], dtype=np.float64))[0])

    def _delta_lower(self, epsilon: float) -> float:
        return float(self._lowers(np.array([epsilon], dtype=np.float64))[0])

    def _uppers(self, epsilons: Floats) -> Floats:
        return np.max([calls(pair, epsilons).upper for pair in self._upper], axis=0)

    def _lowers(self, epsilons: Floats) -> Floats:
        return np.max([calls(pair, epsilons).lower for pair in self._lower], axis=0)

    def _smallest(self, delta: float, *, lower_end: bool) -> float:
        """An epsilon at which the upper end is at most delta, or the last one tried at which the lower end is still above delta."""
        values = self._lowers if lower_end else self._uppers
        if float(values(np.zeros(1))[0]) <= delta:
            return 0.0
        # value(left) > delta >= value(right) throughout: each gives one end of epsilon.
        powers = np.asarray(2.0 ** np.arange(_LEAST_POWER, _LARGEST_POWER), dtype=np.float64)
        above = values(powers) > delta
        if above[-1]:
            return float(powers[-1]) if lower_end else max(_largest_loss(pair) for pair in self._upper)
        first = int(np.argmin(above))
        left, right = float(powers[first - 1]) if first else 0.0, float(powers[first])
        while right - left > 4e-16 * right:
            points = np.asarray(np.linspace(left, right, _POINTS), dtype=np.float64)
            if not points[0] < points[1] < points[2]:
                break
            last = int(np.argmin(values(points[1:-1]) > delta)) if float(values(points[-2:-1])[0]) <= delta else _POINTS - 2
            left, right = float(points[last]), float(points[last + 1])
        return left if lower_end else right


def _largest_loss(pair: Pair) -> float:
    """A bound on the loss; infinite if there is none as simple as the distance itself."""
    return pure_epsilon(pair) if pair.is_plain else math.inf


def _orders(pair: Pair) -> tuple[Pair, ...]:
    return (pair,) if pair.symmetric else (pair, reverse(pair))


@final
class SingleAccountant(Accountant):
    """Exactly one release of any mechanism with a dominating pair: whole, sampled or for a group."""

    name = ROUTE
    summary = "One release, whole or sampled, in closed form: exact to rounding."
    sources = ("Zhu, Dong and Wang 2022, arXiv:2106.08567", "accountants/proofs/pairs.md", "accountants/proofs/fft.md")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        if sum(parts.values()) != 1:
            return "it has more than one release"
        return next((reason for leaf in parts if (reason := unsupported_reason(leaf)) is not None), None)

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        return SingleProfile(next(iter(parts)))
