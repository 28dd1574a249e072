"""Every page that the service has, in a browser that reaches no other host: nothing fails to load, no script complains, and it is light."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from tests.app.jobs_harness import ADMIN_KEY, submit, wait_for_state
from tests.selection import chosen
from tests.walks.pages import Complaints, Service
from zetadp.app.calculators import catalogue, proofs
from zetadp.app.papers.router import REPORTS
from zetadp.app.web.live_forms import COMPARISONS
from zetadp.app.web.router import PARTS, router

pytestmark = pytest.mark.slow

MOST_BYTES = 300_000
"""Of a page with all that it loads, as it goes over the wire."""
OF_THE_API = {"/docs": 700_000, "/redoc": 700_000}
"""Their libraries alone weigh more."""
ROUTES = sorted({route.path for part in (router, *PARTS) for route in part.routes if isinstance(route, APIRoute)})
VALUES = {
    "/calculators/{kind}": ("training", "event", *(one.kind for one in catalogue.list_mechanisms())),
    "/comparisons/{name}": tuple(COMPARISONS),
    "/papers/{name}": tuple(REPORTS),
    "/proofs/{name}": tuple(entry.name for entry in proofs.list_proofs()),
    "/jobs/{job_id}": ("{job_id}",),
    "/ledgers/{ledger_id}": ("{ledger_id}",),
}
"""What stands for a route's parameter: words, or the names of what a test makes. Another route with a parameter needs its values here."""


def expanded(route: str) -> list[str]:
    """The route with each value of its parameter, if it has one."""
    named = re.search(r"\{(\w+)\}", route)
    return [route] if named is None else [route.replace(named[0], value) for value in VALUES[route]]


PATHS = [path for route in ROUTES for path in expanded(route)]
HEAVIEST = ["/calculators/training", "/docs"]
"""Those with most scripts; walks over the others see for themselves that nothing complains."""


@pytest.fixture(scope="module")
def made(client: httpx2.Client) -> dict[str, str]:
    """A job that succeeded and a budget, by the names of paths."""
    job = submit(client)
    body = {"name": "one", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    ledger = client.post("/v1/ledgers", json=body).json()["id"]
    wait_for_state(client, job, "succeeded")
    return {"job_id": job, "ledger_id": ledger}


@pytest.mark.parametrize("path", chosen(PATHS, HEAVIEST))
def test_a_page_loads_from_here_alone_without_complaint_and_is_light(
    path: str, service: Service, key: str, made: dict[str, str], chromium: Any
) -> None:
    context, complaints = chromium.new_context(), Complaints()
    # Not typed on another page, whose files would then be here already and weigh nothing. Operators are of the service's own tenant.
    context.add_init_script(f"sessionStorage.setItem('zetadp-key', '{ADMIN_KEY if path == '/operations' else key}')")
    page = context.new_page()
    complaints.watch(page)
    sent: list[Any] = []
    page.on("requestfinished", lambda request: sent.extend([request]))
    page.goto(service.address + path.format(**made))
    page.wait_for_load_state("networkidle")
    sizes = [request.sizes() for request in sent]
    weight = sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes)
    context.close()
    assert complaints.lines == []
    assert [url for url in complaints.requested if not url.startswith((service.address, "data:", "blob:"))] == []
    assert 0 < weight <= OF_THE_API.get(path, MOST_BYTES)
