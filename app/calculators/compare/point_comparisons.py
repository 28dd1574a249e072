r"""What two values of mu, printed and proven, mean at the requested points; the rounding of proven numbers; lines of a derivation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.accountants.routes.closed.gdp_inversion import MU_ERROR
from zetadp.app.calculators.compare.finding import ROUNDING, PointComparison, compared_at, direction_of
from zetadp.mechanisms import Step
from zetadp.mechanisms.numerics.logspace import exp_up

_SMALL = 1e-290


@final
@dataclass(frozen=True)
class Points:
    """The points at which a comparison is requested."""

    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()
    orders: tuple[float, ...] = ()
    mus: tuple[float, ...] = ()


def raised(mu: float) -> float:
    """An upper bound on the exact value of a mu that is off by a few roundings."""
    return mu * (1.0 + MU_ERROR)


def consequences(printed: float | None, proven: float, points: Points) -> tuple[tuple[PointComparison, ...], tuple[PointComparison, ...]]:
    """delta and epsilon under the printed and the proved mu, which may be infinite; nothing if the print gives none."""
    if printed is None:
        return (), ()
    if math.isclose(printed, proven, rel_tol=ROUNDING):
        # Far in the tail a rounding of mu would appear as a difference of delta.
        printed = proven
    deltas = tuple(_delta_at(epsilon, _log_delta(printed, epsilon), _log_delta(proven, epsilon)) for epsilon in points.epsilons)
    return deltas, tuple(compared_at(delta, _epsilon(printed, delta), _epsilon(proven, delta)) for delta in points.deltas)


# Most findings of one answer share their printed mu, and many the proved one.
@lru_cache(maxsize=256)
def _log_delta(mu: float, epsilon: float) -> float:
    return 0.0 if math.isinf(mu) else GdpProfile(mu, ()).log_delta_upper(epsilon)


@lru_cache(maxsize=256)
def _epsilon(mu: float, delta: float) -> float:
    return math.inf if math.isinf(mu) else GdpProfile(mu, ()).epsilon_upper(delta)


def _delta_at(epsilon: float, printed: float, proven: float) -> PointComparison:
    delta_printed, delta_proven = min(1.0, exp_up(printed)), min(1.0, exp_up(proven))
    if min(delta_printed, delta_proven) > _SMALL:
        return compared_at(epsilon, delta_printed, delta_proven)
    # Both may be the smallest float; their logarithms still differ.
    ratio = math.exp(min(printed - proven, 700.0)) if printed > -math.inf and proven > -math.inf else None
    return PointComparison(
        at=epsilon, printed=delta_printed, proven=delta_proven, ratio=ratio, direction=direction_of(printed, proven, "smaller")
    )


def given(symbol: str, value: float, source: str = "request") -> Step:
    """A number of the request."""
    return Step(symbol=symbol, value=value, formula="given", source=source)


def step(symbol: str, value: float | str, formula: str, source: str) -> Step:
    """One line of a derivation."""
    return Step(symbol=symbol, value=value, formula=formula, source=source)
