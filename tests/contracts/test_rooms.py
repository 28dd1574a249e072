"""The house as the handbook draws it: every room is named there, and none is too full to search."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "trainer", "accountants", "mechanisms")
MOST_FILES = 20
UNNAMED = {"app/migrations", "mechanisms/proofs", "accountants/proofs"}
"""Migrations are the database's; proofs have a page of their own."""


def _drawn(package: str) -> str:
    page = (ROOT / "docs" / "develop.md").read_text()
    found = re.search(rf"### `{package}`:.*?(?=\n##)", page, re.DOTALL)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_is_in_the_drawing_and_every_name_in_it_exists(package: str) -> None:
    drawn = _drawn(package)
    folders = {
        path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").exists() and f"{package}/{path.name}" not in UNNAMED
    }
    names = {name.rstrip("/") for line in drawn.splitlines()[4:] for name in re.findall(r"`([a-z_/]+)`", line.split("|")[1])}
    assert folders - names == set()
    assert {name for name in names if not (ROOT / package / name).is_dir() and not (ROOT / package / f"{name}.py").exists()} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_is_too_full_to_search(package: str) -> None:
    folders = [path.parent for path in (ROOT / package).rglob("__init__.py")]
    full = {str(folder.relative_to(ROOT)): count for folder in folders if (count := len(list(folder.glob("*.py"))) - 1) > MOST_FILES}
    assert full == {}
