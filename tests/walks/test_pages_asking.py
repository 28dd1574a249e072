"""Comparisons, conversions and shapes of noise in a real browser: what stands there is what the API answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.selection import chosen
from tests.walks.pages import Complaints
from tests.walks.test_pages import headline, moved, settle, typed

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(reused: tuple[Any, Complaints], address: str) -> tuple[Callable[..., Any], Complaints]:
    """(a function that opens a path, what was complained of)."""
    page, complaints = reused

    def open_(path: str) -> Any:
        page.goto(address + path)
        settle(page)
        return page

    return open_, complaints


def test_a_comparison_shows_every_statement_of_the_answer_and_follows_what_is_typed(opened: Any, address: str) -> None:
    page = opened[0]("/comparisons/classic_gaussian?epsilon=8&delta=0.001")
    answer = httpx2.post(f"{address}/v1/compare/classic_gaussian", json={"epsilon": 8.0, "delta": 1e-3}).json()
    assert page.locator("#rest tbody tr").count() == len(answer["published"])
    assert "3 promise more privacy than is proven" in page.inner_text("#sentences")
    typed(page, "#field-epsilon", "0.5")
    assert "2 promise less than is proven" in page.inner_text("#sentences")
    assert "epsilon=0.5" in page.url


def test_a_conversion_is_the_apis_rounded_to_the_side_that_promises_less(opened: Any, address: str) -> None:
    page = opened[0]("/conversions")
    request = {"given": {"kind": "zcdp", "rho": 0.7}, "to": [{"kind": "approximate", "delta": 1e-6}, {"kind": "pure"}]}
    epsilon, pure = httpx2.post(f"{address}/v1/conversions", json=request).json()["conversions"]
    typed(page, "#zcdp-rho", "0.7")
    typed(page, "#at-delta", "1e-6")
    shown = float(headline(page).removeprefix("epsilon at most ").split(" ")[0])
    assert epsilon["value"] <= shown <= epsilon["value"] * (1 + 1e-5)
    assert pure["status"] == "impossible"
    assert "for all neighbours, in both orders" in page.inner_text("#sentences")
    assert page.locator("#rest tbody tr").first.inner_text().split("\t")[1:3] == ["infinite", "impossible"]
    page.select_option("#kind", "gdp")
    settle(page)
    assert page.is_visible("#gdp-mu")
    assert not page.is_visible("#zcdp-rho")
    of_mu = headline(page)
    moved(page, page.go_back)
    assert page.input_value("#kind") == "zcdp"
    assert headline(page) != of_mu


def test_the_best_shape_is_found_for_a_size_and_for_a_target(opened: Any, address: str) -> None:
    page = opened[0]("/noise-shapes")
    of_size = headline(page)
    page.fill("#field-total-std", "")
    page.locator("summary").first.click()
    typed(page, "#field-target-gdp-mu", "0.5")
    sensitivity = {"l2": 1.0, "l2_real": 1.0, "l2_imag": 0.3, "adjacency": "add_remove", "unit": "record"}
    answer = httpx2.post(f"{address}/v1/noise-shapes", json={"sensitivity": sensitivity, "target": {"gdp_mu": 0.5}}).json()
    assert headline(page) != of_size
    assert answer["std_real"] <= float(headline(page).removeprefix("real std ").split(",")[0]) <= answer["std_real"] * (1 + 1e-5)


@pytest.mark.parametrize("path", ["/comparisons/spof", "/conversions", "/noise-shapes"])
@pytest.mark.parametrize("text", chosen(["abc", "1e999", "<b>pasted</b>", "x9" * 5_000], ["<b>pasted</b>"]))
def test_what_is_wrong_stands_beside_its_field(path: str, text: str, opened: Any) -> None:
    open_, complaints = opened
    page = open_(path)
    before = page.inner_text("#headline")
    field = page.locator("#form input[data-kind=number]:visible, #form input[data-kind=integer]:visible").first
    field.fill(text)
    settle(page)
    page.locator(f"#{field.get_attribute('id')}-problem", has_text="number").wait_for()
    assert page.inner_text("#headline") == before
    assert page.is_visible("#earlier")
    assert complaints.lines == []
