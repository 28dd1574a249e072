"""The pages of jobs in a real browser, with a real service and a real worker whose child only pretends to train."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import FINAL_STATES, Order, spec, state, stream, submit, wait_for_state
from tests.app.proxy import Proxy
from tests.selection import chosen
from tests.walks.pages import Complaints, Service, give_key, keep_key, new_key
from tests.walks.test_pages import unfold
from zetadp.app.access.scopes import Scope
from zetadp.app.access.service import KeyService
from zetadp.app.kit.database import Database

pytestmark = pytest.mark.slow

STEPS = 830
"""With a checkpoint each five steps and what else is told, about a thousand events."""
STEP_SECONDS = 0.004
SLOW_STEP_SECONDS = 0.015
"""Of a job that has to go on for longer than a busy machine takes to draw its first half and break its line thrice."""


@pytest.fixture
def page(window: Any, service: Service, key: str) -> Generator[Any]:
    """A page that has the key; what it complains of is in ``page.complaints``."""
    found = window.new_page()
    found.complaints = Complaints()
    found.complaints.watch(found)
    found.on("dialog", lambda dialog: dialog.accept())
    give_key(found, service.address, key)
    yield found
    found.close()


@pytest.fixture
def form(page: Any, service: Service) -> None:
    """The page is the one on which a job is sent."""
    page.goto(f"{service.address}/jobs/new")
    page.locator('#form[aria-busy="false"]').wait_for()
    unfold(page, "algorithm's example", "as JSON")


def shows(page: Any, words: str) -> None:
    """Wait until this is the job's state; fails at once where it has ended otherwise instead of so."""
    ends = FINAL_STATES if words in FINAL_STATES else (words,)
    page.locator("#state", has_text=re.compile(f"^({'|'.join(ends)})$")).wait_for()
    assert page.inner_text("#state") == words


def count(page: Any) -> int:
    return int(page.get_attribute("#events", "data-count"))


def check_every_event_came(page: Any, client: httpx2.Client, job: str) -> None:
    """The page took as many events as there were, and the newest is the last."""
    page.locator('#line[data-state="ended"]').wait_for()
    told = list(stream(client, job))
    assert len(told) >= 1000
    assert count(page) == len(told)
    assert int(page.inner_text("#events tr:first-child th")) == told[-1].number
    assert page.inner_text("#steps").startswith(f"Step {STEPS} of {STEPS}: epsilon 1 at delta 0.00001")
    assert page.inner_text("#caveats").endswith("epsilon rests on assumptions, which the certificate states beside it.")


NOTE_BREAKS = """() => {
  const line = document.getElementById("line");
  line.dataset.broke = "no";
  const seen = new MutationObserver(() => {
    if (line.dataset.state !== "waiting") return;
    line.dataset.broke = "yes";
    seen.disconnect();
  });
  seen.observe(line, {attributes: true, attributeFilter: ["data-state"]});
}"""
"""Notes on the line whether it was said to be broken: it may be whole again before anybody looks."""


TOGGLE_LOG = """() => new Promise((resolve) => {
  const part = document.getElementById("log-part");
  part.addEventListener("toggle", resolve, {once: true});
  part.open = !part.open;
})"""
"""Done once the page has heard of it."""


def asked_for_log(page: Any) -> int:
    return sum(url.endswith("/logs") for url in page.complaints.requested)


# Following


def test_a_page_takes_each_of_a_thousand_events(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client, step_seconds=STEP_SECONDS, steps=STEPS)
    page.goto(f"{service.address}/jobs/{job}")
    shows(page, "succeeded")
    check_every_event_came(page, client, job)
    page.locator("#plots svg").wait_for()
    page.locator("#plots dl", has_text="roc auc").wait_for()
    assert page.complaints.lines == []


def test_a_server_that_ends_and_comes_back_costs_no_event_and_is_said_in_words(page: Any, own_service: Service) -> None:
    with own_service.client() as client:
        job = submit(client, step_seconds=SLOW_STEP_SECONDS, steps=STEPS)
    page.goto(f"{own_service.address}/jobs")
    keep_key(page)
    page.goto(f"{own_service.address}/jobs/{job}")
    page.locator("#events tr").nth(100).wait_for()
    own_service.end()
    page.locator("#line", has_text="doesn't answer at the moment").wait_for()
    before = count(page)
    assert 100 <= before < STEPS
    own_service.start()
    with own_service.client() as client:
        check_every_event_came(page, client, job)
    shows(page, "succeeded")


