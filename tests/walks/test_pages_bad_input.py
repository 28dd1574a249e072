"""Every field of every calculator with what people paste: the message stands beside it in words, and the last good answer stays.

The fields are read from the page, so that a new mechanism is covered by being registered.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.selection import chosen
from tests.walks.pages import Complaints
from tests.walks.test_pages import settle
from zetadp.app.calculators import catalogue

pytestmark = pytest.mark.slow

ABSURD = {
    "letters": "abc",
    "blank": "   ",
    "too large": "1e999",
    "negative": "-1",
    "markup": "<b>pasted</b>",
    "long": "x9" * 5_000,
}
CAN_BE_RIGHT = {
    "number": {"negative"},
    "integer": set(),
    "integers": set(),
    "numbers": {"negative"},
    "text": {"letters"},
    None: set(),
}
"""What a field of this kind may hold. One that needn't be filled in can be blank too."""

ALL, OF_MECHANISM = "#form input:not([type=radio])", "#form input[data-path]"
# What every calculator asks for is tried on two of them.
PAGES = {
    **{f"{one.kind}?mode=noise&epsilon=4": OF_MECHANISM for one in catalogue.list_mechanisms()},
    "gaussian?mode=noise&epsilon=4": ALL,
    "training?mode=noise&sampling=size": "#form input[data-own]",
}

TRY_ALL = """async ([selector, absurd]) => {
  const settled = async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 8));
      if (document.querySelector('#answer').getAttribute('aria-busy') === 'false') return;
    }
  };
  const type = async (input, text) => {
    input.value = text;
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await settled();
  };
  const found = [];
  for (const input of document.querySelectorAll(selector)) {
    if (input.closest('[hidden]') || (input.offsetParent === null && !input.closest('details'))) continue;
    const good = input.value;
    for (const [what, text] of Object.entries(absurd)) {
      const before = document.querySelector('#headline').textContent;
      await type(input, text);
      const place = document.getElementById(input.id + '-problem');
      found.push({
        id: input.id, what, kind: input.dataset.kind ?? null, required: input.dataset.required !== undefined || !input.dataset.path,
        described: input.getAttribute('aria-describedby').split(' ').includes(place.id),
        invalid: input.getAttribute('aria-invalid') === 'true', message: place.textContent,
        role: place.getAttribute('role'),
        stale: document.querySelector('#answer').classList.contains('stale'), told: !document.querySelector('#earlier').hidden,
        others: [...document.querySelectorAll('#form [aria-invalid]')].map(
          (one) => document.getElementById(one.id + '-problem').textContent),
        kept: before === document.querySelector('#headline').textContent, elsewhere: document.querySelector('#problem').textContent,
      });
    }
    await type(input, good);
    if (document.querySelector('#answer').classList.contains('stale')) found.push({ id: input.id, stuck: true });
  }
  return found;
}"""


def may_be_right(tried: dict[str, Any]) -> bool:
    return tried["what"] in CAN_BE_RIGHT[tried["kind"]] or (tried["what"] == "blank" and not tried["required"])


@pytest.mark.parametrize("name", chosen(PAGES, ["gaussian?mode=noise&epsilon=4"]))
def test_what_is_wrong_stands_beside_its_field_and_the_last_answer_stays(name: str, reused: tuple[Any, Complaints], address: str) -> None:
    page, complaints = reused
    page.goto(f"{address}/calculators/{name}")
    settle(page)
    found = page.evaluate(TRY_ALL, [PAGES[name], ABSURD])
    assert [one for one in found if "stuck" in one] == []
    refused = [one for one in found if one["stale"]]
    assert [one for one in found if not one["stale"] and not may_be_right(one)] == []
    assert [one for one in refused if not may_be_right(one) and not (one["invalid"] and len(one["message"]) > 10)] == []
    # Two fields may disagree: then the message may stand beside the other one.
    assert [one for one in refused if not any(len(message) > 10 for message in one["others"])] == []
    assert [one for one in found if not (one["described"] and one["role"] == "alert")] == []
    assert [one for one in refused if not (one["kept"] and one["told"])] == []
    # Words, and not an expression or somebody else's markup.
    assert [
        one["others"]
        for one in refused
        if any(sign in " ".join(one["others"]) for sign in (">=", "^[", "<b>", "Tuple", "None", "undefined", "Error"))
    ] == []
    # The browser itself reports a refusal's status.
    assert [line for line in complaints.lines if "422" not in line] == []
    # What the answer itself would tell is hidden, and not asked for.
    asked = page.locator(f"{PAGES[name]}:not([hidden] *)").count()
    assert len(found) == len(ABSURD) * asked > 0
