"""What a calculator gives to take along: lines that ask for the same answer, figures as files, and an address that is the page."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Generator
from typing import Any

import pytest

from tests.app.calculators_harness import without_cost
from tests.selection import chosen, thinned
from tests.walks.test_pages import headline, moved, settle, typed, unfold

pytestmark = pytest.mark.slow

STATES = {
    "guarantee": "/calculators/training?std=1.3&group=2&plot=attacker",
    "noise": "/calculators/gaussian?mode=noise&epsilon=0.7&plot=delta",
    "count": "/calculators/training?mode=count&epsilon=2&plot=steps",
    "sample": "/calculators/training?mode=sample&epsilon=2&sampling=fixed&batch=7&records=5000&plot=noise",
}


@pytest.fixture(scope="module")
def context(chromium: Any) -> Generator[Any]:
    found = chromium.new_context(permissions=["clipboard-read", "clipboard-write"], accept_downloads=True)
    yield found
    found.close()


def opened(context: Any, address: str, path: str) -> Any:
    page = context.new_page()
    page.goto(address + path)
    settle(page)
    return page


def copied(page: Any, what: str) -> str:
    if not page.is_visible("#exports"):
        unfold(page, "Share or repeat")
    page.click(f"[data-copy={what}]")
    page.locator(f"[data-copy={what}]", has_text="Copied").wait_for()
    return page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("mode", thinned(STATES, every=2))
def test_copied_lines_give_the_answer_of_the_page(mode: str, context: Any, address: str) -> None:
    page = opened(context, address, STATES[mode])
    by_curl = json.loads(subprocess.run(copied(page, "curl"), shell=True, capture_output=True, check=True).stdout)
    program = copied(page, "python")
    by_python = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert without_cost(by_curl) == without_cost(by_python)
    assert json.loads(copied(page, "json"))["event"]
    answer = by_curl["value"] if mode != "guarantee" else by_curl["epsilon"][0]["upper"]
    if mode == "noise":
        answer = by_curl["std"]
    found = next(float(word.replace(",", "")) for word in headline(page).split() if word[0].isdigit())
    assert answer <= found <= answer * 1.001


def test_a_picture_is_saved_without_what_follows_the_pointer(context: Any, address: str) -> None:
    page = opened(context, address, "/calculators/gaussian?plot=delta")
    drawing = page.locator("#plots figure svg").first
    drawing.hover()
    assert drawing.locator(".pointed > *").count() > 0
    with page.expect_download() as saved:
        page.click("#plots button:text-is('SVG')")
    root = ET.fromstring(saved.value.path().read_text())
    # The dot of the asked point is all that is filled so, without a pointer's dot and its two dashed lines.
    assert [one for one in root.iter() if "pointed" in one.get("class", "")] == []
    assert [one for one in root.iter() if one.get("stroke-dasharray") == "2 2"] == []
    assert page.locator("#plots figure svg .pointed").count() > 0


@pytest.mark.parametrize("mode", chosen(STATES, ["guarantee"]))
def test_an_address_is_the_page(mode: str, context: Any, address: str) -> None:
    page = opened(context, address, STATES[mode])
    first = (headline(page), page.input_value("#plot"), page.locator("#plots h3").all_inner_texts())
    assert len(first[2]) == 1
    again = opened(context, address, copied(page, "link").removeprefix(address))
    assert (headline(again), again.input_value("#plot"), again.locator("#plots h3").all_inner_texts()) == first
    again.reload()
    settle(again)
    assert headline(again) == first[0]


def test_back_and_forward_go_through_the_choices(context: Any, address: str) -> None:
    page = opened(context, address, "/calculators/gaussian?plot=renyi")
    typed(page, "#field-std", "2.5")
    guarantee = headline(page)
    page.check("input[value=noise]")
    settle(page)
    noise = headline(page)
    page.select_option("#plot", "delta")
    settle(page)
    moved(page, page.go_back)
    assert (page.input_value("#plot"), headline(page)) == ("renyi", noise)
    moved(page, page.go_back)
    assert (page.input_value("#field-std"), headline(page)) == ("2.5", guarantee)
    moved(page, page.go_forward)
    assert headline(page) == noise
    assert page.is_checked("input[value=noise]")
    page.goto(f"{address}/calculators")
    page.go_back()
    settle(page)
    assert headline(page) == noise


def test_every_plot_can_be_taken_as_figures_and_as_a_drawing(context: Any, address: str) -> None:
    page = opened(context, address, "/calculators/training?plot=all")
    figures = page.locator("#plots figure").all()
    titles = ["Delta against epsilon", "Renyi divergence", "The attacker's errors", "Epsilon against noise", "Epsilon against steps"]
    assert [figure.locator("h3").inner_text() for figure in figures] == titles
    for figure in figures:
        with page.expect_download() as given:
            figure.get_by_role("button", name="CSV").click()
        rows = list(csv.reader(io.StringIO(given.value.path().read_text(encoding="utf-8"))))
        assert len(rows) > 5
        assert all(len(row) == 3 and float(row[1]) >= 0 and float(row[2]) >= 0 for row in rows[1:])
        with page.expect_download() as given:
            figure.get_by_role("button", name="SVG").click()
        drawing = given.value.path().read_text(encoding="utf-8")
        assert ET.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in drawing


def test_a_plot_tells_the_figures_of_the_point_under_the_pointer_in_full(context: Any, address: str) -> None:
    page = opened(context, address, "/calculators/gaussian?std=4&plot=delta")
    drawing = page.locator("#plots svg")
    assert page.inner_text("#plots .reading").strip() == ""
    drawing.hover()
    page.locator("#plots .reading", has_text=",").wait_for()
    x, y = page.inner_text("#plots .reading").split(", ")
    unfold(page, "Show as a table")
    cells = [row.locator("td").all_inner_texts() for row in page.locator("#plots figure tbody tr").all()]
    assert ["delta", x, y] in cells
    page.mouse.move(0, 0)
    page.locator("#plots .reading:not(:has-text(','))").wait_for()
