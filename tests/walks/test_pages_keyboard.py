"""The pages with a keyboard alone: everything is reached in the order it stands in, and one sees where one is."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import Order, submit, wait_for_state, wait_until
from tests.selection import chosen
from tests.walks.pages import Service

pytestmark = pytest.mark.slow

READY = {
    "/": "h1",
    "/start": "h1",
    "/vocabulary": "h1",
    "/jobs": '#list[aria-busy="false"] tr',
    "/jobs/new": '#form[aria-busy="false"]',
    "/jobs/{job}": "#plots figure",
    "/ledgers": '#list[aria-busy="false"] tr',
    "/ledgers/{ledger}": "#entries tr",
    "/certificates": "#head dd",
}
"""Each page, and what is there once it is filled."""

NUMBERED = """() => {
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
  const reached = [...all].filter((one) => {
    const group = one.type === "radio"
      ? document.querySelector(`input[name="${one.name}"]:checked`) ?? document.querySelector(`input[name="${one.name}"]`)
      : null;
    return one.checkVisibility() && !one.matches(":disabled") && (group === null || group === one);
  });
  reached.forEach((one, place) => one.dataset.place = String(place));
  return reached.length;
}"""
"""Numbers what a keyboard has to reach, in the order it stands in; of a group of radio buttons the chosen one, or the first."""

HERE = """() => {
  const style = getComputedStyle(document.activeElement);
  return [document.activeElement.dataset.place ?? null, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""


@pytest.fixture(scope="module")
def made(client: httpx2.Client) -> dict[str, str]:
    """A job that was paused, and a budget."""
    job = submit(client, Order.HOLD)
    wait_until(lambda: (client.get(f"/v1/jobs/{job}").json()["progress"] or {"step": 0})["step"] == 7)
    client.post(f"/v1/jobs/{job}/pause")
    wait_for_state(client, job, "paused")
    body = {"name": "one", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    return {"job": job, "ledger": client.post("/v1/ledgers", json=body).json()["id"]}


@pytest.fixture
def page(chromium: Any, key: str) -> Generator[Any]:
    context = chromium.new_context()
    context.add_init_script(f"sessionStorage.setItem('zetadp-key', '{key}')")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("path", chosen(READY, ["/jobs/new", "/ledgers/{ledger}"]))
def test_tab_reaches_everything_in_its_order_and_shows_where_it_is(path: str, page: Any, service: Service, made: dict[str, str]) -> None:
    page.goto(service.address + path.format(**made))
    page.locator(READY[path]).first.wait_for()
    expected = page.evaluate(NUMBERED)
    assert expected > 10
    places: list[int] = []
    unseen: list[int] = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        place, is_seen = page.evaluate(HERE)
        places.append(int(place))
        if not is_seen:
            unseen.append(int(place))
    assert places == list(range(expected))
    assert unseen == []


def test_the_first_tab_leads_past_the_navigation(page: Any, service: Service) -> None:
    page.goto(f"{service.address}/jobs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_the_key_dialog_is_used_without_a_mouse(page: Any, service: Service) -> None:
    page.goto(f"{service.address}/jobs")
    page.focus("#key")
    page.keyboard.press("Enter")
    page.keyboard.type("no key")
    page.keyboard.press("Enter")
    page.locator("#key-problem", has_text="starts with zdp_").wait_for()
    assert page.evaluate("document.activeElement.id") == "key-input"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "key"
