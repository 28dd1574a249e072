r"""The pages. They contain no tenant data: the browser gets it from the API with the key kept in its tab."""

from __future__ import annotations

import math
from fractions import Fraction

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.accountants.attack_sentences import EVEN_ODDS, FALSE_POSITIVES, guessing_sentence, naming_sentence, percent_up
from zetadp.accountants.conversions import posterior
from zetadp.accountants.trade_off import Line
from zetadp.app.calculators import catalogue
from zetadp.app.web.calculators import router as calculators_router
from zetadp.app.web.certificates import router as certificates_router
from zetadp.app.web.conversions import router as conversions_router
from zetadp.app.web.documentation import router as documentation_router
from zetadp.app.web.jobs import router as jobs_router
from zetadp.app.web.ledgers import router as ledgers_router
from zetadp.app.web.live_forms import router as asking_router
from zetadp.app.web.papers import router as papers_router
from zetadp.app.web.proofs import router as proofs_router
from zetadp.app.web.rendering import page
from zetadp.app.web.start import router as start_router
from zetadp.mechanisms import Adjacency

PARTS = (
    calculators_router,
    papers_router,
    asking_router,
    conversions_router,
    proofs_router,
    jobs_router,
    ledgers_router,
    certificates_router,
    start_router,
    documentation_router,
)
"""Every page but the first; a test opens all of them."""

STANDING = (
    "/",
    "/calculators",
    "/certificates",
    "/comparisons",
    "/conversions",
    "/docs",
    "/jobs",
    "/jobs/new",
    "/ledgers",
    "/noise-shapes",
    "/papers",
    "/proofs",
    "/redoc",
    "/start",
    "/vocabulary",
)
"""Pages that are the same for everybody, whatever they are asked with."""

SHOWN = ("0.1", "0.5", "1", "2", "4", "8")
"""Epsilons that the first page explains, at delta 0."""
EXPLAINED = "1"
"""The one of them that it puts in words."""
_NEIGHBOURS = (Adjacency.ADD_REMOVE, "person")

router = APIRouter(include_in_schema=False)
for part in PARTS:
    router.include_router(part)


@router.get("/", response_class=HTMLResponse)
def read_root() -> HTMLResponse:
    """The service's parts as cards, and what epsilon means in a few figures."""
    odds = [(epsilon, percent_up(1 - Fraction(missed(float(epsilon)))), percent_up(Fraction(right(float(epsilon))))) for epsilon in SHOWN]
    return page(
        "home.html",
        "Privacy accounting",
        current="/",
        mechanisms=catalogue.list_mechanisms(),
        odds=odds,
        epsilon=EXPLAINED,
        sentences=explained(float(EXPLAINED)),
    )


def missed(epsilon: float) -> float:
    r"""The least probability of missing a unit that is there, at ``FALSE_POSITIVES`` and delta 0; rounded down.

    The larger of 1 - e^epsilon a and e^-epsilon (1 - a), for a the probability of naming one that isn't (Kairouz, Oh and Viswanath 2015).

    >>> round(missed(1.0), 6)
    0.972817
    """
    return max(0.0, *(Line(signed, -math.inf).false_negative_rate(FALSE_POSITIVES) for signed in (epsilon, -epsilon)))


def right(epsilon: float) -> float:
    r"""The largest probability of guessing correctly at even odds whether a unit is there: e^epsilon / (1 + e^epsilon), rounded up.

    At delta 0.

    >>> round(right(1.0), 6)
    0.731059
    """
    return posterior(epsilon, EVEN_ODDS)


def explained(epsilon: float) -> tuple[str, str]:
    """What this epsilon means at delta 0, in the sentences that calculators and certificates use."""
    return naming_sentence(FALSE_POSITIVES, missed(epsilon), _NEIGHBOURS), guessing_sentence(EVEN_ODDS, right(epsilon), _NEIGHBOURS)
