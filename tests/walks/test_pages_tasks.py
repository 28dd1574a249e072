"""What people come for, with a keyboard alone and in few actions: a pressed key or a typed word is one."""

from __future__ import annotations

import re
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.jobs_harness import spec, submit, wait_for_state
from tests.walks.pages import Complaints, Service, give_key
from tests.walks.test_pages import headline, settle

MOST_ACTIONS = 8


class Hands:
    """A keyboard that counts. It begins at the top of a page and goes past the navigation."""

    def __init__(self, page: Any, address: str, path: str, ready: str) -> None:
        self.page, self.actions = page, 0
        page.goto(address + path)
        page.locator(ready).first.wait_for()
        self.press("Tab", "Enter")
        # The link past the navigation moves the focus with the next picture that is drawn, which may be later than the next key.
        page.locator("#main:focus").wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.actions += len(keys)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.actions += 1


@pytest.fixture(scope="module")
def runs(client: httpx2.Client) -> list[str]:
    """Two that succeeded."""
    made = [submit(client), submit(client)]
    for job in made:
        wait_for_state(client, job, "succeeded")
    return made


@pytest.fixture
def page(window: Any, service: Service, key: str) -> Generator[Any]:
    found, complaints = window.new_page(), Complaints()
    give_key(found, service.address, key)
    complaints.watch(found)
    yield found
    assert complaints.lines == []
    found.close()


def test_the_noise_for_epsilon_2(page: Any, address: str) -> None:
    hands = Hands(page, address, "/", '#answer[aria-busy="false"]')
    hands.press("Tab", "ArrowRight", "Tab", "Control+a")
    hands.type("2")
    page.locator("#headline", has_text="for epsilon 2 at").wait_for()
    settle(page)
    assert 1.9 < float(headline(page).split(" ")[1]) < 2.1
    assert hands.actions <= MOST_ACTIONS


def test_a_certificate_is_checked(page: Any, address: str, runs: list[str], client: httpx2.Client, tmp_path: Path) -> None:
    certificate = client.get(f"/v1/jobs/{runs[0]}").json()["certificate"]
    file = tmp_path / "certificate.json"
    file.write_bytes(client.get(f"/v1/certificates/{certificate}?form=dsse").content)
    # The browser learns that file choosers are ours by another way than keys, which a key may overtake: so it is told at the beginning.
    page.on("filechooser", lambda _chooser: None)
    hands = Hands(page, address, "/certificates", "#head dd")
    hands.press("Tab")
    page.locator("#file:focus").wait_for()
    with page.expect_file_chooser() as chooser:
        hands.press("Enter")
    chooser.value.set_files(file)
    hands.actions += 1
    assert page.inner_text("#report .verdict-line") == "Valid."
    # The same words as everywhere for what it certifies.
    page.locator("#report .meaning .label", has_text="protection").wait_for()
    assert hands.actions <= MOST_ACTIONS


def test_a_recipe_is_submitted(page: Any, address: str, client: httpx2.Client) -> None:
    hands = Hands(page, address, "/jobs/new", '#form[aria-busy="false"]')
    # Past the data, which are the recipe's own unless others are chosen.
    hands.press("Tab", "Tab", "Tab", "Space")
    page.locator("#about", has_text="filled in").wait_for()
    hands.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f]{32}$"))
    assert hands.actions <= MOST_ACTIONS
    # Not by its button, which a job that ends meanwhile takes away.
    client.post(f"/v1/jobs/{page.url.rpartition('/')[2]}/cancel")


def test_what_is_left_of_a_budget(page: Any, address: str, client: httpx2.Client) -> None:
    body = {"name": "ward", "budget": {"kind": "gdp", "mu": 1.0}, "adjacency": "add_remove", "unit": "patient", "protects": "data_set"}
    client.post("/v1/ledgers", json=body)
    hands = Hands(page, address, "/ledgers", '#list[aria-busy="false"] a')
    hands.press("Tab", "Tab", "Enter")
    page.locator("#balance td[data-name=Left]", has_text="1").wait_for()
    assert hands.actions <= MOST_ACTIONS


def test_two_runs_are_compared(page: Any, address: str, runs: list[str]) -> None:
    hands = Hands(page, address, "/jobs", "#compare:not([hidden])")
    hands.press("Tab", "Tab", "Enter")
    page.locator("#runs tr").nth(1).wait_for()
    page.locator("#plots figure svg").first.wait_for()
    assert page.locator("#runs tr").count() == 2
    assert hands.actions <= MOST_ACTIONS


@pytest.mark.slow
def test_epsilons_of_different_things_are_not_drawn_together(page: Any, address: str, runs: list[str], client: httpx2.Client) -> None:
    privacy = {"adjacency": "zero_out", "unit": "record", "delta": 1e-5, "noise_multiplier": 20.0}
    runtime = {"microbatch_size": 1, "checkpoint_seconds": 0.01}
    other = client.post("/v1/jobs", json={"spec": spec(privacy=privacy), "runtime": runtime})
    wait_for_state(client, other.json()["id"], "succeeded")
    page.goto(f"{address}/jobs/compare?id={runs[0]}&id={other.json()['id']}")
    page.locator("#unlike", has_text="one record's data blanked out").wait_for()
    assert page.locator("#plots figure", has_text="Epsilon spent").count() == 0
    assert page.locator("#across option[value=epsilon]").is_disabled()
    assert "epsilon 1 at delta 0.00001 (one record more or less)" in page.locator("#runs tr").first.inner_text()


@pytest.mark.slow
def test_runs_are_drawn_while_their_events_come(page: Any, address: str, client: httpx2.Client) -> None:
    # Without a pause that is as long as between two pictures.
    job = submit(client, step_seconds=0.05, steps=400)
    page.goto(f"{address}/jobs/compare?id={job}")
    page.locator("#runs tr", has_text=re.compile(r"running.*of 400", re.DOTALL)).wait_for()
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "running"
    client.post(f"/v1/jobs/{job}/cancel").raise_for_status()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["job", "comparison"])
def test_epsilon_spent_is_drawn_as_jumps(where: str, page: Any, address: str, runs: list[str]) -> None:
    page.goto(f"{address}/jobs/{runs[0]}" if where == "job" else f"{address}/jobs/compare?id={runs[0]}&id={runs[1]}")
    page.locator("#plots figure", has_text="Epsilon spent").locator("svg").wait_for()
    drawn = (
        page.locator("#plots figure", has_text="Epsilon spent")
        .locator("g[aria-label=line] path, g path[stroke-width='2'], g[stroke-width='2'] path")
        .first
    )
    points = [tuple(map(float, one)) for one in re.findall(r"[ML]([-\d.]+),([-\d.]+)", drawn.get_attribute("d").replace("L", " L"))]
    assert len(points) > 2
    # Each piece is level or upright, and goes up (a smaller y) before it goes on: never below what was spent.
    assert all(left[0] == right[0] or left[1] == right[1] for left, right in pairwise(points))
    first = next((left, right) for left, right in pairwise(points) if left != right)
    assert first[0][0] == first[1][0]
    assert first[1][1] < first[0][1]


@pytest.mark.slow
def test_what_the_spent_epsilon_means_names_it(page: Any, address: str, runs: list[str]) -> None:
    page.goto(f"{address}/jobs/{runs[0]}")
    page.locator("#meaning-part summary").wait_for()
    page.click("#meaning-part summary")
    page.locator("#meaning .label").wait_for()
    assert page.inner_text("#meaning-of") == "epsilon 1 at delta 0.00001"
