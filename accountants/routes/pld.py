r"""Privacy loss distributions by Google's dp-accounting library: the second opinion, and for now the route for sampled Gaussians.

Its discretisation is pessimistic (upper end) and optimistic (lower end) in exact arithmetic. The library doesn't bound its FFT's rounding,
which is why it falls below the truth at small delta. Here every delta includes an allowance for this rounding, and deltas below a floor
are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, final

from zetadp.accountants.accountant import Accountant
from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import Bound, DeltaBound, PrivacyProfile, check_delta, check_epsilon
from zetadp.accountants.routes.rdp.rdp import RdpProfile, leaf_steps
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import NumericalFloor

ROUTE = "pld"

SMALLEST_DELTA = 1e-8
"""Below it the library's rounding was observed to understate epsilon ((q .01, multiplier 1, 10000 steps): by .048 at 1e-12)."""

LARGEST_LOSS = 2e3
"""Beyond this epsilon (by the Renyi bound at delta 1e-12) the grid would be too coarse to be of use."""

MOST_RELEASES = 10**8
"""Beyond it only the allowance for rounding would be visible."""

_FINEST_INTERVAL = 1e-6
_COARSEST_INTERVAL = 1e-2
_GRID_POINTS = 60_000


@final
class PldProfile(PrivacyProfile):
    """The profile of composed discretised privacy loss distributions, upper and lower."""

    def __init__(self, parts: Mapping[Leaf, int], interval: float) -> None:
        self._parts = parts
        self._interval = interval
        # Allowance for rounding: an FFT of a probability vector is off by about 1e-16, raised to the T-th power by about T * 1e-16;
        # ten times that, and at least twenty times the 5e-13 seen at T = 10000.
        self._rounding = 1e-11 + 1e-15 * sum(parts.values())

    @property
    def route(self) -> str:
        return f"{ROUTE}(interval={self._interval:.3g})"

    @cached_property
    def _pessimistic(self) -> Any:
        return _composed(self._parts, self._interval, pessimistic=True)

    @cached_property
    def _optimistic(self) -> Any:
        return _composed(self._parts, self._interval, pessimistic=False)

    def log_delta_upper(self, epsilon: float) -> float:
        check_epsilon(epsilon)
        if epsilon == math.inf:
            return -math.inf
        upper = min(1.0, float(self._pessimistic.get_delta_for_epsilon(epsilon)) + self._rounding)
        if upper < self._floor:
            raise NumericalFloor("delta", upper, self._floor, "request a smaller epsilon, or use accountant rdp or gdp")
        return math.log(upper)

    def delta(self, epsilon: float) -> DeltaBound:
        log_upper = self.log_delta_upper(epsilon)
        if log_upper == -math.inf:
            return DeltaBound(log_lower=-math.inf, log_upper=-math.inf, route=self.route)
        lower = float(self._optimistic.get_delta_for_epsilon(epsilon)) - self._rounding
        return DeltaBound(log_lower=min(math.log(lower), log_upper) if lower > 0.0 else -math.inf, log_upper=log_upper, route=self.route)

    def epsilon_upper(self, delta: float) -> float:
        check_delta(delta)
        if delta < self._floor:
            raise NumericalFloor("delta", delta, self._floor, "use accountant rdp or gdp, which have no floor")
        return _epsilon_at(self._pessimistic, delta - self._rounding)[1]

    def epsilon(self, delta: float) -> Bound:
        upper = self.epsilon_upper(delta)
        lower = _epsilon_at(self._optimistic, delta + self._rounding)[0]
        return Bound(lower=min(lower, upper), upper=upper, route=self.route)

    @property
    def _floor(self) -> float:
        return max(SMALLEST_DELTA, 100.0 * self._rounding)

    def derivation(self) -> tuple[Step, ...]:
        return (
            *leaf_steps(self._parts),
            Step(symbol="h", value=self._interval, formula="grid of the discretised privacy loss", source="dp-accounting 0.6.0"),
            Step(symbol="r", value=self._rounding, formula="allowance for rounding in every delta: 1e-11 + 1e-15 T", source="measured"),
            Step(
                symbol="delta(eps)",
                value="E[(1 - e^(eps - L))_+] of the composed privacy loss L, the larger of both directions",
                formula="pessimistic end of the discretisation",
                source="Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, arXiv:2207.04380",
            ),
        )


