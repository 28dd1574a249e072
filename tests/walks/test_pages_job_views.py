"""What one looks at of a job: parts of its curves, kinds of its events, its log, and another run beside it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import submit, wait_for_state
from tests.walks.pages import PHONE, Complaints, Service, give_key
from tests.walks.test_pages_jobs import shows

pytestmark = pytest.mark.slow

DRAWN = "#plots figure :is(path[stroke-width='2'], g[stroke-width='2'] path)"


@pytest.fixture
def page(window: Any, service: Service, key: str) -> Generator[Any]:
    """A page that has the key; what it complains of is in ``page.complaints``."""
    found = window.new_page()
    found.complaints = Complaints()
    found.complaints.watch(found)
    give_key(found, service.address, key)
    yield found
    found.close()


def test_curves_are_zoomed_saved_and_laid_over_another_run_and_events_are_filtered(
    page: Any, client: httpx2.Client, service: Service
) -> None:
    runs = [submit(client), submit(client)]
    for job in runs:
        wait_for_state(client, job, "succeeded")
    page.goto(f"{service.address}/jobs/{runs[0]}")
    page.locator("#plots figure", has_text="Epsilon spent").locator("svg").wait_for()
    whole = page.locator(DRAWN).first.get_attribute("d")
    page.fill("#zoom-from", "5")
    page.fill("#zoom-to", "9")
    page.wait_for_function("([drawn, whole]) => document.querySelector(drawn)?.getAttribute('d') !== whole", arg=[DRAWN, whole])
    # Fewer points, and none of them left out of the file.
    assert len(page.locator(DRAWN).first.get_attribute("d")) < len(whole)
    page.fill("#zoom-to", "3")
    page.locator("#zoom-to-problem", has_text="must be larger").wait_for()
    page.click("#zoom-all")
    with page.expect_download() as saved:
        page.click("#figures-csv")
    rows = [line.split(",") for line in saved.value.path().read_text().splitlines()]
    assert rows[0] == ["step", "time", "figure", "value"]
    assert {row[2] for row in rows[1:]} >= {"epsilon", "roc_auc"}
    page.select_option("#event-kind", "checkpoint")
    assert {row.get_attribute("data-kind") for row in page.locator("#events tr:visible").all()} == {"checkpoint"}
    page.select_option("#overlay", runs[1])
    page.locator("#runs tr").nth(1).wait_for()
    assert page.url.endswith(f"/jobs/compare?id={runs[0]}&id={runs[1]}")
    assert page.complaints.lines == []


SITES = [
    {"name": "north", "answered": True, "arrived": 4, "charged": 5},
    {"name": "south", "answered": False, "arrived": 3, "charged": 4, "refusal": "budget"},
    {"name": "east", "answered": False, "arrived": 0},
]


def test_a_federations_sites_are_a_table_of_who_answered_and_why_not(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    wait_for_state(client, job, "succeeded")
    report = {"event": "sites", "round": 5, "rounds": 20, "sites": SITES}
    told = {"number": 1, "attempt": 1, "time": "2026-01-01T00:00:00Z", "data": report}
    over = told | {"number": 2, "data": {"event": "state", "state": "succeeded", "reason": None}}
    body = f"event: sites\nid: 1\ndata: {json.dumps(told)}\n\nevent: state\nid: 2\ndata: {json.dumps(over)}\n\n"
    page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#sites tr").nth(2).wait_for()
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#sites tr").all()]
    assert rows == [
        ["north", "answered", "4 of 20", "5 of 20"],
        ["south", "refuses: its own budget admits no further round", "3 of 20", "4 of 20"],
        ["east", "missing", "0 of 20", "not known"],
    ]
    assert page.inner_text("#sites-round").startswith("Round 5 of 20: 1 of 3 sites answered. Each site's budget")
    assert "south refuses: its own budget admits no further round; east is missing" in page.inner_text("#events")
    page.set_viewport_size({"width": PHONE, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert page.complaints.lines == []


def test_only_a_log_that_was_read_is_said_to_have_no_lines(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    wait_for_state(client, job, "succeeded")
    gone = json.dumps({"type": "key-needed", "title": "This needs a key.", "status": 401})
    page.route("**/logs", lambda route: route.fulfill(status=401, content_type="application/problem+json", body=gone))
    page.goto(f"{service.address}/jobs/{job}")
    shows(page, "succeeded")
    page.click("#log-part summary")
    page.locator('#log[data-state="ended"]', has_text="needs a valid key").wait_for()
    page.unroute("**/logs")
    page.route("**/logs", lambda route: route.fulfill(content_type="text/event-stream", body=""))
    page.reload()
    shows(page, "succeeded")
    page.click("#log-part summary")
    page.locator('#log[data-state="ended"]', has_text="No log lines.").wait_for()
    # A count that changes with every line would be read out with every line.
    assert page.locator("#log-part [role=status], #log-part [aria-live]").count() == 0


def test_what_the_spent_epsilon_means_knows_how_many_units_there_are(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    wait_for_state(client, job, "succeeded")
    units = client.get(f"/v1/jobs/{job}").json()["units"]
    assert units > 100
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#meaning-part summary").wait_for()
    with page.expect_request("**/v1/meanings") as asked:
        page.click("#meaning-part summary")
    assert asked.value.post_data_json["units"] == units


def test_runs_that_are_no_longer_heard_of_say_so_and_another_keys_are_gone(page: Any, client: httpx2.Client, service: Service) -> None:
    runs = [submit(client), submit(client)]
    for job in runs:
        wait_for_state(client, job, "succeeded")
    gone = json.dumps({"type": "gone", "title": "Gone.", "status": 410, "detail": "The events are gone."})
    page.route("**/events", lambda route: route.fulfill(status=410, content_type="application/problem+json", body=gone))
    page.goto(f"{service.address}/jobs/compare?id={runs[0]}&id={runs[1]}")
    page.locator("#runs tr", has_text="As of before: The events are gone.").nth(1).wait_for()
    page.unroute_all()
    page.reload()
    page.locator("#plots figure svg").first.wait_for()
    page.locator("#plots figure summary").first.click()  # somebody reads a plot
    page.evaluate("sessionStorage.removeItem('zetadp-key'); document.dispatchEvent(new CustomEvent('zetadp-key'))")
    page.locator("#trouble", has_text="private").wait_for()
    page.locator("#runs tr").first.wait_for(state="detached")
    assert page.locator("#plots figure").count() == 0
