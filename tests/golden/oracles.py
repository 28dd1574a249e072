"""Values to 40 digits, computed apart from this project; where the file isn't there, the tests that need it say so and are skipped.

Truths of random questions about sampled training are in random_points.json, computed by ``truth.py``, which says how.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2].parent / "shared" / "theory" / "oracles.json"


def oracle_rows(*groups: str) -> list[Any]:
    """One pytest parameter (inputs as floats, value) for each oracle of these groups."""
    if not FILE.exists():
        return [pytest.param({}, None, marks=pytest.mark.skip(reason=f"the oracle values are not on this machine ({FILE.name})"))]
    rows = [row for row in json.loads(FILE.read_text())["oracles"] if row["group"] in groups]
    assert rows, f"no oracle of {groups}"
    return [pytest.param(row["inputs"], {"value": row["value"], **row}, id=f"{row['group']}-{i}") for i, row in enumerate(rows)]
