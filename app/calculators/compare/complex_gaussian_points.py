r"""What two values of mu, printed and proved, mean at the points asked for; and how proved numbers are rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from accountants.gdp import GdpProfile
from accountants.gdp_inversion import MU_ERROR
from app.calculators.compare.finding import ROUNDING, PointComparison, compared_at, direction_of
from mechanisms import ComplexGaussian, Step
from mechanisms.logspace import exp_up

_SMALL = 1e-290


@final
@dataclass(frozen=True)
class Points:
    """Where a comparison is asked for."""

    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()
    orders: tuple[float, ...] = ()
    mus: tuple[float, ...] = ()


def raised(mu: float) -> float:
    """mu, a few roundings away from its exact value, as an upper bound."""
    return mu * (1.0 + MU_ERROR)


def consequences(printed: float | None, proven: float, points: Points) -> tuple[tuple[PointComparison, ...], tuple[PointComparison, ...]]:
    """delta and epsilon under the printed and the proved mu; nothing where the print gives none."""
    if printed is None:
        return (), ()
    if math.isclose(printed, proven, rel_tol=ROUNDING):
        # Far in the tail a rounding of mu would show as a difference of delta.
        printed = proven
    told, true = GdpProfile(printed, ()), GdpProfile(proven, ())
    deltas = tuple(_delta_at(epsilon, told.log_delta_upper(epsilon), true.log_delta_upper(epsilon)) for epsilon in points.epsilons)
    return deltas, tuple(compared_at(delta, told.epsilon_upper(delta), true.epsilon_upper(delta)) for delta in points.deltas)


def _delta_at(epsilon: float, printed: float, proven: float) -> PointComparison:
    told, true = min(1.0, exp_up(printed)), min(1.0, exp_up(proven))
    if min(told, true) > _SMALL:
        return compared_at(epsilon, told, true)
    # Both may be the smallest float: their logarithms still tell them apart.
    ratio = math.exp(min(printed - proven, 700.0)) if printed > -math.inf and proven > -math.inf else None
    return PointComparison(at=epsilon, printed=told, proven=true, ratio=ratio, direction=direction_of(printed, proven, "smaller"))


def bounds(mechanism: ComplexGaussian) -> tuple[float, float, float]:
    """(l2, bound on the real part, bound on the imaginary part) of the mechanism's sensitivity."""
    stated = mechanism.sensitivity
    assert stated.l2 is not None  # a complex Gaussian has one
    return stated.l2, stated.l2 if stated.l2_real is None else stated.l2_real, stated.l2 if stated.l2_imag is None else stated.l2_imag


def is_circular(mechanism: ComplexGaussian) -> bool:
    """Whether both components have one deviation and no correlation."""
    std_real, std_imag = mechanism.stds
    return std_real == std_imag and mechanism.correlation == 0.0


def given(symbol: str, value: float, source: str) -> Step:
    """A number of the request."""
    return Step(symbol=symbol, value=value, formula="given", source=source)


def step(symbol: str, value: float, formula: str, source: str) -> Step:
    """One line of a derivation."""
    return Step(symbol=symbol, value=value, formula=formula, source=source)
