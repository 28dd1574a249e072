r"""Notions of privacy, and each in terms of every other: exactly, as a bound, or not at all. Proofs: proofs/notions.md."""

from __future__ import annotations

from zetadp.accountants.notions.convert import convert
from zetadp.accountants.notions.matrix import PairOfNotions, matrix
from zetadp.accountants.notions.values import (
    KINDS,
    Advantage,
    Approximate,
    Conversion,
    Gdp,
    Kind,
    Notion,
    Pure,
    Rdp,
    Status,
    Target,
    ToAdvantage,
    ToApproximate,
    ToGdp,
    ToPure,
    ToRdp,
    ToTradeOff,
    ToZcdp,
    TradeOff,
    Zcdp,
)

__all__ = [
    "KINDS",
    "Advantage",
    "Approximate",
    "Conversion",
    "Gdp",
    "Kind",
    "Notion",
    "PairOfNotions",
    "Pure",
    "Rdp",
    "Status",
    "Target",
    "ToAdvantage",
    "ToApproximate",
    "ToGdp",
    "ToPure",
    "ToRdp",
    "ToTradeOff",
    "ToZcdp",
    "TradeOff",
    "Zcdp",
    "convert",
    "matrix",
]
