r"""Privacy filters: time of a spend, early and after a hundred thousand of them, for each currency; and of one that is an event."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zetadp.accountants import PoissonSampled, Release
from zetadp.accountants.filters import (
    AnyBudget,
    Filter,
    GdpBudget,
    GdpSpend,
    PureBudget,
    PureSpend,
    RdpSpend,
    RdpTargetBudget,
    Spend,
    ZcdpBudget,
    ZcdpSpend,
)
from zetadp.mechanisms import Adjacency, Gaussian, Sensitivity

_SPENDS = 100_000
_BLOCK = 1000
_ORDERS = (4.0, 8.0, 16.0)


def run() -> Iterator[str]:
    """The report's lines."""
    yield f"filters: microseconds a spend, spends 1 to {_BLOCK} and {_SPENDS - _BLOCK + 1} to {_SPENDS}, and their ratio (constant time: 1)"
    renyi = RdpTargetBudget(epsilon=3.0, delta=1e-6, orders=_ORDERS)
    noise = Gaussian(std=3e3, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))
    sampled = PoissonSampled(probability=1e-3, event=Release(mechanism=noise))
    cases: tuple[tuple[str, AnyBudget, Spend, int], ...] = (
        ("pure", PureBudget(epsilon=1.0), PureSpend(epsilon=1e-6 / 3.0), _SPENDS),
        ("zcdp", ZcdpBudget(rho=1.0), ZcdpSpend(rho=1e-6 / 3.0), _SPENDS),
        ("gdp", GdpBudget(mu=1.0), GdpSpend(mu=1e-4 / 3.0), _SPENDS),
        ("renyi, 3 orders", renyi, RdpSpend(orders=_ORDERS, values=(1e-7, 2e-7, 4e-7)), _SPENDS),
        ("gdp, a Gaussian release", GdpBudget(mu=1.0), Release(mechanism=noise), _SPENDS),
        ("renyi, a sampled Gaussian release", renyi, sampled, 2 * _BLOCK),
    )
    for name, budget, spend, number in cases:
        first, last = _times(budget, spend, number)
        yield f"{name:36s} {first * 1e6:9.2f} us {last * 1e6:9.2f} us   ratio {last / first:5.2f}   ({number} spends)"


def _times(budget: AnyBudget, spend: Spend, number: int) -> tuple[float, float]:
    """CPU seconds a spend in the first and in the last block."""
    state = Filter.opened(budget, Adjacency.ADD_REMOVE, "record").spend(spend)
    marks: list[float] = []
    for k in range(number):
        if k in (0, _BLOCK, number - _BLOCK):
            marks.append(time.process_time())
        state = state.spend(spend)
    marks.append(time.process_time())
    return (marks[1] - marks[0]) / _BLOCK, (marks[-1] - marks[-2]) / _BLOCK
