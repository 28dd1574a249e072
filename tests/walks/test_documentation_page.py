"""The API's description in a real browser that can reach nothing but this machine: to try it on, and to read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.walks.pages import PHONE, Complaints
from tests.walks.test_pages import SERIOUS

pytestmark = pytest.mark.slow

NAMED = ("/v1/profiles", "/v1/calibrations", "/v1/compare/complex_gaussian", "/v1/jobs")


def drawn(context: Any, address: str, path: str, ready: str) -> Any:
    """The page, once the description is written out."""
    page = context.new_page()
    page.complaints = Complaints()
    page.complaints.watch(page)
    page.goto(address + path)
    page.locator(ready).first.wait_for()
    return page


def test_every_calculator_can_be_tried(chromium: Any, address: str) -> None:
    context = chromium.new_context()
    page = drawn(context, address, "/docs", ".opblock")
    for path in NAMED:
        assert page.locator(f'[data-path="{path}"]').count() >= 1
    assert page.complaints.lines == []
    context.close()


def test_every_path_can_be_read_and_none_is_written_out_without_end(chromium: Any, address: str) -> None:
    context = chromium.new_context()
    page = drawn(context, address, "/redoc", ".api-content")
    text = page.inner_text("#redoc")
    paths = page.request.get(f"{address}/openapi.json").json()["paths"]
    assert [path for path in paths if path not in text] == []
    page.set_viewport_size({"width": PHONE, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert page.complaints.lines == []
    context.close()


def test_a_service_that_doesnt_answer_is_said_not_to(chromium: Any, address: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.route("**/openapi.json", lambda route: route.abort())
    page.goto(f"{address}/redoc")
    page.locator("#redoc", has_text="can't be read at the moment").wait_for()
    context.close()


@pytest.mark.parametrize(("path", "ready"), [("/docs", ".opblock"), ("/redoc", ".api-content")])
def test_axe_finds_nothing_serious_that_is_ours(path: str, ready: str, chromium: Any, address: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(bypass_csp=True)
    found = Axe().run(drawn(context, address, path, ready)).response["violations"]
    context.close()
    serious = [one for one in found if one["impact"] in SERIOUS]
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in serious] == []
