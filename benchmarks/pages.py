r"""How long answers take in a headless browser: on a cold page from the request of the page, and while one types from the last key.

    python -m benchmarks.pages http://127.0.0.1:8000 20

prints median, 95th percentile and worst of so many answers for every calculator and direction, at its example's values changed by some
percent each time. Goals on an idle machine: a second on a cold page, 150 ms (95th percentile) while typing. An answer is there once its
headline and its conditions are.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from typing import Any
from urllib.request import urlopen

WATCH = """() => {
  window.begun = 0; window.taken = null;
  document.getElementById('form').addEventListener('input', () => { window.begun = performance.now(); window.taken = null; }, true);
  new MutationObserver(() => { if (window.begun && window.taken === null) window.taken = performance.now() - window.begun; })
    .observe(document.getElementById('headline'), { childList: true, characterData: true, subtree: true });
}"""
MODES = ("guarantee", "noise", "count")
LONGEST_WAIT_TURNS = 600
TURN_MILLISECONDS = 20


def typed(page: Any, selector: str, text: str) -> float | None:
    """Milliseconds until the headline changed; None where it never did."""
    page.focus(selector)
    page.keyboard.press("Control+a")
    page.keyboard.type(text, delay=30)
    for _ in range(LONGEST_WAIT_TURNS):
        page.wait_for_timeout(TURN_MILLISECONDS)
        taken = page.evaluate("() => window.taken")
        if taken is not None or page.locator(".stale").count():
            return taken
    return None


def measured(page: Any, mode: str, times: int) -> list[float]:
    """Of one calculator in one direction."""
    page.check(f"input[value={mode}]")
    page.locator('#plots[aria-busy="false"]').wait_for(state="attached", timeout=60_000)
    page.evaluate(WATCH)
    fields = ("#field-std", "#field-scale", "#field-epsilon")
    own = next(field for field in fields if page.locator(field).count())
    selector = own if mode == "guarantee" else "#epsilon"
    # Counting needs an epsilon that one release keeps to.
    start = 8.0 if mode == "count" else float(page.input_value(selector))
    found = (typed(page, selector, f"{start * (1.11 + 0.13 * turn):.4g}") for turn in range(times))
    return [taken for taken in found if taken is not None]


ANSWERED = """() => {
  const headline = document.getElementById('headline');
  return headline && headline.textContent.trim() !== '\u2026' && document.querySelector('#sentences li') !== null;
}"""


def cold(browser: Any, url: str, times: int) -> list[float]:
    """Milliseconds from the navigation to the first answer, each with nothing kept of an earlier visit."""
    found: list[float] = []
    for _ in range(times):
        context = browser.new_context()
        page = context.new_page()
        page.goto(url, wait_until="commit")
        page.wait_for_function(ANSWERED)
        found.append(page.evaluate("performance.now()"))
        context.close()
    return found


def described(found: list[float]) -> str:
    """Median, 95th percentile and worst."""
    if len(found) < 2:
        return "no answer"
    late = statistics.quantiles(found, n=20, method="inclusive")[-1]
    return f"median {statistics.median(found):5.0f} ms, 95 % {late:5.0f} ms, worst {max(found):5.0f} ms ({len(found)} answers)"


def main() -> None:
    """Prints a line for each calculator and direction."""
    from playwright.sync_api import sync_playwright

    address, times = sys.argv[1], int(sys.argv[2])
    with urlopen(f"{address}/v1/mechanisms") as answer:  # noqa: S310
        names = ["training", *(one["kind"] for one in json.load(answer) if not one["declared"])]
    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for path in ("/", "/calculators/training", "/calculators/gaussian"):
            sys.stdout.write(f"{path:29} cold {described(cold(browser, address + path, times))}\n")
        for name in names:
            for mode in MODES:
                page = browser.new_page()
                page.goto(f"{address}/calculators/{name}")
                page.locator('#answer[aria-busy="false"]').wait_for(timeout=60_000)
                sys.stdout.write(f"{name:18} {mode:10} {described(measured(page, mode, times))}\n")
                sys.stdout.flush()
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
