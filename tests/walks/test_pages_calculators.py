"""A calculator in a real browser: printed formulas stand beside proved ones, with figures, for what is typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.selection import thinned
from tests.walks.pages import Complaints
from tests.walks.test_pages import headline, settle, typed, unfold
from zetadp.app.web.calculators import COMPARISONS


@pytest.fixture
def opened(reused: tuple[Any, Complaints], address: str) -> tuple[Callable[..., Any], Complaints]:
    """(a function that opens a path, what was complained of)."""
    page, complaints = reused

    def open_(path: str) -> Any:
        page.goto(address + path)
        settle(page)
        return page

    return open_, complaints


def published(page: Any, row: str, about: str) -> tuple[str, str, str]:
    """(published, proven, verdict) of the statement ``about`` something that a row of the errata is on."""
    settle(page)
    if page.locator("#published-part:not([open])").count():
        unfold(page, "What papers print")
    found = page.locator("#published tbody tr", has=page.locator(f"a[href='/papers#{row}']")).filter(has_text=about).first
    texts = found.locator("td").all_inner_texts()
    return texts[0], texts[1], texts[2].splitlines()[0]


def test_published_stands_beside_proven_and_says_that_it_promises_too_much(opened: Any, address: str) -> None:
    page = opened[0]("/calculators/complex_gaussian?correlation=0&sensitivity.l2_real=&sensitivity.l2_imag=&std=1.5")
    found = published(page, "Z2", "mu of one release")
    mechanism = {"kind": "complex_gaussian", "std": 1.5, "correlation": 0.0}
    mechanism["sensitivity"] = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
    answer = httpx2.post(f"{address}/v1/compare/complex_gaussian", json={"mechanism": mechanism, "deltas": [1e-5]}).json()
    theorem = next(one for one in answer["published"] if one["erratum"] == "Z2")["epsilon"][0]
    assert float(found[0]) == pytest.approx(theorem["printed"], rel=1e-5)
    assert theorem["proven"] <= float(found[1]) <= theorem["proven"] * (1 + 1e-5)
    assert found[2] == "promises too much"
    assert "more privacy than is proven" in page.inner_text("#published .said")
    typed(page, "#field-std", "3")
    assert published(page, "Z2", "mu of one release") != found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["guarantee", "noise"])
def test_noise_of_real_and_imaginary_parts_is_asked_by_a_link_that_names_them_alone(mode: str, opened: Any) -> None:
    page = opened[0](f"/calculators/complex_gaussian?std_real=1&std_imag=2&mode={mode}")
    if mode == "guarantee":
        assert headline(page).startswith("epsilon at most ")
        return
    assert headline(page).startswith("real std 3.9")
    # And whoever types them can't see the one deviation, so it can't be in the way.
    page = opened[0]("/calculators/complex_gaussian?mode=noise")
    unfold(page, "More settings")
    typed(page, "#field-std-real", "1")
    typed(page, "#field-std-imag", "2")
    assert headline(page).startswith("real std 3.9")
    assert "in the ratio that you entered" in page.inner_text("#sentences")


@pytest.mark.slow
def test_a_mechanisms_own_epsilon_is_not_called_the_guarantees(opened: Any) -> None:
    page = opened[0]("/calculators/duchi_linf?mode=noise")
    assert headline(page) == "pure epsilon per record 1.00001, for epsilon 1 at delta 0.00001"


@pytest.mark.slow
def test_the_classic_formula_is_compared_at_the_epsilon_that_is_asked_for(opened: Any) -> None:
    page = opened[0]("/calculators/gaussian?mode=noise&epsilon=8&delta=0.001")
    assert published(page, "P11", "noise multiplier") == ("0.47206", "0.480014", "promises too much")
    typed(page, "#epsilon", "0.5")
    assert published(page, "P11", "noise multiplier")[2] == "looser than needed"


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(sorted(COMPARISONS), every=8))
def test_every_comparison_answers_at_the_first_values(name: str, opened: Any) -> None:
    open_, complaints = opened
    page = open_(f"/calculators/{name}")
    unfold(page, "What papers print")
    assert page.locator("#published tbody tr").count() > 0
    assert page.inner_text("#published .said")
    assert complaints.lines == []


@pytest.mark.slow
def test_samples_can_be_told_by_their_size_and_solved_for(opened: Any) -> None:
    page = opened[0]("/calculators/training")
    by_probability = headline(page)
    unfold(page, "More settings")
    page.select_option("#sampling", "size")
    settle(page)
    assert headline(page) == by_probability
    page.check("input[value=sample]")
    typed(page, "#epsilon", by_probability.split(" ")[3])
    size = float(headline(page).removeprefix("samples of at most ").split(" ")[0])
    assert 600 <= size < 601
    page.select_option("#sampling", "probability")
    settle(page)
    assert headline(page).startswith("each unit in a sample with probability at most 0.0100")


GAUSSIAN = {"kind": "gaussian", "std": 4.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
RELEASE = {"kind": "release", "mechanism": GAUSSIAN}
CUT = {"probability": 0.5, "largest_batch": 6, "population_size": 10}
SAMPLINGS = {
    "sampling=cut&probability=0.5&largest=6&records=10": {"kind": "truncated_poisson_sampled", **CUT, "event": RELEASE},
    "sampling=allocated&epoch=2": {"kind": "randomly_allocated", "steps": 2, "event": RELEASE},
    "runs=geometric&mean=3": {"kind": "repeated_and_selected", "runs": {"kind": "geometric", "mean": 3.0}, "event": RELEASE},
}


@pytest.mark.parametrize("query", thinned(SAMPLINGS, every=3))
def test_a_form_answers_what_the_api_answers_of_the_event_it_makes(query: str, opened: Any, address: str) -> None:
    page = opened[0](f"/calculators/gaussian?std=4&{query}")
    answer = httpx2.post(f"{address}/v1/profiles", json={"event": SAMPLINGS[query], "deltas": [1e-5]}, timeout=100).json()
    shown = float(headline(page).split(" ")[3])
    assert answer["epsilon"][0]["upper"] <= shown <= answer["epsilon"][0]["upper"] * 1.001
    assert page.locator("#steps tr").count() > 1
    unfold(page, "Share or repeat")
    page.click("#as-event")
    # The click returns before its page is left, which has answered.
    page.wait_for_url(re.compile(r"/calculators/event\?"))
    settle(page)
    assert float(headline(page).split(" ")[3]) == shown


@pytest.mark.slow
def test_what_random_allocation_asks_for_is_epochs_and_steps_of_one(opened: Any) -> None:
    page = opened[0]("/calculators/gaussian?std=4")
    assert page.inner_text("label[for=count]") == "Releases"
    assert not page.is_visible("#epoch")
    unfold(page, "More settings")
    page.select_option("#sampling", "allocated")
    assert page.inner_text("label[for=count]") == "Epochs"
    assert page.is_visible("#epoch")
    assert not page.is_visible("#probability")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "place", "words"),
    [
        ("sensitivity.adjacency=replace_one&probability=0.1&group=3", "field-sensitivity-l2-contribution", "what one unit alone adds"),
        ("sampling=allocated&epoch=2&group=21", "group", "Groups of more than 20 with random allocation"),
        ("runs=truncated_negative_binomial&mean=3&shape=-1", "shape", "more than -1"),
    ],
)
def test_a_refusal_stands_beside_what_it_is_about(query: str, place: str, words: str, opened: Any) -> None:
    page = opened[0](f"/calculators/gaussian?{query}")
    page.locator(f"#{place}-problem", has_text=words).wait_for()
    assert page.get_attribute(f"#{place}", "aria-invalid") == "true"


@pytest.mark.slow
def test_any_event_is_answered_as_json_and_refused_in_the_services_words(opened: Any) -> None:
    open_, complaints = opened
    page = open_("/calculators/event")
    first = headline(page)
    page.select_option("#example", label="(epsilon, delta)-DP")
    settle(page)
    assert headline(page) == "epsilon at most 0.5 at delta 0.00001"
    assert "approximate_dp" in page.text_content("#steps")
    assert complaints.lines == []
    page.fill("#event", '{"kind": "release"')
    page.locator("#event-problem", has_text="This isn't JSON").wait_for()
    page.fill("#event", '{"kind": "repeated", "count": 0, "event": {"kind": "non_private", "reason": "none"}}')
    page.locator("#event-problem", has_text="event.count: ").wait_for()
    assert page.locator("#answer.stale").count() == 1
    page.select_option("#example", label="One release")
    settle(page)
    assert headline(page) == first
