r"""The papers' page: experiments recomputed by the service, and every row of the errata."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.calculators import catalogue
from zetadp.app.papers.router import REPORTS
from zetadp.app.web.rendering import page
from zetadp.app.web.vocabulary import VOCABULARY
from zetadp.mechanisms.errata import ERRATA

router = APIRouter()

SEVERITIES = {
    "O": ("promises too much", "bad"),
    "o": ("too much in one reading", "bad"),
    "W": ("wrong but harmless", "warn"),
    "L": ("looser than needed", "soft"),
    "N": ("notation", "soft"),
    "U": ("without evidence", "warn"),
    "OK": ("right", "good"),
}
"""Each severity in words, with its colour."""


@router.get("/papers", response_class=HTMLResponse)
def read_papers() -> HTMLResponse:
    """The five papers and the errata."""
    calculators = {row: one.kind for one in reversed(catalogue.list_mechanisms()) for row in one.facts.errata}
    return page(
        "papers.html",
        "Papers",
        current="/papers",
        modules=("core.js", "papers.js"),
        papers=tuple(REPORTS),
        errata=ERRATA,
        severities=SEVERITIES,
        calculators=calculators,
    )


@router.get("/vocabulary", response_class=HTMLResponse)
def read_vocabulary() -> HTMLResponse:
    """The vocabulary."""
    return page("vocabulary.html", "Vocabulary", current="/vocabulary", vocabulary=VOCABULARY)
