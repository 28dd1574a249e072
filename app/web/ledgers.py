r"""The pages of budgets: a list with a form for a new one, and one budget with its bars, reservations and history."""

from __future__ import annotations

import re

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.accountants.filters import DEFAULT_ORDERS
from zetadp.app.submissions.router import ID_PATTERN
from zetadp.app.web.rendering import page
from zetadp.app.web.wording.words import CHOICES
from zetadp.mechanisms import Adjacency

router = APIRouter()


@router.get("/ledgers", response_class=HTMLResponse)
def list_ledgers() -> HTMLResponse:
    """A tenant's budgets, newest first."""
    return page(
        "ledgers.html",
        "Budgets",
        current="/ledgers",
        modules=("core.js", "ledgers.js"),
        adjacencies={one.value: CHOICES[one.value] for one in Adjacency},
        orders=",".join(repr(order) for order in DEFAULT_ORDERS),
    )


@router.get("/ledgers/{ledger_id}", response_class=HTMLResponse)
def read_ledger(ledger_id: str) -> HTMLResponse:
    """One budget's page. Only the API tells whether the budget exists, and only to its tenant."""
    if re.fullmatch(ID_PATTERN, ledger_id) is None:
        return page("missing.html", "Not found", current="/ledgers", status=404, what="budget", name=ledger_id)
    return page("ledger.html", "Budget", current="/ledgers", modules=("core.js", "ledger.js"), ledger=ledger_id)
