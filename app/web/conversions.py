r"""The page of conversions: one notion of privacy in terms of all others, answered while you type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.accountants.notions import KINDS, matrix
from zetadp.app.web.rendering import page

router = APIRouter()


@final
@dataclass(frozen=True)
class Notion:
    """A notion's name, its numbers as (name, label, initial value), and what it says."""

    label: str
    numbers: tuple[tuple[str, str, str], ...]
    says: str


NOTIONS = {
    "pure": Notion("Pure: epsilon", (("epsilon", "Epsilon", "1"),), "No output favours a neighbour by more than e^epsilon."),
    "approximate": Notion(
        "Approximate: epsilon and delta",
        (("epsilon", "Epsilon", "1"), ("delta", "Delta", "0.00001")),
        "Any outcome is at most e^epsilon times as probable as with a neighbour, plus delta.",
    ),
    "zcdp": Notion("Concentrated: rho", (("rho", "Rho", "0.5"),), "The Renyi divergence of every order is at most rho times the order."),
    "rdp": Notion(
        "Renyi: a divergence at one order",
        (("order", "Order", "8"), ("value", "Divergence", "1")),
        "The Renyi divergence at this order is at most this.",
    ),
    "gdp": Notion("Gaussian: mu", (("mu", "Mu", "1"),), "No attack does better than telling N(0, 1) from N(mu, 1)."),
    "trade_off": Notion(
        "Trade-off: one pair of errors",
        (("alpha", "False positives", "0.05"), ("beta", "False negatives", "0.8")),
        "A test that names one unit this often when it is absent misses the same unit at least this often when it is present.",
    ),
    "advantage": Notion("Advantage", (("value", "Advantage", "0.1"),), "An attack's true minus false positive rate is at most this."),
}
"""Keyed by the kind that the API uses."""


@router.get("/conversions", response_class=HTMLResponse)
def read_conversions() -> HTMLResponse:
    """One notion in terms of all others, and how each pair converts."""
    return page(
        "conversions.html",
        "Conversions between notions of privacy",
        current="/calculators",
        modules=("core.js", "conversions.js"),
        notions={kind: NOTIONS[kind] for kind in KINDS},
        pairs=matrix(),
    )
