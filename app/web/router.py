r"""The pages. What they show of a tenant they ask the API for, with the key that is kept in the browser's tab: none of it is in these."""

from __future__ import annotations

import math

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.calculators import catalogue
from app.web.asking import router as asking_router
from app.web.calculators import router as calculators_router
from app.web.certificates import router as certificates_router
from app.web.conversions import router as conversions_router
from app.web.documentation import router as documentation_router
from app.web.jobs import router as jobs_router
from app.web.ledgers import router as ledgers_router
from app.web.papers import router as papers_router
from app.web.proofs import router as proofs_router
from app.web.rendering import page
from app.web.start import router as start_router

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
"""Every page but the first; a test opens all that these have."""

SHOWN = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Epsilons that the first page explains."""

router = APIRouter(include_in_schema=False)
for part in PARTS:
    router.include_router(part)


@router.get("/", response_class=HTMLResponse)
def read_root() -> HTMLResponse:
    """What there is, in a few cards; and what epsilon means, in a few figures."""
    odds = [(epsilon, percent_right(epsilon)) for epsilon in SHOWN]
    return page("home.html", "Privacy accounting", current="/", mechanisms=catalogue.list_mechanisms(), odds=odds)


def percent_right(epsilon: float) -> float:
    r"""How often, of 100, the best attacker tells at even odds whether a record was used, at most: 100 e^epsilon / (1 + e^epsilon).

    Rounded up to a tenth. It is the posterior of even odds under pure epsilon-differential privacy (Kairouz, Oh and Viswanath 2015).

    >>> [percent_right(epsilon) for epsilon in (0.0, 1.0)]
    [50.0, 73.2]
    """
    return math.ceil(1000.0 / (1.0 + math.exp(-epsilon))) / 10.0
