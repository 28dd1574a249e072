"""The pages of budgets in a real browser with a real service: made, spent from, read and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import spec, wait_for_state
from tests.selection import chosen, thinned
from tests.walks.pages import Complaints, Service, give_key, keep_key, new_key
from zetadp.app.access.scopes import Scope


@pytest.fixture
def page(window: Any, service: Service, key: str) -> Generator[Any]:
    found = window.new_page()
    found.complaints = Complaints()
    found.complaints.watch(found)
    give_key(found, service.address, key)
    yield found
    found.close()


@pytest.fixture
def form(page: Any, service: Service) -> None:
    """The page is the one on which a budget is made."""
    page.goto(f"{service.address}/ledgers")
    page.click("#making summary")


def ledger(client: httpx2.Client, name: str, budget: dict[str, object], protects: str = "data_set") -> str:
    body = {"name": name, "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": protects}
    answer = client.post("/v1/ledgers", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def reserve(client: httpx2.Client, of: str, mu: float) -> str:
    answer = client.post(f"/v1/ledgers/{of}/reservations", json={"spend": {"kind": "gdp", "mu": mu}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def open_(page: Any, service: Service, of: str) -> None:
    page.goto(f"{service.address}/ledgers/{of}")
    page.locator('#balance[aria-busy="false"]').wait_for()


def cells(page: Any) -> list[str]:
    return page.locator("#balance tbody td.number").all_inner_texts()


@pytest.mark.slow
def test_a_budget_shows_what_is_spent_what_is_set_aside_and_what_is_left(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "scans", {"kind": "gdp", "mu": 1.0})
    client.post(f"/v1/ledgers/{of}/reservations/{reserve(client, of, 0.6)}/commit", json={})
    reserve(client, of, 0.3)
    open_(page, service, of)
    limit, spent, reserved, left = map(float, cells(page))
    assert limit == 1.0
    # Squares add up: 1 - 0.36 - 0.09 = 0.55. What is spent is rounded up, what is left is rounded down.
    assert 0.6 <= spent <= 0.6001
    assert 0.3 <= reserved <= 0.3001
    assert 0.7415 <= left <= 0.55**0.5
    # The bar shows squares too, of a width of 1000.
    assert abs(float(page.get_attribute("svg.budget .committed", "width")) - 360) < 1
    assert abs(float(page.get_attribute("svg.budget .reserved", "width")) - 90) < 1
    # Balance, reservations and history come by requests of their own.
    page.locator("#reservations tr").nth(1).wait_for()
    page.locator("#entries tr").nth(3).wait_for()
    assert (page.locator("#reservations tr").count(), page.locator("#entries tr").count()) == (2, 4)
    assert [page.is_visible(part) for part in ("#user-form", "#more-reservations", "#more-entries")] == [False] * 3
    page.select_option("#which", "committed")
    page.locator("#reservations tr:only-child", has_text="committed").wait_for()
    assert page.complaints.lines == []


@pytest.mark.slow
def test_a_spend_that_comes_meanwhile_appears_by_itself(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "meanwhile", {"kind": "zcdp", "rho": 1.0})
    open_(page, service, of)
    page.locator("#no-reservations").wait_for()
    client.post(f"/v1/ledgers/{of}/reservations", json={"spend": {"kind": "zcdp", "rho": 0.25}})
    page.locator("#reservations tr", has_text="rho 0.25").wait_for()
    assert cells(page)[2] == "0.25"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("amount", "fit"),
    thinned(
        [("0.25", "16 more spends of this kind fit"), ("1", "One more spend of this kind fits"), ("2", "No more")],
        every=2,
    ),
)
def test_how_many_more_fit_is_said(amount: str, fit: str, page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, f"room {amount}", {"kind": "gdp", "mu": 1.0})
    open_(page, service, of)
    page.fill("#amount", amount)
    page.click("#projection button")
    page.locator("#fits", has_text=fit).wait_for()
    assert page.locator("#reservations tr").count() == 0


@pytest.mark.slow
def test_how_many_more_such_jobs_fit_is_what_the_service_says(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "trainings", {"kind": "rdp_target", "epsilon": 1.0, "delta": 1e-5, "orders": [4.0, 16.0, 64.0]})
    runtime = {"microbatch_size": 1, "checkpoint_seconds": 0.01}
    job = client.post("/v1/jobs", json={"spec": spec(), "runtime": runtime, "ledger": of}).json()["id"]
    wait_for_state(client, job, "succeeded")
    exact = client.post(f"/v1/ledgers/{of}/projections", json={"job": job}).json()["separately"]
    assert exact > 1
    open_(page, service, of)
    page.locator(f'#reservations a[href="/jobs/{job}"]').wait_for()
    page.check("input[value=job]")
    page.fill("#amount", job)
    page.click("#projection button")
    page.locator("#fits", has_text=f"{exact} more spends of this kind fit").wait_for()


@pytest.mark.slow
def test_how_many_trainings_by_a_recipe_fit_is_what_the_service_says(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "recipes", {"kind": "rdp_target", "epsilon": 100.0, "delta": 1e-5, "orders": [2.0, 4.0, 16.0]})
    submission = client.get("/v1/recipes/digits").json()
    exact = client.post(f"/v1/ledgers/{of}/projections", json={"spec": submission["spec"]}).json()
    assert exact["separately"] > 1
    open_(page, service, of)
    page.check("input[value=spec]")
    page.select_option("#recipe", "digits")
    page.locator("#spec-field").wait_for()
    page.wait_for_load_state("networkidle")
    page.click("#projection button")
    page.locator("#fits", has_text=f"{exact['separately']} more spends of this kind fit").wait_for()
    assert "One of them would leave" in page.inner_text("#fits")


ABSURD_SPENDS = {
    "letters": ("spend", "amount", "abc", "Enter a number"),
    "blank": ("spend", "amount", "   ", "Enter a number"),
    "too large": ("spend", "amount", "1e999", "too large"),
    "negative": ("spend", "amount", "-1", "0"),
    "markup": ("job", "amount", "<img src=x onerror=alert(1)>", "32 characters"),
    "long": ("spend", "amount", "9" * 10_000, "Enter a number"),
    "no JSON": ("spec", "spec", "<b>x</b>", "isn't a job's JSON"),
    "no such job": ("job", "amount", "0" * 32, "one of your training jobs"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", chosen(ABSURD_SPENDS, ["no JSON"]))
def test_what_cannot_be_spent_says_why_beside_its_field_and_stays(what: str, page: Any, client: httpx2.Client, service: Service) -> None:
    by, field, text, words = ABSURD_SPENDS[what]
    open_(page, service, ledger(client, f"absurd {what}", {"kind": "zcdp", "rho": 1.0}))
    page.check(f"input[value={by}]")
    page.fill(f"#{field}", text)
    page.click("#projection button")
    page.locator(f"#{field}-problem", has_text=words).wait_for()
    assert (page.input_value(f"#{field}"), page.evaluate("document.activeElement.id")) == (text, field)
    assert page.inner_text("#fits") == ""


@pytest.mark.slow
def test_the_history_is_checked_and_its_head_shown(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "checked", {"kind": "gdp", "mu": 1.0})
    reserve(client, of, 0.1)
    open_(page, service, of)
    page.click("#verify")
    page.locator("#verification", has_text="The history is sound").wait_for()
    head = client.get(f"/v1/ledgers/{of}").json()["head"]
    assert f"{head['number']} {head['sha256']}" in page.inner_text("#verification")


def test_a_check_that_left_something_out_is_not_shown_as_verified(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "half checked", {"kind": "gdp", "mu": 1.0})
    told = client.get(f"/v1/ledgers/{of}/verification").json()
    assert told["verdict"] == "sound"
    told |= {"verdict": "incomplete", "not_recomputed": 2, "first_not_recomputed": [3, 5]}
    page.route("**/verification", lambda route: route.fulfill(json=told))
    open_(page, service, of)
    page.click("#verify")
    page.locator("#verification .warn", has_text="The history isn't verified").wait_for()
    assert "Price not recomputed within the limit: 2 entries (3, 5)." in page.inner_text("#verification")


@pytest.mark.slow
def test_an_entry_that_cannot_be_read_is_named_beside_the_reservations_that_can(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "damaged", {"kind": "gdp", "mu": 1.0})
    made = reserve(client, of, 0.1)
    told = client.get(f"/v1/ledgers/{of}/reservations").json() | {"unreadable": [7]}
    page.route("**/reservations?*", lambda route: route.fulfill(json=told))
    open_(page, service, of)
    page.locator("#unreadable li", has_text="Entry 7 can't be read.").wait_for()
    page.locator("#reservations tr", has_text=made[:12]).wait_for()


@pytest.mark.slow
def test_a_spend_that_is_an_event_says_what_was_released_and_what_is_only_declared(
    page: Any, client: httpx2.Client, service: Service
) -> None:
    of = ledger(client, "events", {"kind": "rdp_target", "epsilon": 30.0, "delta": 1e-5, "orders": [2.0, 8.0, 32.0]})
    who = {"adjacency": "add_remove", "unit": "record"}
    noise = {"kind": "release", "mechanism": {"kind": "gaussian", "std": 5.0, "sensitivity": {"l2": 1.0, **who}}}
    scores = {"kind": "noisy_max", "noise": "gumbel", "scale": 4.0, "score_sensitivity": 1.0, **who}
    event = {"kind": "composed", "events": [noise, {"kind": "release", "mechanism": scores}]}
    for spend in (event, {"kind": "repeated_and_selected", "runs": {"kind": "poisson", "mean": 2.5}, "event": noise}):
        assert client.post(f"/v1/ledgers/{of}/reservations", json={"spend": spend}).status_code == 201
    open_(page, service, of)
    page.locator("#reservations tr").nth(1).wait_for()
    assert page.locator("#reservations td[data-name=Spend]").all_inner_texts() == [
        "the best of 2.5 runs on average: a release with Gaussian noise",
        "a release with Gaussian noise; and the best of many scores with Gumbel noise, as declared",
    ]


@pytest.mark.slow
def test_rules_and_periods_are_on_the_page_and_the_limit_is_said_to_be_of_one_period(
    page: Any, client: httpx2.Client, service: Service, tenant: str
) -> None:
    rules = {"purposes": ["staffing", "tumour model"], "approval": "second_key"}
    body = {"name": "quarters", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    of = client.post("/v1/ledgers", json=body | {"renews_after_days": 90, "rules": rules}).json()["id"]
    made = [
        client.post(f"/v1/ledgers/{of}/reservations", json={"spend": {"kind": "gdp", "mu": mu}, "purpose": "staffing"}) for mu in (0.1, 0.2)
    ]
    with service.client(new_key(service, tenant, Scope.LEDGER)) as second:
        second.post(f"/v1/ledgers/{of}/reservations/{made[0].json()['id']}/approve").raise_for_status()
        body = {"spend": {"kind": "gdp", "mu": 0.3}, "purpose": "staffing"}
        theirs = second.post(f"/v1/ledgers/{of}/reservations", json=body).json()["id"]
    open_(page, service, of)
    assert "at most mu 1 in each period of 90 days;" in page.inner_text("#about")
    said = page.inner_text("#rules")
    over = "protected by k budgets together: mu is sqrt(k) times"
    for words in ("free again every 90 days, next on ", over, "staffing, tumour model", "approves"):
        assert words in said
    page.locator("#reservations tr").nth(2).wait_for()
    states = page.locator("#reservations td[data-name=State]")
    assert [" approved by key " in text for text in states.all_inner_texts()] == [False, False, True]
    page.locator("#entries tr", has_text="was approved by another key").wait_for()
    # Another's reservation is approved here; for one's own it takes another key.
    page.get_by_role("button", name=f"Approve reservation {theirs[:12]}").click()
    states.nth(0).filter(has_text="approved by key").wait_for()
    assert client.get(f"/v1/ledgers/{of}/reservations/{theirs}").json()["approved_by"] is not None
    page.get_by_role("button", name="Approve reservation").click()
    page.locator("#trouble", has_text="by another key than the one that made it").wait_for()
    page.click("#meaning-part summary")
    page.locator("#limit-as", has_text="for the releases of one period").wait_for()
    page.goto(f"{service.address}/ledgers")
    page.locator("#list tr", has_text="mu 1 in each period of 90 days").wait_for()
    # A training that is charged to it says what for.
    page.goto(f"{service.address}/jobs/new")
    page.locator('#form[aria-busy="false"]').wait_for()
    with page.expect_response("**/v1/recipes/digits"):
        page.check("#recipes input[value=digits]")
    page.wait_for_function("document.getElementById('body').value !== ''")
    assert not page.is_visible("#purpose")
    page.select_option("#ledger", of)
    page.select_option("#purpose", "tumour model")
    written = json.loads(page.input_value("#body"))
    assert (written["ledger"], written["purpose"]) == (of, "tumour model")
    page.select_option("#ledger", "")
    assert not page.is_visible("#purpose")
    assert "purpose" not in json.loads(page.input_value("#body"))
    assert [line for line in page.complaints.lines if "403" not in line] == []


@pytest.mark.slow
def test_who_may_spend_how_much_is_on_the_page(page: Any, client: httpx2.Client, service: Service, tenant: str) -> None:
    body = {"name": "shares", "budget": {"kind": "zcdp", "rho": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    ann, ben = (new_key(service, tenant, Scope.LEDGER).split("_")[1] for _ in range(2))
    quotas = [{"key": ann, "share": 0.5}, {"key": ben, "share": 0.75}]
    open_(page, service, client.post("/v1/ledgers", json=body | {"rules": {"quotas": quotas}}).json()["id"])
    assert page.locator("#rules li li").all_inner_texts() == [
        f"Key {ann}: at most 50 % of each limit.",
        f"Key {ben}: at most 75 % of each limit.",
    ]
    open_(page, service, ledger(client, "without rules", {"kind": "zcdp", "rho": 1.0}))
    assert not page.is_visible("#rules-part")


@pytest.mark.slow
def test_a_user_has_a_balance_of_their_own(page: Any, client: httpx2.Client, service: Service) -> None:
    of = ledger(client, "users", {"kind": "gdp", "mu": 1.0}, protects="each_user")
    names = {"names": ["ann"], "short_of_budget": "refuse"}
    client.post(f"/v1/ledgers/{of}/reservations", json={"spend": {"kind": "gdp", "mu": 0.5}, "users": names})
    open_(page, service, of)
    page.fill("#user", "ann")
    page.press("#user", "Enter")
    page.locator("#balance", has_text="Of ann").wait_for()
    assert cells(page)[2] == "0.5"
    page.fill("#user", "<b>x</b>")
    page.press("#user", "Enter")
    page.locator("#user-problem", has_text="letters, digits").wait_for()


KINDS = {"gdp": "mu 1", "zcdp": "rho 1", "pure": "epsilon 1", "rdp_target": "epsilon 1 at delta 0.00001"}


@pytest.mark.slow
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("kind", chosen(KINDS, ["rdp_target"]))
def test_a_budget_is_made_in_every_measure(kind: str, page: Any) -> None:
    page.fill("#name", f"made {kind}")
    page.select_option("#kind", kind)
    page.fill("#limit", "1")
    page.click("#send")
    page.locator("#about", has_text=f"at most {KINDS[kind]};").wait_for()
    page.locator("#entries tr", has_text="created").wait_for()
    page.goto(page.url.rsplit("/", 1)[0])
    page.locator("#list tr", has_text=f"made {kind}").wait_for()


ABSURD = {
    "letters": ("limit", "abc", "Enter a number"),
    "blank": ("limit", "   ", "Enter a number."),
    "too large": ("limit", "1e999", "too large"),
    "negative": ("limit", "-1", "0"),
    "markup": ("name", "<img src=x onerror=alert(1)>", "match"),
    "long": ("name", "n" * 10_000, "match"),
    "blank unit": ("unit", "rec ord", "match"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("what", chosen(ABSURD, ["markup"]))
def test_what_cannot_be_a_budget_says_why_beside_the_field(what: str, page: Any) -> None:
    field, text, words = ABSURD[what]
    page.fill("#name", "absurd")
    page.fill("#limit", "1")
    page.fill(f"#{field}", text)
    page.click("#send")
    page.locator(f"#{field}-problem", has_text=re.compile(words)).wait_for()
    assert page.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert page.input_value(f"#{field}") == text


# A page of a job shows the same, by default.
@pytest.mark.slow
def test_a_server_that_starts_again_under_an_open_page_is_said_to_and_followed_on(page: Any, own_service: Service) -> None:
    with own_service.client() as client:
        of = ledger(client, "restarted", {"kind": "zcdp", "rho": 1.0})
    page.goto(f"{own_service.address}/ledgers")
    keep_key(page)
    open_(page, own_service, of)
    own_service.end()
    page.locator("#trouble", has_text="doesn't answer").wait_for()
    assert cells(page)[3] == "1"
    own_service.start()
    page.locator("#trouble .notice").wait_for(state="detached")
    with own_service.client() as again:
        again.post(f"/v1/ledgers/{of}/reservations", json={"spend": {"kind": "zcdp", "rho": 0.25}})
    page.locator("#reservations tr", has_text="rho 0.25").wait_for()


@pytest.mark.slow
def test_a_budget_that_isnt_there_is_said_not_to_be(page: Any, service: Service) -> None:
    page.goto(f"{service.address}/ledgers/{'0' * 32}")
    page.locator("#title", has_text="There is no such budget").wait_for()
