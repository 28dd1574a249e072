"""The real data sets, for the tests that need them: in a folder beside the repository, or where the environment says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zetadp.trainer.data import ROOT_VARIABLE

FOLDER = Path(os.environ.get(ROOT_VARIABLE) or Path(__file__).parents[2] / "shared" / "data")
LEFT_OUT = f"no data sets: set {ROOT_VARIABLE} to a folder that has them"
"""One reason for all, so that a run tells it once, with how many tests it was."""


def data_sets(monkeypatch: pytest.MonkeyPatch, *needed: str) -> Path:
    """The folder of data sets, which the test's recipes then find; the test is left out where a needed file or folder isn't in it."""
    if not all((FOLDER / name).exists() for name in needed or (".",)):
        pytest.skip(LEFT_OUT)
    monkeypatch.setenv(ROOT_VARIABLE, str(FOLDER))
    return FOLDER
