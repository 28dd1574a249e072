"""A calculator in a real browser: printed formulas stand beside proved ones, with figures, for what is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.selection import thinned
from tests.walks.pages import Complaints
from tests.walks.test_pages import headline, settle, typed
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
    page.locator('#published[aria-busy="false"]').wait_for()
    page.locator('#plots[aria-busy="false"]').wait_for()
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
def test_the_classic_formula_is_compared_at_the_epsilon_that_is_asked_for(opened: Any) -> None:
    page = opened[0]("/calculators/gaussian?mode=noise&epsilon=8&delta=0.001")
    assert published(page, "P11", "noise multiplier") == ("0.47206", "0.480014", "promises too much")
    typed(page, "#epsilon", "0.5")
    assert published(page, "P11", "noise multiplier")[2] == "looser than needed"


@pytest.mark.parametrize("name", thinned(sorted(COMPARISONS), every=8))
def test_every_comparison_answers_at_the_first_values(name: str, opened: Any) -> None:
    open_, complaints = opened
    page = open_(f"/calculators/{name}")
    assert page.locator("#published tbody tr").count() > 0
    assert page.inner_text("#published .said")
    assert complaints.lines == []


def test_samples_can_be_told_by_their_size_and_solved_for(opened: Any) -> None:
    page = opened[0]("/calculators/training")
    by_probability = headline(page)
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
