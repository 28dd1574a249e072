"""The pages that need a key, with something on them: whole, readable by a screen reader in both schemes, and no wider than a phone."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import Order, spec, submit, wait_for_state
from tests.selection import chosen
from tests.walks.pages import DESK, PHONE, Complaints, Service, give_key

READY = {
    "list of jobs": '#list[aria-busy="false"] tr',
    "new job": '#form[aria-busy="false"]',
    "job": "#files tr, #plots figure",
    "failed job": "#failure p",
    "list of budgets": '#list[aria-busy="false"] svg',
    "budget": "#entries tr >> nth=3",
    "certificate": "#document .verdict",
}
"""Each page, and what is there once it is filled."""


@pytest.fixture(scope="module")
def paths(client: httpx2.Client) -> dict[str, str]:
    """A budget that is spent from, a job that succeeded, one that failed, a certificate."""
    budget = {"kind": "rdp_target", "epsilon": 1.0, "delta": 1e-5, "orders": [4.0, 16.0, 64.0]}
    made = {"name": "scans of ward 7", "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    ledger = client.post("/v1/ledgers", json=made).json()["id"]
    body = {"spec": spec(), "runtime": {"microbatch_size": 1, "checkpoint_seconds": 0.01}, "ledger": ledger, "labels": {"ward": "7"}}
    job = client.post("/v1/jobs", json=body).json()["id"]
    failed = submit(client, Order.FAIL)
    wait_for_state(client, job, "succeeded")
    wait_for_state(client, failed, "failed")
    client.post(f"/v1/ledgers/{ledger}/reservations", json={"spend": {"kind": "zcdp", "rho": 0.001}})
    certificate = client.get(f"/v1/jobs/{job}").json()["certificate"]
    return {
        "list of jobs": "/jobs",
        "new job": "/jobs/new",
        "job": f"/jobs/{job}",
        "failed job": f"/jobs/{failed}",
        "list of budgets": "/ledgers",
        "budget": f"/ledgers/{ledger}",
        "certificate": f"/certificates#{certificate}",
    }


def filled(context: Any, service: Service, key: str, path: str, ready: str, complaints: Complaints | None = None) -> Any:
    """The page with everything on it."""
    page = context.new_page()
    give_key(page, service.address, key)
    if complaints is not None:
        complaints.watch(page)
    page.goto(service.address + path)
    page.locator(ready).first.wait_for()
    return page


@pytest.mark.parametrize("name", chosen(READY, ["job"]))
def test_a_page_loads_whole_and_fits_a_desk_and_a_phone(
    name: str, paths: dict[str, str], chromium: Any, service: Service, key: str
) -> None:
    context, complaints = chromium.new_context(), Complaints()
    page = filled(context, service, key, paths[name], READY[name], complaints)
    widths: list[int] = []
    cut = 0
    for width in (DESK, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        widths.append(page.evaluate("document.documentElement.scrollWidth"))
    # A table whose rows are stacked on a phone isn't to be scrolled sideways.
    for table in page.locator(".scroll:has(> table.stacked)").all():
        cut += table.evaluate("(box) => box.scrollWidth > box.clientWidth")
    context.close()
    assert complaints.lines == []
    assert cut == 0
    assert all(url.startswith((service.address, "data:", "blob:")) for url in complaints.requested)
    assert widths[0] <= DESK
    assert widths[1] <= PHONE


@pytest.mark.parametrize("scheme", chosen(["light", "dark"], ["light"]))
@pytest.mark.parametrize("name", chosen(READY, ["job"]))
def test_axe_finds_nothing(name: str, scheme: str, paths: dict[str, str], chromium: Any, service: Service, key: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = filled(context, service, key, paths[name], READY[name])
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    found = Axe().run(page).response["violations"]
    context.close()
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
