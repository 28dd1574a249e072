"""What pages say of a guarantee: its conditions in sight, words for its own neighbours, and never beside another number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


@pytest.mark.parametrize("mode", ["guarantee", "noise"])
def test_the_first_page_shows_what_its_numbers_count_in_and_depend_on(mode: str, opened: Any) -> None:
    page = opened[0]("/")
    page.check(f"input[value={mode}]")
    settle(page)
    for words in ("by no more than the stated sensitivity", "noise is drawn and added exactly"):
        assert page.locator("#sentences li", has_text=words).is_visible()
    assert "multiples of the most that one person can move the value" in page.inner_text("#scale")
    if mode == "noise":
        assert "times the most that one person can move the value, for epsilon 1 at" in headline(page)
    else:
        assert page.inner_text("label[for=noise]") == "Noise: times the most that one person can move the value"


def test_the_first_page_hands_on_its_unit_and_shows_delta_as_it_was_typed(opened: Any) -> None:
    page = opened[0]("/")
    typed(page, "#delta", "1e-5")
    assert headline(page).endswith(" at delta 1e-5")
    page.click("#continue")
    settle(page)
    assert page.input_value("#field-sensitivity-unit") == "person"
    assert "whether this person was included or left out" in page.inner_text("#meaning")


WORDS = {
    "add_remove": "whether this record was included or left out",
    "replace_one": "whether this record's data are the real ones or another's",
    "zero_out": "whether this record's data are the real ones or blanked out",
}


@pytest.mark.parametrize("adjacency", WORDS)
def test_each_adjacency_is_worded_as_what_it_hides(adjacency: str, opened: Any) -> None:
    page = opened[0](f"/calculators/gaussian?std=4&sensitivity.adjacency={adjacency}")
    text = page.inner_text("#meaning")
    assert WORDS[adjacency] in text
    assert ("That the record is in the data at all isn't hidden." in text) == (adjacency != "add_remove")


@pytest.mark.parametrize("path", ["/", "/calculators/gaussian", "/calculators/event"])
def test_no_headline_stands_over_what_an_earlier_one_meant(path: str, opened: Any) -> None:
    page = opened[0](path)
    before = headline(page)
    held = []
    means = lambda request: "approximate_dp" in (request.post_data or "")  # noqa: E731
    # The answer comes, and what it means doesn't.
    page.route("**/v1/profiles", lambda route: held.append(route) if means(route.request) else route.continue_())
    with page.expect_request(means):
        page.fill("#delta", "0.0001")
        page.wait_for_function("(before) => document.getElementById('headline').textContent !== before", arg=before)
        assert not page.is_visible("#meaning .label")
    assert page.inner_text("#headline") != before
    assert not page.is_visible("#meaning .label")
    for route in held:
        route.continue_()
    page.locator("#meaning .label").wait_for()


def test_a_choice_whose_answer_is_refused_is_told_without_a_field(opened: Any) -> None:
    open_, complaints = opened
    page = open_("/")
    body = '{"type": "about:blank", "status": 422, "title": "Refused.", "detail": "No such noise."}'
    page.route("**/v1/calibrations", lambda route: route.fulfill(status=422, content_type="application/problem+json", body=body))
    page.check("input[value=noise]")
    page.locator("#problem", has_text="No such noise.").wait_for()
    assert [line for line in complaints.lines if line.startswith("script")] == []


def test_a_delta_that_would_publish_one_of_the_records_is_weak(opened: Any) -> None:
    for records, words in ((60_000, "Moderate"), (100_000, "Weak")):
        page = opened[0](f"/calculators/gaussian?std=40&sampling=fixed&batch=10&records={records}")
        page.locator("#meaning .label", has_text=f"{words} protection").wait_for()
