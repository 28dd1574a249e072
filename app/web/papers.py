r"""The papers' pages: verdicts first, then experiments recomputed by the service and rows of the errata."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.calculators import catalogue
from zetadp.app.papers.router import SUMMARIES
from zetadp.app.web.rendering import page
from zetadp.app.web.wording.vocabulary import VOCABULARY
from zetadp.mechanisms.errata import ERRATA, Erratum, Paper, Severity

router = APIRouter()

SEVERITIES: dict[Severity, tuple[str, str]] = {
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
    """The five papers, verdicts first, and every row of the errata."""
    return page(
        "papers.html",
        "Papers",
        current="/papers",
        modules=("core.js", "papers.js"),
        papers=tuple(SUMMARIES.values()),
        verdicts={paper: _verdicts(_rows(paper)) for paper in SUMMARIES},
        errata=ERRATA,
        severities=SEVERITIES,
        calculators=_calculators(),
    )


@router.get("/papers/{name}", response_class=HTMLResponse)
def read_paper(name: str) -> HTMLResponse:
    """One paper: what holds, its experiments recomputed, and its rows of the errata."""
    found = next((one for one in SUMMARIES.values() if one.paper == name), None)
    if found is None:
        return page("missing.html", "Not found", current="/papers", status=404, what="paper", name=name)
    rows = _rows(found.paper)
    return page(
        "paper.html",
        found.title,
        current="/papers",
        modules=("core.js", "paper.js"),
        paper=found,
        verdicts=_verdicts(rows),
        errata=rows,
        severities=SEVERITIES,
        calculators=_calculators(),
    )


def _rows(paper: Paper) -> tuple[Erratum, ...]:
    return tuple(row for row in ERRATA if row.paper == paper)


def _verdicts(rows: tuple[Erratum, ...]) -> list[tuple[str, str, int]]:
    """How many statements there are of each severity that occurs, the gravest first: (words, colour, count)."""
    counts = Counter(row.severity for row in rows)
    return [(*SEVERITIES[severity], counts[severity]) for severity in SEVERITIES if counts[severity]]


def _calculators() -> dict[str, str]:
    """A row of the errata: the calculator that it is about."""
    return {row: one.kind for one in reversed(catalogue.list_mechanisms()) for row in one.facts.errata}


@router.get("/vocabulary", response_class=HTMLResponse)
def read_vocabulary() -> HTMLResponse:
    """The vocabulary."""
    return page("vocabulary.html", "Vocabulary", current="/vocabulary", vocabulary=VOCABULARY)