def test_a_line_that_is_cut_in_the_middle_costs_no_event(page: Any, key: str, client: httpx2.Client, service: Service) -> None:
    wire = Proxy("127.0.0.1", service.port)
    try:
        page.goto(f"http://127.0.0.1:{wire.port}/jobs")
        keep_key(page, key)
        job = submit(client, step_seconds=SLOW_STEP_SECONDS, steps=STEPS)
        page.goto(f"http://127.0.0.1:{wire.port}/jobs/{job}")
        for rows in (50, 150, 300):
            page.locator("#events tr").nth(rows).wait_for()
            page.evaluate(NOTE_BREAKS)
            wire.cut()
            wire.mend()
            page.locator('#line[data-broke="yes"]').wait_for()
        check_every_event_came(page, client, job)
    finally:
        wire.close()


def test_a_log_is_read_to_its_end(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client, order=Order.COMPLAIN)
    page.goto(f"{service.address}/jobs/{job}")
    shows(page, "succeeded")
    page.click("#log-part summary")
    page.locator("#log", has_text="ValueError").wait_for()
    assert "Jane Doe" not in page.inner_text("#log")
    page.locator('#log[data-state="ended"]').wait_for()
    whole = page.inner_text("#log")
    page.fill("#log-search", "VALUEERROR")
    found = [line for line in whole.splitlines() if "valueerror" in line.lower()]
    assert page.inner_text("#log").splitlines() == found
    assert page.inner_text("#log-count") == f"{len(found)} of {len(whole.splitlines())} lines"
    page.fill("#log-search", "no such words")
    assert (page.inner_text("#log"), page.inner_text("#log-count").split(" ")[0]) == ("", "0")
    page.fill("#log-search", "")
    assert page.inner_text("#log") == whole
    # The reading that met the end, and the one after it that was sure to see every line.
    assert asked_for_log(page) == 2
    for _ in range(2):  # closed and opened again: what asks for a log that wasn't read yet
        page.evaluate(TOGGLE_LOG)
    page.evaluate("() => fetch('/livez')")  # requests are noted in their order: one for the log would be there by now
    assert asked_for_log(page) == 2


