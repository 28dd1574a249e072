"""The pages in a real browser without internet: nothing fails to load, no script complains, and a screen reader can use them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.selection import chosen
from tests.walks.pages import DESK, PHONE, Complaints
from zetadp.app.calculators import catalogue
from zetadp.app.web.live_forms import COMPARISONS

ASKING = ("/comparisons", *(f"/comparisons/{name}" for name in COMPARISONS), "/noise-shapes", "/conversions")
WITHOUT_KEY = ("/papers", "/proofs", "/proofs/complex_gaussian", "/vocabulary", "/start", "/certificates")
UNKNOWN = "/unknown/" + "a" * 60
PATHS = (
    "/",
    "/calculators",
    "/calculators/training",
    "/calculators/event",
    *(f"/calculators/{one.kind}" for one in catalogue.list_mechanisms()),
    *ASKING,
    *WITHOUT_KEY,
)
ONE_OF_EACH_KIND = (
    "/",
    "/calculators",
    "/calculators/training",
    "/calculators/event",
    "/calculators/complex_gaussian",
    *ASKING[:2],
    "/noise-shapes",
    "/conversions",
    *WITHOUT_KEY,
)
MAIN = ("/", "/calculators/training", "/calculators/complex_gaussian", "/certificates")
"""What most people see, one of each kind of page; the others are made of the same parts."""
SERIOUS = ("serious", "critical")
"""Of what others draw: the handbook's theme, the API's description."""


def settle(page: Any) -> None:
    """Waits until a calculator has answered; other pages are as they come."""
    if page.locator("#answer").count():
        page.locator('#answer[aria-busy="false"]').wait_for()
        if page.locator("#plots").count():
            page.locator('#below[aria-busy="false"]').wait_for()
            page.locator('#plots[aria-busy="false"]').wait_for(state="attached")


def unfold(page: Any, *words: str) -> None:
    """Opens the parts that are folded under these words."""
    for one in words:
        page.locator("main summary", has_text=one).first.click()


def moved(page: Any, go: Callable[[], object]) -> None:
    """Goes back or forward within a page and waits for its answer: the move returns before the page has been told of it."""
    page.evaluate("document.getElementById('answer').setAttribute('aria-busy', 'true')")
    go()
    settle(page)


@pytest.fixture
def opened(reused: tuple[Any, Complaints], address: str) -> tuple[Callable[..., Any], Complaints]:
    """(a function that opens a path at a width, what was complained of)."""
    page, complaints = reused

    def open_(path: str, width: int = DESK) -> Any:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(address + path)
        settle(page)
        return page

    return open_, complaints


@pytest.mark.parametrize("path", chosen(PATHS, ["/calculators/training"]))
def test_a_page_loads_whole_and_nothing_complains(path: str, opened: Any, address: str) -> None:
    open_, complaints = opened
    page = open_(path)
    assert complaints.lines == []
    assert all(url.startswith((address, "data:")) for url in complaints.requested)
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("scheme", chosen(["light", "dark"], ["light"]))
@pytest.mark.parametrize("path", chosen([*ONE_OF_EACH_KIND, ASKING[2], UNKNOWN], MAIN))
def test_axe_finds_nothing(path: str, scheme: str, chromium: Any, address: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(address + path)
    settle(page)
    found = Axe().run(page).response["violations"]
    context.close()
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []


@pytest.mark.parametrize("path", chosen([*PATHS, UNKNOWN], MAIN))
def test_nothing_is_wider_than_a_phone(path: str, opened: Any) -> None:
    page = opened[0](path, PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


# The calculator

IN_VIEW = """() => {
  const text = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const place = document.createRange();
  const isSeen = (box) => box.height > 0 && box.bottom <= innerHeight;
  let words = 0;
  while (text.nextNode()) {
    const { parentElement, data } = text.currentNode;
    if (!parentElement.checkVisibility() || parentElement.closest(".help, .sr, .skip, select, noscript")) continue;
    for (const word of data.matchAll(/\\S*[\\p{L}\\p{N}]\\S*/gu)) {
      place.setStart(text.currentNode, word.index);
      place.setEnd(text.currentNode, word.index + word[0].length);
      words += isSeen(place.getBoundingClientRect());
    }
  }
  const selects = [...document.querySelectorAll("select")].filter((one) => one.checkVisibility() && isSeen(one.getBoundingClientRect()));
  return selects.reduce((all, one) => all + one.selectedOptions[0].text.split(" ").length, words);
}"""
"""How many words one sees without scrolling, navigation and all conditions of the guarantee included; what a field means is shown while one
is in it."""
FIRST_SCREEN = 800
MOST_WORDS = 120


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    chosen([f"/calculators/{one.kind}" for one in catalogue.list_mechanisms()] + ["/calculators/training"], ["/calculators/training"]),
)
def test_a_calculators_first_screen_takes_few_words(path: str, opened: Any) -> None:
    page = opened[0](path)
    page.set_viewport_size({"width": DESK, "height": FIRST_SCREEN})
    assert page.locator("#sentences li").count() > 0
    assert 40 < page.evaluate(IN_VIEW) <= MOST_WORDS


@pytest.mark.slow
def test_the_first_page_answers_and_hands_its_numbers_on(opened: Any) -> None:
    open_, complaints = opened
    page = open_("/")
    typed(page, "#noise", "2")
    assert headline(page) == "epsilon at most 1.994 at delta 0.00001"
    assert page.inner_text("#meaning .label") == "Moderate protection"
    page.check("input[value=noise]")
    typed(page, "#epsilon", "1.9934")
    assert 1.999 <= float(headline(page).split(" ")[1]) <= 2.0
    page.click("#continue")
    settle(page)
    assert headline(page) == "epsilon at most 1.994 at delta 0.00001"
    assert complaints.lines == []


def headline(page: Any) -> str:
    page.locator("#answer:not(.stale)").wait_for()
    return page.inner_text("#headline")


def typed(page: Any, selector: str, text: str) -> None:
    page.fill(selector, text)
    settle(page)


@pytest.mark.slow
def test_noise_gives_a_guarantee_and_that_guarantee_the_noise_back(opened: Any) -> None:
    page = opened[0]("/calculators/gaussian?std=2")
    assert headline(page) == "epsilon at most 1.994 at delta 0.00001"
    page.check("input[value=noise]")
    typed(page, "#epsilon", "1.9934")
    # The most epsilon that is asked for lies a little above what std 2 needs, so that a little less noise does.
    assert 1.999 <= float(headline(page).split(" ")[1].rstrip(",")) <= 2.0


@pytest.mark.slow
def test_what_can_void_epsilon_is_named_beside_it_and_what_it_means_is_in_the_services_own_sentences(opened: Any) -> None:
    open_, _ = opened
    page = open_("/calculators/gaussian?std=2")
    headline(page)
    with page.expect_response("**/v1/meanings") as answered:
        page.fill("#field-std", "3")
    answer = answered.value.json()
    settle(page)
    # What an attacker can do is said of the epsilon and delta that stand above, whatever the noise may allow.
    asked = json.loads(answered.value.request.post_data)
    assert headline(page) == "epsilon at most 1.272 at delta 0.00001"
    assert (asked["delta"], asked["adjacency"], 1.271 < asked["epsilon"] <= 1.272) == (1e-5, "add_remove", True)
    unfold(page, "Exact words")
    named, guessed = answer["naming"], answer["guess"]
    assert page.locator("#meaning details").first.locator("p").all_inner_texts()[:2] == [named["sentence"], guessed["sentence"]]
    assert [one.is_visible() for one in page.locator("#sentences li").all()] == [True] * 2
    most = re.findall(r"at most ([\d.]+) %", named["sentence"])[0]
    attack = "An attack that names this record in \u20601 of 100 runs if it was left out names it in at most"
    assert f"{attack} \u2060{most} of 100 if not." in page.inner_text("#meaning")
    # A figure for each run in which the attack names a record that is included, rounded up; the first names it in any case.
    assert page.locator("#meaning .people .taking").count() == math.ceil(float(most)) - 1


def test_nothing_stays_that_isnt_of_what_is_typed(opened: Any) -> None:
    page = opened[0]("/calculators/gaussian?plot=delta")
    unfold(page, "What papers print", "Derivation")
    assert page.locator("#published tbody tr").count() > 0
    assert page.locator("#steps tr").count() > 0
    assert page.locator("#plots figure").count() == 1
    page.fill("#field-std", "-1")
    page.locator("#field-std-problem", has_text="Must be").wait_for()
    for shown in ("#published tbody tr", "#steps tr", "#plots figure"):
        assert page.locator(shown).count() == 0
    assert not page.is_visible("#meaning")
    assert page.inner_text("#published-part summary") == "What papers print"
    assert "for the earlier values" in page.inner_text("#earlier")


@pytest.mark.slow
def test_the_whole_form_is_in_the_address(opened: Any) -> None:
    page = opened[0]("/calculators/laplace")
    typed(page, "#field-scale", "2.5")
    first = headline(page)
    again = opened[0](page.url.split("127.0.0.1", 1)[1].split("/", 1)[1].join(("/", "")))
    assert headline(again) == first
    assert again.input_value("#field-scale") == "2.5"


ABSURD = {
    "letters": ("abc", "Enter a number, such as"),
    "blank": ("   ", "Enter a number."),
    "too large": ("1e999", "too large"),
    "negative": ("-1", "Must be"),
    "markup": ("<img src=x onerror=alert(1)>", "Enter a number"),
    "long": ("9" * 10_000, "Enter a number"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", chosen(ABSURD, ["markup"]))
def test_what_is_wrong_stands_beside_its_field_and_the_last_answer_stays(what: str, opened: Any) -> None:
    text, message = ABSURD[what]
    open_, complaints = opened
    page = open_("/calculators/gaussian")
    before = page.inner_text("#headline")
    page.fill("#field-std", text)
    page.locator("#field-std-problem", has_text=message).wait_for()
    assert page.get_attribute("#field-std", "aria-invalid") == "true"
    assert page.inner_text("#headline") == before
    # The browser itself reports a refusal's status.
    assert [line for line in complaints.lines if "422" not in line] == []
