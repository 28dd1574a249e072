"""The handbook in a real browser that can reach nothing but this machine: every page, on a desk and on a phone, and its search."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.app import jobs_harness as harness
from tests.app.documents import build
from tests.walks.pages import DESK, PHONE, Complaints
from tests.walks.test_pages import SERIOUS
from zetadp.app.kit.settings import Settings

pytestmark = pytest.mark.slow

SHOWN = ("index.html", "limits.html", "settings.html", "api.html", "proofs/contour.html")
"""One of each kind: with the picture, of text, generated tables, a proof."""


@pytest.fixture(scope="module")
def handbook(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path]]:
    """(address, folder) of a built one that is served."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("handbook")
    build(folder)
    settings = Settings.model_validate(harness.settings(tmp_path_factory.mktemp("data")).model_dump() | {"handbook_dir": folder})
    with harness.serving(settings) as client:
        yield f"{str(client.base_url).rstrip('/')}/handbook/", folder


def test_it_is_searched_without_another_host(chromium: Any, handbook: tuple[str, Path]) -> None:
    context, complaints = chromium.new_context(), Complaints()
    page = context.new_page()
    complaints.watch(page)
    page.goto(handbook[0])
    page.locator("input[name=query]").fill("canaries")
    page.locator(".md-search-result__item a", has_text="Training").first.wait_for()
    assert complaints.lines == []
    assert [one for one in complaints.requested if not one.startswith((handbook[0], "data:"))] == []
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_every_page_is_drawn_under_the_policy_and_no_wider_than_the_window(
    width: int, scheme: str, chromium: Any, handbook: tuple[str, Path]
) -> None:
    address, folder = handbook
    context, complaints = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme), Complaints()
    page = context.new_page()
    complaints.watch(page)
    for path in sorted(folder.rglob("*.html")):
        page.goto(address + str(path.relative_to(folder)))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
    assert complaints.lines == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", SHOWN)
def test_axe_finds_nothing_serious(path: str, scheme: str, chromium: Any, handbook: tuple[str, Path]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    page.goto(handbook[0] + path)
    found = Axe().run(page).response["violations"]
    context.close()
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found if one["impact"] in SERIOUS] == []
