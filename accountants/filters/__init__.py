r"""Budgets and filters for fully adaptive spending: the analyst chooses each step and its cost in view of all earlier outputs.

Profiles (delta as a function of epsilon) may not be summed up under such choices; Renyi divergences at fixed orders, rho and mu^2 may.
"""

from __future__ import annotations

from zetadp.accountants.filters.budgets import Budget, GdpBudget, PureBudget, ZcdpBudget
from zetadp.accountants.filters.filter import AnyBudget, Filter, Price, Steps, repetitions
from zetadp.accountants.filters.renyi_budgets import DEFAULT_ORDERS, RdpBudget, RdpTargetBudget
from zetadp.accountants.filters.spends import AnySpend, GdpSpend, PureSpend, RdpSpend, Spend, ZcdpSpend

__all__ = [
    "DEFAULT_ORDERS",
    "AnyBudget",
    "AnySpend",
    "Budget",
    "Filter",
    "GdpBudget",
    "GdpSpend",
    "Price",
    "PureBudget",
    "PureSpend",
    "RdpBudget",
    "RdpSpend",
    "RdpTargetBudget",
    "Spend",
    "Steps",
    "ZcdpBudget",
    "ZcdpSpend",
    "repetitions",
]
