"""The form of a new job in a real browser: fields and JSON say the same, a budget is asked before it is charged, nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import spec
from tests.app.uploads_harness import definition, npz, upload
from tests.selection import chosen
from tests.walks.pages import Complaints, Service, give_key
from tests.walks.test_pages import unfold

pytestmark = pytest.mark.slow

RUNTIME = {"microbatch_size": 1, "checkpoint_seconds": 0.01}


@pytest.fixture(scope="module")
def budgets(client: httpx2.Client) -> dict[str, str]:
    """Ids of one with room and one without."""
    found = {}
    for name, epsilon in (("ample", 20.0), ("tight", 0.01)):
        budget = {"kind": "rdp_target", "epsilon": epsilon, "delta": 1e-5, "orders": [4.0, 16.0, 64.0, 4096.0]}
        body = {"name": name, "budget": budget, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
        found[name] = client.post("/v1/ledgers", json=body).json()["id"]
    return found


@pytest.fixture
def page(window: Any, service: Service, key: str, budgets: dict[str, str]) -> Generator[Any]:
    """The form with the key kept and a job in it; what it complains of is in ``page.complaints``."""
    found = window.new_page()
    give_key(found, service.address, key)
    found.complaints = Complaints()
    found.complaints.watch(found)
    found.goto(f"{service.address}/jobs/new")
    found.locator('#form[aria-busy="false"]').wait_for()
    unfold(found, "Labels, priority", "as JSON", "algorithm's example")
    found.fill("#body", json.dumps({"spec": spec(), "runtime": RUNTIME}))
    yield found
    found.close()


def typed(page: Any, field: str, text: str) -> None:
    page.fill(f"#{field}", text)
    page.locator(f"#{field}").blur()


def written(page: Any) -> dict[str, Any]:
    return json.loads(page.input_value("#body"))


def test_the_fields_are_the_job_that_is_sent(page: Any, client: httpx2.Client, budgets: dict[str, str]) -> None:
    typed(page, "labels", "ward=7, study = a")
    typed(page, "priority", "5")
    typed(page, "timeout", "2")
    page.select_option("#ledger", budgets["ample"])
    page.locator("#cost", has_text="It fits into ample").wait_for()
    assert page.complaints.lines == []
    page.click("#send")
    page.locator("#state", has_text="succeeded").wait_for()
    job = client.get(f"/v1/jobs/{page.url.rsplit('/', 1)[1]}").json()
    assert (job["labels"], job["priority"], job["timeout_seconds"]) == ({"ward": "7", "study": "a"}, 5, 7200.0)
    assert job["charge"]["ledger"] == budgets["ample"]


def test_epsilon_is_typed_or_dragged_and_means_the_same_as_everywhere(page: Any) -> None:
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 4.0}
    page.fill("#body", json.dumps({"spec": spec(privacy=privacy)}))
    assert page.input_value("#epsilon") == "4"
    page.locator("#meaning", has_text="98.3").wait_for()
    page.focus("#epsilon-slider")
    page.keyboard.press("Home")
    assert written(page)["spec"]["privacy"]["epsilon"] == 0.1
    typed(page, "epsilon", "1")
    page.locator("#meaning .label", has_text="Moderate protection").wait_for()
    assert written(page)["spec"]["privacy"]["epsilon"] == 1.0
    assert "at most epsilon 1 at delta 0.00001" in page.inner_text("#review")
    typed(page, "epsilon", "none")
    page.click("#send")
    assert page.evaluate("document.activeElement.id") == "epsilon"
    assert written(page)["spec"]["privacy"]["epsilon"] == 1.0


def test_no_meaning_is_shown_of_what_is_no_guarantee(page: Any) -> None:
    privacy: dict[str, object] = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 4.0}

    def put(**changes: object) -> None:
        page.fill(
            "#body", json.dumps({"spec": spec(privacy={name: value for name, value in (privacy | changes).items() if value is not None})})
        )

    put()
    page.locator("#meaning .label").wait_for()
    for wrong in ({"epsilon": -3}, {"unit": None}, {"adjacency": "none"}, {"delta": 1}):
        put(**wrong)
        page.locator("#delta-words", has_text="once the job names an epsilon above 0").wait_for()
        assert page.locator("#meaning > *").count() == 0
        assert "isn't complete yet" in page.inner_text("#review")
        put()
        page.locator("#meaning .label").wait_for()
    page.fill("#epsilon", "8x")
    page.locator("#epsilon-problem", has_text="Enter a number above 0").wait_for()
    assert page.locator("#meaning > *").count() == 0
    assert page.complaints.lines == []


def test_what_stands_in_the_json_stands_in_the_fields(page: Any) -> None:
    page.fill("#body", json.dumps({"spec": spec(), "labels": {"ward": "3"}, "priority": 7, "timeout_seconds": 1800.0}))
    assert [page.input_value(f"#{name}") for name in ("labels", "priority", "timeout")] == ["ward=3", "7", "0.5"]


def test_what_a_job_would_cost_is_what_the_budget_says(page: Any, client: httpx2.Client, budgets: dict[str, str]) -> None:
    page.select_option("#ledger", budgets["ample"])
    page.locator("#cost", has_text="It fits into ample").wait_for()
    told = client.post(f"/v1/ledgers/{budgets['ample']}/projections", json={"spec": spec()}).json()
    assert f"{told['separately'] - 1:,} more like it would fit after it" in page.inner_text("#cost")
    page.select_option("#ledger", budgets["tight"])
    page.locator("#cost", has_text="doesn't fit into tight").wait_for()
    page.click("#send")
    page.locator("#state", has_text="failed").wait_for()
    assert "of the budget remains" in page.inner_text("#failure")
    assert "It was never started, and nothing was charged." in page.inner_text("#what")


def test_a_cost_that_cannot_be_told_says_why(page: Any, budgets: dict[str, str]) -> None:
    page.fill("#body", json.dumps({"spec": spec(expected_batch_size=10**6)}))
    page.select_option("#ledger", budgets["ample"])
    page.locator("#cost", has_text=re.compile(": spec.expected_batch_size")).wait_for()


def test_what_an_epsilon_means_knows_how_many_units_a_recipe_trains_on(page: Any, client: httpx2.Client) -> None:
    declared = next(one for one in client.get("/v1/recipes").json() if one["name"] == "digits")["declared"]
    with page.expect_request("**/v1/meanings") as asked:
        page.check("#recipes input[value=digits]")
    assert asked.value.post_data_json["units"] == declared["training_records"]


def test_a_comparison_is_reviewed_with_all_its_runs(page: Any) -> None:
    page.select_option("#algorithm", "comparison")
    page.locator("#review", has_text="all runs together: 4 runs, each counted").wait_for()
    assert "for all its runs together" in page.inner_text("#no-guarantee")
    job = written(page)
    job["spec"]["repetitions"] = 5
    page.fill("#body", json.dumps(job))
    assert "20 runs, each counted, repetitions too" in page.inner_text("#review")
    del job["spec"]["parts"][1]["spec"]["privacy"]["epsilon"]
    page.fill("#body", json.dumps(job))
    assert "15 runs" in page.inner_text("#review")


def test_a_recipe_says_what_it_reached_near_the_chosen_epsilon_until_it_is_changed(page: Any, client: httpx2.Client) -> None:
    measured = next(one for one in client.get("/v1/recipes").json() if one["name"] == "digits")["measured"]
    near = {one["epsilon"]: one["mean"] for one in measured}
    page.check("#recipes input[value=digits]")
    typed(page, "epsilon", "1.5")
    assert f"about {near[1.0]:.3g} to {near[2.0]:.3g}: what this recipe reached at epsilon 1 and 2" in page.inner_text("#reaches")
    typed(page, "epsilon", "20")
    assert f"about {near[8.0]:.3g}: what this recipe reached at epsilon 8, the nearest" in page.inner_text("#reaches")
    job = written(page)
    job["spec"]["steps"] += 1
    page.fill("#body", json.dumps(job))
    assert page.inner_text("#reaches") == ""


UPLOADED = {
    "id": "5" * 32,
    "state": "ready",
    "definition": {"name": "beats of ward 5"},
    "facts": {
        "training_records": 48,
        "test_records": 12,
        "shape": [4],
        "is_complex": True,
        "classes": 2,
        "unit": "beat",
        "users": None,
        "user_unit": None,
    },
}


def test_a_recipes_card_shows_what_its_paper_prints_at_its_own_epsilon(page: Any) -> None:
    card = page.locator("#recipes label", has=page.locator("input[value=mri_phantoms]")).inner_text()
    assert "epsilon 3 at delta 0.001 for each patient" in card
    assert "Its paper prints accuracy 0.8953 (central, epsilon 3)." in card


@pytest.fixture
def with_an_upload(page: Any) -> Any:
    """The form where one data set was uploaded; it is only offered, and never read."""
    page.route("**/v1/data-sets?*", lambda route: route.fulfill(json={"data_sets": [UPLOADED], "next": None}))
    page.reload()
    page.locator("#data-set option", has_text="beats of ward 5").wait_for(state="attached")
    unfold(page, "as JSON", "algorithm's example")
    return page


@pytest.mark.parametrize("start", ["recipe", "algorithm", "JSON"])
def test_the_jobs_own_data_are_sent_again_once_they_are_chosen_instead_of_an_upload(start: str, with_an_upload: Any) -> None:
    page, own = with_an_upload, {"kind": "uploaded", "data_set": UPLOADED["id"]}
    page.select_option("#data-set", UPLOADED["id"])
    if start == "recipe":
        page.check("#recipes input[value=digits]")
    elif start == "algorithm":
        page.select_option("#algorithm", "zeta_dp_sgd")
    else:
        page.fill("#body", json.dumps({"spec": spec()}))
        page.select_option("#data-set", UPLOADED["id"])
    page.locator("#review", has_text="on your data set").wait_for()
    assert written(page)["spec"]["data"] == own
    page.select_option("#data-set", "")
    assert (written(page)["spec"]["data"]["kind"], written(page)["spec"]["privacy"]["unit"]) == ("digits_phase_pairs", "record")
    assert "digits phase pairs" in page.inner_text("#review")


def test_a_job_that_came_with_an_upload_has_no_other_data_to_go_back_to_and_says_so(with_an_upload: Any) -> None:
    page, own = with_an_upload, {"kind": "uploaded", "data_set": UPLOADED["id"]}
    page.fill("#body", json.dumps({"spec": spec(data=own)}))
    page.select_option("#data-set", "")
    page.locator("#data-set-problem", has_text="came with an uploaded data set").wait_for()
    assert (page.input_value("#data-set"), written(page)["spec"]["data"]) == (UPLOADED["id"], own)


def test_an_uploaded_data_set_is_chosen_by_its_name(page: Any, client: httpx2.Client, service: Service) -> None:
    made = client.post("/v1/data-sets", json=definition(upload(client).json()["id"], name="beats of ward 3")).json()
    page.reload()
    unfold(page, "as JSON")
    page.locator("#data-set option", has_text="beats of ward 3").wait_for(state="attached")
    page.select_option("#data-set", made["id"])
    assert "records to train on" in page.inner_text("#data-facts")
    # Whatever recipe is filled in afterwards.
    page.check("#recipes input[value=digits]")
    page.locator("#about", has_text="filled in").wait_for()
    own = {"kind": "uploaded", "data_set": made["id"]}
    assert (written(page)["spec"]["data"], written(page)["spec"]["privacy"]["unit"]) == (own, made["facts"]["unit"])
    page.select_option("#data-set", "")
    recipe = client.get("/v1/recipes/digits").json()["spec"]
    assert (written(page)["spec"]["data"], written(page)["spec"]["privacy"]["unit"]) == (recipe["data"], recipe["privacy"]["unit"])
    page.fill("#body", json.dumps({"spec": spec()}))
    page.select_option("#data-set", made["id"])
    assert written(page)["spec"]["data"] == own


NETWORK = {
    "kind": "sequential",
    "numbers": "complex",
    "head": "magnitude",
    "layers": [
        {"kind": "linear", "outputs": 8, "bias": True},
        {"kind": "activation", "name": "cardioid"},
        {"kind": "linear", "outputs": 10},
    ],
}


def test_layers_are_a_list_that_is_edited(page: Any) -> None:
    page.fill("#body", json.dumps({"spec": spec(model=NETWORK), "runtime": RUNTIME}))
    page.click("#layers-part > summary")
    assert page.locator(".layers > li strong").all_inner_texts() == ["Linear", "Activation", "Linear"]
    typed(page, "layer-0-outputs", "12")
    typed(page, "layer-1-name", "modrelu")
    page.select_option("#layer-kind", label="Layer norm")
    page.click("#layers button:text-is('Add it at the end')")
    page.click("[aria-label='Up layer 4, layer norm']")
    page.click("[aria-label='Up layer 3, layer norm']")
    page.click("[aria-label='Remove layer 3, activation']")
    layers = written(page)["spec"]["model"]["layers"]
    assert layers == [{"kind": "linear", "outputs": 12, "bias": True}, {"kind": "layer_norm"}, {"kind": "linear", "outputs": 10}]
    typed(page, "layer-0-outputs", "many")
    assert page.get_attribute("#layer-0-outputs", "aria-invalid") == "true"
    assert written(page)["spec"]["model"]["layers"] == layers
    typed(page, "layer-0-outputs", "8")
    page.fill("#body", json.dumps({"spec": spec(), "runtime": RUNTIME}))  # a model without layers has its widths
    typed(page, "model-hidden", "8, 4")
    assert written(page)["spec"]["model"]["hidden"] == [8, 4]
    assert page.complaints.lines == []


def test_a_file_is_uploaded_looked_into_and_made_a_data_set(page: Any, client: httpx2.Client) -> None:
    page.click("#uploading > summary")
    page.set_input_files("#upload-file", {"name": "beats.npz", "mimeType": "application/octet-stream", "buffer": npz()})
    assert page.input_value("#upload-format") == "npz"
    page.click("#upload-send")
    page.locator("#upload-arrays tr", has_text="x").first.wait_for()
    rows = {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in page.locator("#upload-arrays tbody tr").all()}
    assert rows["x"] == ["60 \u00d7 4", "complex64"]
    assert rows["y"] == ["60", "int64"]
    page.select_option("#set-features", "x")
    page.select_option("#set-labels", "y")
    page.fill("#set-unit", "beat")
    page.press("#set-unit", "Enter")  # which must not send the training
    page.locator("#set-name-problem", has_text="Say what it is").wait_for()
    page.fill("#set-name", "beats of ward 4")
    page.fill("#set-classes", "1")
    page.click("#set-send")
    page.locator("#set-classes-problem:not(:empty)").wait_for()
    page.fill("#set-classes", "2")
    page.press("#set-classes", "Enter")
    page.locator("#set-made", has_text="It is chosen above.").wait_for()
    made = client.get("/v1/data-sets").json()["data_sets"][0]
    assert (made["definition"]["name"], made["facts"]["classes"], made["facts"]["unit"]) == ("beats of ward 4", 2, "beat")
    facts = made["facts"]
    words = f"{facts['training_records']} records to train on and {facts['test_records']} held out; one beat is 4 complex numbers"
    assert page.inner_text("#data-facts") == f"{words}, in one of 2 classes."
    spec = written(page)["spec"]
    assert (spec["data"], spec["privacy"]["unit"]) == ({"kind": "uploaded", "data_set": made["id"]}, "beat")
    assert page.url.endswith("/jobs/new")


def test_a_file_that_is_none_of_its_format_says_so_at_once(page: Any) -> None:
    page.click("#uploading > summary")
    page.set_input_files("#upload-file", {"name": "beats.npz", "mimeType": "application/octet-stream", "buffer": b"nothing"})
    page.click("#upload-send")
    page.locator("#upload-trouble .notice, #upload-format-problem:not(:empty)").first.wait_for()
    assert not page.is_visible("#upload-part")


ABSURD = {
    "no pair": ("labels", "abc", "name=value"),
    "markup": ("labels", "<img src=x onerror=alert(1)>=1", "letters, digits"),
    "a long name": ("labels", "n" * 10_000 + "=1", "at most 63"),
    "twice": ("labels", "a=1, a=2", "twice"),
    "letters": ("priority", "abc", "whole number"),
    "a fraction": ("priority", "1.5", "whole number"),
    "negative": ("priority", "-1", "Between 0 and 100"),
    "too large": ("timeout", "1e999", "at most 8760"),
    "nothing": ("timeout", "0", "More than 0"),
    "long": ("timeout", "9" * 10_000, "Enter a number"),
}


@pytest.mark.parametrize("what", chosen(ABSURD, ["a fraction"]))
def test_what_cannot_be_read_says_why_beside_its_field_and_is_not_sent(what: str, page: Any) -> None:
    field, text, words = ABSURD[what]
    before = written(page)
    typed(page, field, text)
    page.locator(f"#{field}-problem", has_text=words).wait_for()
    asked_for = len(page.complaints.requested)
    page.click("#send")
    assert page.evaluate("document.activeElement.id") == field
    assert (page.input_value(f"#{field}"), written(page)) == (text, before)
    assert page.complaints.requested[asked_for:] == []
    typed(page, field, "")
    assert page.inner_text(f"#{field}-problem") == ""


def test_a_number_that_a_browser_cannot_hold_is_sent_as_it_was_written(page: Any) -> None:
    text = json.dumps({"spec": spec()}).replace('"clipping_bound": 1.0', '"clipping_bound": 1e999')
    page.fill("#body", text)
    assert page.locator("#priority").is_disabled()
    page.click("#send")
    page.locator("#body-problem", has_text="spec.clipping_bound").wait_for()
    assert page.input_value("#body") == text
    assert page.evaluate("document.activeElement.id") == "body"
