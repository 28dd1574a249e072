"""The pages of budgets with rules in a real browser: such a budget is made, and a training waits there for a second key's approval."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import spec
from tests.walks.pages import Service, give_key, new_key
from tests.walks.test_pages_ledgers import open_
from zetadp.app.access.scopes import Scope


@pytest.fixture
def page(window: Any, service: Service, key: str) -> Generator[Any]:
    found = window.new_page()
    give_key(found, service.address, key)
    yield found
    found.close()


@pytest.mark.slow
def test_a_budget_with_rules_is_made_and_what_is_wrong_with_them_is_said_beside_their_fields(
    page: Any, service: Service, tenant: str
) -> None:
    ann = new_key(service, tenant, Scope.LEDGER).split("_")[1]
    page.goto(f"{service.address}/ledgers")
    page.click("#making summary")
    page.fill("#name", "with rules")
    page.fill("#limit", "1")
    page.click("#ruling summary")
    for field, text, words in (
        ("days", "a month", "Enter a whole number of days"),
        ("days", "0", ">= 1"),
        ("quotas", f"{ann} 50\nben", "Line 2: enter a key's id and a number of percent"),
        ("quotas", f"{ann} 50\nnobody 50", "Entry 2: must be the id of one of your tenant's keys"),
        ("quotas", f"{ann} 150", "Entry 1: must be <= 1"),
        ("quotas", f"{ann} 50\n{ann} 50", "must be distinct"),
        ("purposes", "staffing, <b>x</b>", "Entry 2: "),
        ("purposes", "staffing, staffing", "must be distinct"),
    ):
        page.fill(f"#{field}", text)
        # Where it is folded away, the message unfolds it.
        page.evaluate("document.getElementById('ruling').open = false")
        page.click("#send")
        page.locator(f"#{field}-problem", has_text=words).wait_for()
        assert page.evaluate("document.activeElement.id") == field
        assert page.inner_text("#trouble") == ""
        page.fill(f"#{field}", "")
    page.fill("#days", "90")
    page.fill("#purposes", "staffing, tumour model")
    page.fill("#quotas", f"{ann} 50 %\n")
    page.select_option("#approval", "second_key")
    # Where each user has a balance there are neither periods nor quotas.
    page.select_option("#protects", "each_user")
    page.click("#send")
    page.locator("#days-problem", has_text="must be absent where each user has a balance").wait_for()
    page.select_option("#protects", "data_set")
    page.click("#send")
    page.locator("#about", has_text="at most mu 1 in each period of 90 days;").wait_for()
    with service.client(new_key(service, tenant, Scope.LEDGER)) as second:
        made = second.get(f"/v1/ledgers/{page.url.rsplit('/', 1)[1]}").json()["definition"]
    rules = {"purposes": ["staffing", "tumour model"], "quotas": [{"key": ann, "share": 0.5}], "approval": "second_key"}
    assert (made["renews_after_days"], made["rules"]) == (90, rules)


@pytest.mark.slow
def test_a_training_waits_for_a_second_key_s_approval_and_then_runs_by_itself(
    page: Any, client: httpx2.Client, window: Any, service: Service, tenant: str
) -> None:
    body = {"name": "approved trainings", "budget": {"kind": "rdp_target", "epsilon": 10.0, "delta": 1e-5, "orders": [4.0, 16.0, 64.0]}}
    body |= {"adjacency": "add_remove", "unit": "record", "protects": "data_set", "rules": {"approval": "second_key"}}
    of = client.post("/v1/ledgers", json=body).json()["id"]
    sent = {"spec": spec(), "runtime": {"microbatch_size": 1, "checkpoint_seconds": 0.01}, "ledger": of}
    job = client.post("/v1/jobs", json=sent).json()["id"]
    page.goto(f"{service.address}/jobs")
    page.locator(f'tr:has(a[href="/jobs/{job}"]) .tag', has_text="waits for approval").wait_for()
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#what", has_text="It waits for approval by a second key").wait_for()
    assert page.inner_text("#state") == "waits for approval"
    # The key that sent it isn't the second one, on the same page.
    page.click("#what a")
    page.get_by_role("button", name="Approve reservation").click()
    page.locator("#trouble", has_text="by another key than the one that made it").wait_for()
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "paused"
    other = window.new_page()
    try:
        give_key(other, service.address, new_key(service, tenant, Scope.LEDGER))
        open_(other, service, of)
        other.get_by_role("button", name="Approve reservation").click()
        other.locator("#reservations td[data-name=State]", has_text="approved by key").wait_for()
    finally:
        other.close()
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#state", has_text=re.compile("^succeeded$")).wait_for()
    assert client.get(f"/v1/ledgers/{of}").json()["balance"]["commitments"] == 1
