"""What the pages of jobs say while no worker is alive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.app import jobs_harness as harness
from tests.walks.pages import Complaints, Service, give_key, keep_key

pytestmark = pytest.mark.slow

SENTENCE = "No worker is running at the moment, so jobs wait until one is started."


def test_pages_of_jobs_say_that_no_worker_is_alive_until_one_is(chromium: Any, tmp_path: Path) -> None:
    service = Service(harness.settings(tmp_path))
    service.start()
    context, complaints = chromium.new_context(), Complaints()
    try:
        page = context.new_page()
        complaints.watch(page)
        with service.client() as client:
            waiting, ended = harness.submit(client), harness.submit(client)
            client.post(f"/v1/jobs/{ended}/cancel").raise_for_status()
            page.goto(f"{service.address}/jobs/new")
            keep_key(page)
            paths = ("/jobs", "/jobs/new", f"/jobs/{waiting}")
            for path in paths:
                page.goto(service.address + path)
                page.locator("#no-worker .notice").wait_for()
                assert page.inner_text("#no-worker") == SENTENCE
            with page.expect_response("**/readyz"):
                page.goto(f"{service.address}/jobs/{ended}")
            page.locator("#state", has_text="cancelled").wait_for()
            assert page.inner_text("#no-worker") == ""
            with harness.working(service.settings):
                harness.wait_for_state(client, waiting, "succeeded")
                for path in paths:
                    with page.expect_response("**/readyz"):
                        page.goto(service.address + path)
                    assert page.inner_text("#no-worker") == ""
        assert complaints.lines == []
    finally:
        context.close()
        service.end()


METRICS = """zetadp_queue_depth 0
zetadp_jobs_in_hand 0
zetadp_unfinished_worker_deaths 0
zetadp_disk_free_bytes 6e10
zetadp_disk_bytes 1e11
zetadp_webhooks_waiting 0
zetadp_webhooks_failing {failing}
"""


@pytest.mark.parametrize(("failing", "verdict"), [(0, "All checks pass"), (2, "Needs attention: webhooks waiting")])
def test_the_operators_verdict_is_of_everything_below_it(failing: int, verdict: str, window: Any, service: Service, key: str) -> None:
    page = window.new_page()
    give_key(page, service.address, key)
    page.route("**/readyz", lambda route: route.fulfill(json={"checks": [{"name": "database", "ok": True, "needed": True, "detail": ""}]}))
    page.route("**/v1/hardware", lambda route: route.fulfill(json={"workers": []}))
    page.route("**/metrics", lambda route: route.fulfill(content_type="text/plain", body=METRICS.format(failing=failing)))
    page.goto(f"{service.address}/operations")
    page.locator("#verdict", has_text=verdict).wait_for()
    assert "none was recorded" not in page.inner_text("#figures")  # it isn't said whether there was one
    page.unroute_all()
    page.route("**/metrics", lambda route: route.fulfill(status=500, body=""))
    page.reload()
    page.locator("#verdict", has_text="Not everything could be read.").wait_for()
    page.close()


def test_operators_figures_that_could_not_be_read_again_say_of_when_they_are(window: Any, service: Service, key: str) -> None:
    page = window.new_page()
    give_key(page, service.address, key)
    page.route("**/metrics", lambda route: route.fulfill(content_type="text/plain", body=METRICS.format(failing=0)))
    page.goto(f"{service.address}/operations")
    page.locator("#figures li").first.wait_for()
    assert "was read on" not in page.inner_text("#trouble")
    page.unroute_all()
    page.route("**/metrics", lambda route: route.fulfill(status=500, body=""))
    page.locator("#trouble", has_text="What is shown below was read on").wait_for()  # it looks again every five seconds
    assert page.is_visible("#figures")
    # What another key may not see isn't left from this one.
    with page.expect_request("**/metrics"):
        page.evaluate("document.dispatchEvent(new CustomEvent('zetadp-key'))")
    assert not page.is_visible("#figures")
    page.close()


def test_an_operators_answer_that_comes_after_a_later_one_is_not_shown(window: Any, service: Service, key: str) -> None:
    page = window.new_page()
    give_key(page, service.address, key)
    page.route("**/readyz", lambda route: route.fulfill(json={"checks": [{"name": "database", "ok": True, "needed": True, "detail": ""}]}))
    page.route("**/v1/hardware", lambda route: route.fulfill(json={"workers": []}))
    held: list[Any] = []
    page.route("**/metrics", lambda route: held.extend([route]))
    with page.expect_request("**/metrics"):
        page.goto(f"{service.address}/operations")
    with page.expect_request("**/metrics"):
        page.evaluate("document.dispatchEvent(new CustomEvent('zetadp-key'))")
    while len(held) < 2:  # the browser tells of a request before it hands it over
        page.evaluate("() => null")
    early, late = held
    late.fulfill(content_type="text/plain", body=METRICS.format(failing=0))
    page.locator("#verdict", has_text="All checks pass").wait_for()
    with page.expect_response("**/metrics"):
        early.fulfill(content_type="text/plain", body=METRICS.format(failing=2))
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert page.inner_text("#verdict") == "All checks pass, and no figure needs attention."
    page.close()


ELSEWHERE = """zetadp_backup_timestamp_seconds {backup}
zetadp_log_entries 12
zetadp_log_head_entries 11
zetadp_log_head_timestamp_seconds 1700000000
zetadp_log_head_witnesses {signed}
zetadp_log_witnesses {asked}
"""


@pytest.mark.parametrize(
    ("signed", "asked", "words", "verdict"),
    [
        (2, 2, "2 of 2 witnesses signed its head of 11 entries", "All checks pass"),
        (1, 2, "1 of 2 witnesses", "Needs attention: log entries"),
    ],
)
def test_operators_see_the_last_backup_and_what_witnesses_signed(
    signed: int, asked: int, words: str, verdict: str, window: Any, service: Service, key: str
) -> None:
    page = window.new_page()
    give_key(page, service.address, key)
    page.route("**/readyz", lambda route: route.fulfill(json={"checks": [{"name": "database", "ok": True, "needed": True, "detail": ""}]}))
    page.route("**/v1/hardware", lambda route: route.fulfill(json={"workers": []}))
    text = METRICS.format(failing=0) + ELSEWHERE.format(backup=1_700_000_000, signed=signed, asked=asked)
    page.route("**/metrics", lambda route: route.fulfill(content_type="text/plain", body=text))
    page.goto(f"{service.address}/operations")
    page.locator("#verdict", has_text=verdict).wait_for()
    assert words in page.inner_text("#figures")
    assert re.search(r"\d+ days ago", page.inner_text("#figures"))
    # The head as everybody gets it, with its signatures.
    assert "\u2014 " in page.inner_text("#checkpoint")
    page.close()
