"""The engine against truths that were computed apart from it, on random questions over its whole range."""

from __future__ import annotations

import json

import pytest

from tests.accountants.events import training
from tests.golden.truth import FILE, one_step_epsilon
from zetadp.accountants import profile

ROWS = json.loads(FILE.read_text())
DIGITS = 2e-11
"""The truths settle to 1e-11 and are rounded to 13 digits."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["index"]))
def test_bracket_holds_the_truth(row):
    bound = profile(training(row["probability"], row["multiplier"], row["count"])).epsilon(row["delta"])
    truth = float(row["epsilon"])
    assert bound.lower * (1 - DIGITS) <= truth <= bound.upper * (1 + DIGITS)


def test_truths_cover_the_regimes():
    spread = [row["probability"] * row["count"] ** 0.5 for row in ROWS]
    assert len(ROWS) >= 60
    assert min(spread) < 0.02
    assert max(spread) > 20.0
    assert any(row["count"] == 1 for row in ROWS)
    assert min(row["delta"] for row in ROWS) < 1e-13
    assert sum(float(row["epsilon"]) == 0.0 for row in ROWS) >= 1


def test_one_step_truth_agrees_with_the_closed_form_of_a_whole_release():
    assert float(one_step_epsilon(1.0, 1.0 / 5.0, 1e-9)) == pytest.approx(41.83337508055052, rel=1e-12)
