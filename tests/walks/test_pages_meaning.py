"""What pages say of a guarantee: its conditions in sight, words for its own neighbours, and never beside another number."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.selection import chosen, thinned
from tests.walks.pages import Complaints
from tests.walks.test_pages import headline, settle, typed


@pytest.fixture
def opened(reused: tuple[Any, Complaints], address: str) -> tuple[Callable[[str], Any], Complaints]:
    """(a function that opens a path, what was complained of)."""
    page, complaints = reused
    page.unroute_all()

    def open_(path: str) -> Any:
        page.goto(address + path)
        settle(page)
        return page

    return open_, complaints


@pytest.mark.parametrize("mode", chosen(["guarantee", "noise"], ["noise"]))
def test_the_first_page_shows_what_its_numbers_count_in_and_depend_on(mode: str, opened: Any) -> None:
    page = opened[0]("/")
    page.check(f"input[value={mode}]")
    settle(page)
    for words in ("by more than the stated sensitivity", "exact: floating-point error can reveal records"):
        assert page.locator("#sentences li", has_text=words).is_visible()
    assert "the most that one person can change the value" in page.inner_text("#scale")
    if mode == "noise":
        assert "times the sensitivity, for epsilon 1 at" in headline(page)
    else:
        assert page.inner_text("label[for=noise]") == "Noise, times the sensitivity"


@pytest.mark.slow
def test_the_first_page_hands_on_its_unit_and_shows_delta_as_it_was_typed(opened: Any) -> None:
    page = opened[0]("/")
    typed(page, "#delta", "1e-5")
    assert headline(page).endswith(" at delta 1e-5")
    page.click("#continue")
    settle(page)
    assert page.input_value("#field-sensitivity-unit") == "person"
    text = page.inner_text("#meaning")
    assert "name this person in" in text
    assert "if they were left out, an attack names them in at most" in text


WORDS = {
    "add_remove": "if it was left out,",
    "replace_one": "if its data were replaced by another's,",
    "zero_out": "if its data were blanked out,",
}


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", WORDS)
def test_each_adjacency_is_worded_as_what_it_hides(adjacency: str, opened: Any) -> None:
    page = opened[0](f"/calculators/gaussian?std=4&sensitivity.adjacency={adjacency}")
    text = page.inner_text("#meaning")
    assert WORDS[adjacency] in text
    assert ("The record's presence isn't hidden." in text) == (adjacency != "add_remove")


@pytest.mark.parametrize("path", chosen(["/", "/calculators/gaussian", "/calculators/event"], ["/"]))
def test_no_headline_stands_over_what_an_earlier_one_meant(path: str, opened: Any) -> None:
    page = opened[0](path)
    before = headline(page)
    held = []
    # The answer comes, and what it means doesn't.
    page.route("**/v1/meanings", lambda route: held.extend([route]))
    with page.expect_request("**/v1/meanings"):
        page.fill("#delta", "0.0001")
        page.wait_for_function("(before) => document.getElementById('headline').textContent !== before", arg=before)
        assert not page.is_visible("#meaning .label")
    assert page.inner_text("#headline") != before
    assert not page.is_visible("#meaning .label")
    for route in held:
        route.continue_()
    page.locator("#meaning .label").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "held_back"), [("/", "**/v1/meanings"), ("/calculators/gaussian", "**/v1/profiles")])
def test_no_calibrated_figure_stands_without_its_conditions(path: str, held_back: str, opened: Any) -> None:
    page = opened[0](path)
    before = headline(page)
    held: list[Any] = []
    page.route(held_back, lambda route: held.extend([route]))
    # The noise is found; whatever else is asked for isn't answered.
    with page.expect_request(held_back):
        page.check("input[value=noise]")
        page.wait_for_function("(before) => document.getElementById('headline').textContent !== before", arg=before)
    assert page.locator("#sentences li", has_text="exact: floating-point error").is_visible()
    for route in held:
        route.continue_()
    settle(page)


ANSWERING = {"/calculators/gaussian": "**/v1/profiles", "/calculators/event": "**/v1/profiles", "/conversions": "**/v1/conversions"}


@pytest.mark.slow
@pytest.mark.parametrize("path", ANSWERING)
def test_an_answer_that_is_awaited_long_is_said_to_be_of_earlier_values(path: str, opened: Any) -> None:
    page = opened[0](path)
    held: list[Any] = []
    # The first is held back; what is asked after it isn't.
    page.route(ANSWERING[path], lambda route: held.extend([route]), times=1)
    assert not page.is_visible("#earlier")
    page.fill("#at-delta" if path == "/conversions" else "#delta", "0.0001")
    page.locator("#earlier", has_text="The one for the current values is being computed.").wait_for()
    held[-1].continue_()
    settle(page)
    assert not page.is_visible("#earlier")
    assert "delta 0.0001" in headline(page)


@pytest.mark.slow
@pytest.mark.parametrize("path", ANSWERING)
def test_an_answer_that_cannot_be_read_leaves_no_earlier_one_unmarked(path: str, opened: Any) -> None:
    page = opened[0](path)
    page.route(ANSWERING[path], lambda route: route.fulfill(content_type="text/html", body="<p>a proxy's page</p>"))
    page.fill("#at-delta" if path == "/conversions" else "#delta", "0.0001")
    page.locator("#problem", has_text="couldn't be read").wait_for()
    assert page.is_visible("#earlier")
    assert not page.is_visible("#meaning .label")


@pytest.mark.parametrize("path", thinned(["/calculators/event", "/calculators/approximate_dp?delta=0.00001&epsilon=1"], every=2))
def test_an_infinite_epsilon_is_called_no_guarantee_and_holds_for_nobody(path: str, opened: Any) -> None:
    declared = {"kind": "approximate_dp", "epsilon": 1.0, "delta": 0.1, "adjacency": "add_remove", "unit": "record"}
    query = f"?event={quote(json.dumps({'kind': 'release', 'mechanism': declared}))}"
    page = opened[0](path + query if path.endswith("event") else path)
    if not path.endswith("event"):
        typed(page, "#field-delta", "0.1")
    assert headline(page) == "no guarantee: no finite epsilon is proven at delta 0.00001"
    assert page.inner_text("#sentences") == ""
    assert "Nothing is promised to anybody." in page.inner_text("#meaning")


@pytest.mark.slow
def test_the_word_for_a_strength_is_the_services(opened: Any) -> None:
    page = opened[0]("/")
    answers: list[dict[str, Any]] = []

    def answer(route: Any) -> None:
        answers.append({**route.fetch().json(), "strength": "weak", "tone": "bad", "strengths": "Weak means weak."})
        route.fulfill(json=answers[-1])

    page.route("**/v1/meanings", answer)
    typed(page, "#noise", "400")
    assert page.inner_text("#meaning .label.bad") == "Weak protection"
    assert answers[-1]["guess"]["success"] < 0.75
    assert "Weak means weak." in page.text_content("#meaning")


@pytest.mark.slow
def test_a_choice_whose_answer_is_refused_is_told_without_a_field(opened: Any) -> None:
    open_, complaints = opened
    page = open_("/")
    body = '{"type": "about:blank", "status": 422, "title": "Refused.", "detail": "No such noise."}'
    page.route("**/v1/calibrations", lambda route: route.fulfill(status=422, content_type="application/problem+json", body=body))
    page.check("input[value=noise]")
    page.locator("#problem", has_text="No such noise.").wait_for()
    assert [line for line in complaints.lines if line.startswith("script")] == []


@pytest.mark.slow
def test_a_delta_that_would_publish_one_of_the_records_is_weak(opened: Any) -> None:
    for records, words in ((60_000, "Moderate"), (100_000, "Weak")):
        page = opened[0](f"/calculators/gaussian?std=40&sampling=fixed&batch=10&records={records}")
        page.locator("#meaning .label", has_text=f"{words} protection").wait_for()
        # And the same where the event is given as JSON, which names the population.
        noise = {"kind": "gaussian", "std": 40.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
        sampled = {
            "kind": "fixed_size_sampled",
            "sample_size": 10,
            "population_size": records,
            "event": {"kind": "release", "mechanism": noise},
        }
        opened[0](f"/calculators/event?event={quote(json.dumps(sampled))}&delta=0.00001")
        page.locator("#meaning .label", has_text=f"{words} protection").wait_for()