def test_what_is_spent_stands_beside_its_target_and_its_budget(page: Any, client: httpx2.Client, service: Service) -> None:
    budget = {"kind": "rdp_target", "epsilon": 20.0, "delta": 1e-5, "orders": [4.0, 16.0, 64.0]}
    made = {"name": "target", "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    ledger = client.post("/v1/ledgers", json=made).json()["id"]
    asked = spec(privacy={"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 1.5})
    runtime = {"microbatch_size": 1, "checkpoint_seconds": 0.01}
    job = client.post("/v1/jobs", json={"spec": asked, "runtime": runtime, "ledger": ledger, "labels": {"ward": "7"}}).json()["id"]
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#steps", has_text="Step 20 of 20: epsilon 1 at delta 0.00001; the target is epsilon 1.5.").wait_for()
    page.locator("#plots .legend", has_text="target").wait_for()
    assert page.input_value("#labels") == "ward=7"
    assert page.inner_text("#belongs") == "Charged to its budget."
    assert page.get_attribute("#belongs a", "href") == f"/ledgers/{ledger}"


# Doing something


def test_a_job_is_paused_resumed_cancelled_and_run_again(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client, step_seconds=0.1, steps=100)
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#events", has_text="step 3 of 100").wait_for()
    page.click("button:text-is('Pause')")
    shows(page, "paused")
    page.locator("#what", has_text="until you resume it").wait_for()
    page.click("button:text-is('Resume')")
    shows(page, "running")
    page.locator("#attempts tr", has_text="the checkpoint at step").wait_for()
    page.locator("#resumptions", has_text="resumed from a checkpoint once").wait_for()
    assert "stopped after step" in page.locator("#attempts tr").first.inner_text()
    page.click("button:text-is('Cancel')")
    shows(page, "cancelled")
    page.click("button:text-is('Run again')")
    shows(page, "running")
    assert state(client, job) == "running"
    page.click("button:text-is('Cancel')")
    shows(page, "cancelled")


def test_labels_are_changed_and_what_cannot_be_one_says_why(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    page.goto(f"{service.address}/jobs/{job}")
    shows(page, "succeeded")
    page.fill("#labels", "ward=8, study=b")
    page.press("#labels", "Enter")
    page.locator("#labels-kept", has_text="Saved").wait_for()
    assert client.get(f"/v1/jobs/{job}").json()["labels"] == {"ward": "8", "study": "b"}
    for text, words in (("ward", "name=value"), ("<b>x</b>=1", "letters, digits"), ("n" * 10_000 + "=1", "at most 63")):
        page.fill("#labels", text)
        page.press("#labels", "Enter")
        page.locator("#labels-problem", has_text=words).wait_for()
        assert (page.input_value("#labels"), page.evaluate("document.activeElement.id")) == (text, "labels")
    assert client.get(f"/v1/jobs/{job}").json()["labels"] == {"ward": "8", "study": "b"}


def test_a_job_that_is_being_prepared_says_what_is_being_found_out(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    told = {**client.get(f"/v1/jobs/{job}").json(), "state": "preparing"}
    page.route(f"**/v1/jobs/{job}", lambda route: route.fulfill(json=told))
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#what", has_text="how large its data set is and how much noise it needs").wait_for()
    assert page.locator("#actions button").all_inner_texts() == ["Pause", "Cancel"]


def test_why_a_job_failed_stands_on_its_page(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client, order=Order.FAIL)
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#failure", has_text="the gradient isn't finite").wait_for()
    assert page.locator("#actions button").all_inner_texts() == ["Run again"]


def test_files_and_the_certificate_are_fetched_with_the_key(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    page.goto(f"{service.address}/jobs/{job}")
    page.locator("#files button", has_text="model.safetensors").wait_for()
    with page.expect_download() as model:
        page.click("#files button:text-is('model.safetensors')")
    assert model.value.path().read_bytes() == b"model"
    with page.expect_download() as signed:
        page.click("#certificate button:text-is('signed file')")
    assert client.post("/v1/certificates/verify", content=signed.value.path().read_bytes()).json()["verdict"] == "valid"
    with page.expect_download() as pdf:
        page.click("#certificate button:text-is('PDF')")
    assert pdf.value.path().read_bytes().startswith(b"%PDF")
    assert all("zdp_" not in url for url in page.complaints.requested)


# Sending one


@pytest.mark.usefixtures("form")
def test_an_algorithms_example_is_sent_and_followed(page: Any, client: httpx2.Client) -> None:
    page.select_option("#algorithm", "zeta_dp_sgd")
    body = json.loads(page.input_value("#body"))
    assert body["spec"]["algorithm"] == "zeta_dp_sgd"
    page.fill("#body", json.dumps({"spec": spec(), "labels": {"ward": "7"}, "runtime": {"microbatch_size": 1, "checkpoint_seconds": 0.01}}))
    page.click("#send")
    shows(page, "succeeded")
    job = page.url.rsplit("/", 1)[1]
    assert client.get(f"/v1/jobs/{job}").json()["labels"] == {"ward": "7"}


ABSURD = {
    "letters": ("abc", "isn't JSON"),
    "nothing": ("", "Choose a recipe"),
    "markup": ("<img src=x onerror=alert(1)>", "isn't JSON"),
    "long": ("9" * 10_000 + "x", "isn't JSON"),
    "another algorithm": ('{"spec": {"algorithm": "<b>x</b>"}}', "spec"),
    "negative": (json.dumps({"spec": spec(steps=-1)}), "steps"),
    "too large": (json.dumps({"spec": spec()}).replace('"clipping_bound": 1.0', '"clipping_bound": 1e999'), "clipping_bound"),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("what", chosen(ABSURD, ["markup"]))
def test_what_cannot_be_sent_says_why_and_stays_in_the_form(what: str, page: Any) -> None:
    text, words = ABSURD[what]
    page.fill("#body", text)
    page.click("#send")
    page.locator("#body-problem:not(:empty), #trouble .notice", has_text=words).first.wait_for()
    assert page.input_value("#body") == text
    assert page.locator("main img, main b").count() == 0


# The list


def test_the_list_is_narrowed_by_label_and_state(page: Any, client: httpx2.Client, service: Service) -> None:
    runtime = {"microbatch_size": 1, "checkpoint_seconds": 0.01}
    job = client.post("/v1/jobs", json={"spec": spec(), "runtime": runtime, "labels": {"ward": "east-9"}}).json()["id"]
    wait_for_state(client, job, "succeeded")
    page.goto(f"{service.address}/jobs")
    page.locator('#list[aria-busy="false"] tr').first.wait_for()
    page.fill("#label", "ward=east-9")
    page.press("#label", "Enter")
    page.locator("#list tr:only-child", has_text="ward=east-9").wait_for()
    page.select_option("#state", "failed")
    page.locator("#none").wait_for()
    page.fill("#label", "ward")
    page.press("#label", "Enter")
    page.locator("#label-problem", has_text="name=value").wait_for()
    assert page.get_attribute("#label", "aria-invalid") == "true"


# What isn't there


def test_another_tenants_job_and_one_that_never_was_look_alike(page: Any, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    give_key(page, service.address, new_key(service, "elsewhere", Scope.SUBMIT))
    for name in (job, "0" * 32):
        page.goto(f"{service.address}/jobs/{name}")
        page.locator("#title", has_text="There is no such job").wait_for()
        page.locator("#trouble", has_text="no job with this id").wait_for()
        assert page.locator("#actions button").count() == 0


def test_without_a_key_a_page_says_where_to_enter_one(page: Any, key: str, client: httpx2.Client, service: Service) -> None:
    job = submit(client)
    page.evaluate("sessionStorage.clear()")
    for path in ("/jobs", f"/jobs/{job}"):
        page.goto(service.address + path)
        page.locator("#trouble", has_text="Enter your key to see it").wait_for()
    keep_key(page, key)
    shows(page, "succeeded")


# What ends while a page is open


def test_a_key_revoked_under_an_open_page_is_said_and_a_good_one_goes_on(
    page: Any, key: str, tenant: str, client: httpx2.Client, service: Service
) -> None:
    database = Database(service.settings)
    try:
        keys = KeyService(database)
        made = keys.create(tenant, "brief", (Scope.SUBMIT,), None)
        give_key(page, service.address, made.text)
        job = submit(client, step_seconds=0.05, steps=2000)
        page.goto(f"{service.address}/jobs/{job}")
        page.locator("#events", has_text="step 3 of 2000").wait_for()
        keys.revoke(tenant, made.key.id)
    finally:
        database.close()
    page.locator("#line", has_text="The key is no longer valid").wait_for()
    assert "of 2000" in page.inner_text("#steps")
    page.goto(f"{service.address}/jobs")
    page.locator("#trouble", has_text="Enter one with the button at the top").wait_for()
    page.go_back()
    keep_key(page, key)
    page.locator("#line", has_text="Following live").wait_for()
    client.post(f"/v1/jobs/{job}/cancel")
    shows(page, "cancelled")


def test_a_job_that_vanishes_under_an_open_page_is_said_to_be_gone(page: Any, key: str, client: httpx2.Client, service: Service) -> None:
    wire, job = Proxy("127.0.0.1", service.port), submit(client, Order.HOLD)
    try:
        page.goto(f"http://127.0.0.1:{wire.port}/jobs")
        keep_key(page, key)
        page.goto(f"http://127.0.0.1:{wire.port}/jobs/{job}")
        page.locator("#events", has_text="step 7 of").wait_for()
        gone = json.dumps({"type": "job-not-found", "title": "No such job.", "status": 404})
        page.route("**/v1/jobs/**", lambda route: route.fulfill(status=404, content_type="application/problem+json", body=gone))
        wire.cut()
        wire.mend()
        page.locator("#title", has_text="There is no such job").wait_for()
        assert page.locator("#actions button").count() == 0
        assert not page.is_visible("#labels-form")
    finally:
        wire.close()
        client.post(f"/v1/jobs/{job}/cancel")
