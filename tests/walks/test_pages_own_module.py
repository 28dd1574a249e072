"""The certificate of a module of one's own in a real browser: on the service's page of certificates, and as a page of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zetadp  # noqa: E402
from tests.app.forked import run_command  # noqa: E402
from tests.walks.pages import Complaints, Service  # noqa: E402
from tests.walks.test_pages_certificates import choose  # noqa: E402
from zetadp.app.kit.settings import Settings  # noqa: E402

pytestmark = pytest.mark.slow

pytestmark = pytest.mark.slow


def stopped_early(folder: Path, settings: Settings) -> bytes:
    """Of a loop that its owner left after 3 of 20 steps, with records to measure on that are declared public."""
    module = torch.nn.Linear(4, 2)
    features, labels = torch.randn(100, 4), torch.randint(0, 2, (100,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with zetadp.private(
        module,
        torch.nn.CrossEntropyLoss(),
        (features, labels),
        epsilon=2.0,
        delta=1e-5,
        unit="record",
        clipping_bound=1.0,
        expected_batch_size=10,
        steps=20,
        folder=folder,
        evaluation=zetadp.PublicRecords(torch.randn(30, 4), torch.randint(0, 2, (30,))),
        keep=[optimizer],
        settings=settings,
    ) as training:
        for step in training.steps():
            optimizer.step()
            if step.number == 3:
                break
        return training.finish().certificate


def test_the_services_page_checks_it_and_says_whose_key_it_doesnt_know(chromium: Any, service: Service, tmp_path: Path) -> None:
    context = chromium.new_context(viewport={"width": 1000, "height": 1400})
    page, complaints = context.new_page(), Complaints()
    complaints.watch(page)
    page.goto(f"{service.address}/certificates")
    assert choose(page, "certificate.json", stopped_early(tmp_path / "run", service.settings)) == "Valid."
    page.screenshot(path=str(tmp_path / "known.png"), full_page=True)
    other = stopped_early(tmp_path / "other", Settings(data_dir=tmp_path / "data"))
    assert choose(page, "certificate.json", other) == "Don't rely on it: it isn't valid."
    page.screenshot(path=str(tmp_path / "unknown.png"), full_page=True)
    assert complaints.lines == []
    context.close()


def test_its_own_page_says_how_many_steps_and_what_is_assumed_of_the_program(chromium: Any, tmp_path: Path) -> None:
    stopped_early(tmp_path / "run", Settings(data_dir=tmp_path / "data"))
    made = tmp_path / "certificate.html"
    assert run_command("certificate-page", str(tmp_path / "run" / "certificate.json"), "--output", str(made)).returncode == 0
    context = chromium.new_context(viewport={"width": 1000, "height": 1400})
    page, complaints = context.new_page(), Complaints()
    complaints.watch(page)
    page.goto(made.as_uri())
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    text = page.inner_text("main")
    for words in (
        "3 released of 20 planned",
        "The guarantee counts all planned steps",
        "used nothing else of the records",
        "module-code.sha256",
        "declared the held-out records public",
        "3\tgaussian: std",  # in the table of what was released
        "epsilon 2 at delta 1e-05",
    ):
        assert words in text, words
    page.screenshot(path=str(tmp_path / "open.png"), full_page=True)
    assert complaints.lines == []
    context.close()
