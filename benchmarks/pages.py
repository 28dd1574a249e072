r"""How long a calculator's first answer takes in a headless browser: from the last key to the headline's change.

    python -m benchmarks.pages http://127.0.0.1:8000 10

prints median and worst of so many answers for every calculator and direction, at its example's values changed by some percent each time.
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
        for name in names:
            for mode in MODES:
                page = browser.new_page()
                page.goto(f"{address}/calculators/{name}")
                page.locator('#answer[aria-busy="false"]').wait_for(timeout=60_000)
                found = measured(page, mode, times)
                line = f"median {statistics.median(found):5.0f} ms, worst {max(found):5.0f} ms" if found else "no answer"
                sys.stdout.write(f"{name:18} {mode:10} {line} ({len(found)} answers)\n")
                sys.stdout.flush()
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