def _epsilon_at(distribution: Any, delta: float) -> tuple[float, float]:
    """A narrow interval with delta(left) > delta >= delta(right); (0, 0) if delta(0) is small enough.

    Found by bisection of the library's delta(epsilon): the library's inverse loses its digits beyond epsilon = 700 (1.0 too high at 878).
    """
    if float(distribution.get_delta_for_epsilon(0.0)) <= delta:
        return 0.0, 0.0
    left, right = 0.0, 1.0
    while float(distribution.get_delta_for_epsilon(right)) > delta:
        left, right = right, 2.0 * right
        if right > 1e9:
            return left, math.inf
    while right - left > 1e-10 * right:
        middle = 0.5 * (left + right)
        if float(distribution.get_delta_for_epsilon(middle)) > delta:
            left = middle
        else:
            right = middle
    return left, right


def _composed(parts: Mapping[Leaf, int], interval: float, *, pessimistic: bool) -> Any:
    """The library's distribution of the whole event. It is untyped, hence Any; it stays inside this module."""
    total: Any = None
    for leaf, count in parts.items():
        one = _leaf_distribution(leaf, interval, pessimistic=pessimistic).self_compose(count)
        total = one if total is None else total.compose(one)
    return total


def _leaf_distribution(leaf: Leaf, interval: float, *, pessimistic: bool) -> Any:
    # Imported here because it takes a second and a half and most calculations never need it.
    from dp_accounting.pld import privacy_loss_distribution as peer  # pyright: ignore[reportMissingTypeStubs]

    pair = pair_of(leaf)
    q = pair.upper.weights[-1]
    # The connect-the-dots form is tighter but exists for the upper end only.
    return getattr(peer, f"from_{pair.family.dp_accounting_name}_mechanism")(
        1.0 / pair.upper.shifts[-1],
        pessimistic_estimate=pessimistic,
        value_discretization_interval=interval,
        sampling_prob=q,
        use_connect_dots=pessimistic,
    )


def _pair_reason(leaf: Leaf) -> str | None:
    """Why the library has no distribution of this leaf's dominating pair, or None."""
    if (reason := unsupported_reason(leaf)) is not None:
        return reason
    pair = pair_of(leaf)
    if pair.family.dp_accounting_name is None or pair.shown < 1.0 or pair.crowded is not None:
        return "this route lets the library discretise only Gaussian and Laplace noise, whole or one sampled unit"
    if pair.lower.shifts == (0.0,) and len(pair.upper.shifts) <= 2 and not pair.worst_of_both:
        return None
    return "the library discretises whole releases and one sampled unit only: (1 - q) f(x) + q f(x - d) against f(x)"


@final
class PldAccountant(Accountant):
    """Gaussian, complex Gaussian and Laplace releases, Poisson-sampled or not, repeated and composed."""

    name = ROUTE
    summary = "Discretised privacy loss distributions (dp-accounting), both ends; tight, for deltas of 1e-8 and more."
    sources = ("Koskela, Jalko and Honkela 2020, arXiv:1906.03049", "Doroshenko et al. 2022, arXiv:2207.04380", "dp-accounting 0.6.0")

    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        reason = next((reason for leaf in parts if (reason := _pair_reason(leaf)) is not None), None)
        if reason is not None:
            return reason
        if sum(parts.values()) > MOST_RELEASES:
            return f"more than {MOST_RELEASES:.0e} releases, too many for a grid"
        if not _reach(parts) <= LARGEST_LOSS:
            return f"its privacy loss reaches beyond {LARGEST_LOSS:g}, too far for a grid"
        return None

    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        scale = _reach(parts)
        interval = min(max(scale / _GRID_POINTS, _FINEST_INTERVAL), _COARSEST_INTERVAL)
        return PldProfile(parts, interval)


def _reach(parts: Mapping[Leaf, int]) -> float:
    """How far the privacy loss reaches, by the Renyi bound."""
    return _reach_of(tuple(parts.items()))


@lru_cache(maxsize=256)
def _reach_of(parts: tuple[tuple[Leaf, int], ...]) -> float:
    # Cached, since ``unsupported`` and ``profile`` both need it. Leaves are frozen values, hashed by their fields.
    return RdpProfile(dict(parts), ()).epsilon(1e-12).upper
