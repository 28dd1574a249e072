"""The papers' page in a real browser: every reading opens where its figure comes from, filled in with the paper's values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.selection import chosen
from tests.walks.pages import Complaints
from tests.walks.test_pages import headline, settle
from zetadp.app.papers.router import REPORTS

pytestmark = pytest.mark.slow

LINES = """() => [...document.querySelectorAll('#paper tbody tr')].map((row) => ({
  paper: document.querySelector('#paper').dataset.paper, name: row.querySelector('td a').textContent,
  link: row.querySelector('td a').getAttribute('href'), proven: row.cells[2].textContent,
}))"""


@pytest.mark.parametrize("every", chosen([1, 20], [20]))
def test_every_reading_opens_its_calculator_with_the_papers_values(every: int, reused: tuple[Any, Complaints], address: str) -> None:
    page, complaints = reused
    lines = []
    for paper in REPORTS:
        page.goto(f"{address}/papers/{paper}")
        page.locator('#paper[aria-busy="false"]').wait_for()
        lines += page.evaluate(LINES)
    assert len({line["paper"] for line in lines}) == 5
    first = {(line["paper"], line["name"]): line for line in reversed(lines)}
    calculators = [line for line in first.values() if line["link"].startswith("/calculators/")]
    others = [line for line in first.values() if line not in calculators]
    # Fixed samples, groups, single releases without a delta: one of each at least.
    assert len(calculators) > 12
    assert all(line["proven"] == "infinite" for line in others)
    for line in calculators[::every]:
        page.goto(f"{address}{line['link']}&plot=renyi")
        settle(page)
        found = headline(page).removeprefix("epsilon at most ").split(" ")[0]
        assert (found == line["proven"]) or abs(float(found) / float(line["proven"]) - 1) < 2e-3, line
    for line in others:
        if line["link"].startswith("#"):
            page.goto(f"{address}/papers{line['link']}")
            assert page.is_visible(f"tr{line['link']}")
        else:
            page.goto(f"{address}{line['link']}")
            settle(page)
            assert "promise more privacy than is proven" in page.inner_text("#sentences")
    assert complaints.lines == []
