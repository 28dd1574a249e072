r"""Lines of a derivation, and what two values of mu mean for epsilon and delta, infinity included."""

from __future__ import annotations

import math
from functools import lru_cache

from accountants.gdp import GdpProfile
from app.calculators.compare.finding import PointComparison, compared_at
from mechanisms import Step
from mechanisms.logspace import exp_up

PAPER = "spectral_dp"
PROOF = "mechanisms/proofs/spectral.md"


def given(symbol: str, value: float) -> Step:
    """A number of the request."""
    return Step(symbol=symbol, value=value, formula="given", source="request")


def step(symbol: str, value: float | str, formula: str, source: str = PROOF) -> Step:
    """One line of a derivation."""
    return Step(symbol=symbol, value=value, formula=formula, source=source)


def consequences(
    printed: float, proven: float, epsilons: tuple[float, ...], deltas: tuple[float, ...]
) -> tuple[tuple[PointComparison, ...], tuple[PointComparison, ...]]:
    """delta at each epsilon and epsilon at each delta, under both values of mu; infinite mu protects nothing."""
    return (
        tuple(compared_at(at, _delta(printed, at), _delta(proven, at)) for at in epsilons),
        tuple(compared_at(at, _epsilon(printed, at), _epsilon(proven, at)) for at in deltas),
    )


# Most findings of one answer share their printed mu, and many the proved one.
@lru_cache(maxsize=64)
def _delta(mu: float, epsilon: float) -> float:
    return 1.0 if math.isinf(mu) else min(1.0, exp_up(GdpProfile(mu, ()).log_delta_upper(epsilon)))


@lru_cache(maxsize=64)
def _epsilon(mu: float, delta: float) -> float:
    return math.inf if math.isinf(mu) else GdpProfile(mu, ()).epsilon_upper(delta)
