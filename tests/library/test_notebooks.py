"""Each notebook runs from its first to its last cell, as a user runs it: in a folder of its own, without our data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONGEST_SECONDS = 240
"""On a busy machine; alone each takes less than half a minute on two cores."""


def test_there_are_four_and_none_keeps_outputs_which_no_test_would_compare() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat isn't installed: pip install 'zetadp[notebooks]'")
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        nbformat.validate(book)
        assert all(cell.get("outputs", []) == [] for cell in book.cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_to_its_end(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = "isn't installed: pip install 'zetadp[notebooks]'"
    nbformat = pytest.importorskip("nbformat", reason=f"nbformat {needs}")
    nbclient = pytest.importorskip("nbclient", reason=f"nbclient {needs}")
    pytest.importorskip("ipykernel", reason=f"ipykernel {needs}")
    for name in [name for name in os.environ if name.startswith("ZETADP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that wait for one another on a busy machine take minutes
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=LONGEST_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", []))
    assert "Traceback" not in printed
    if "zetadp verify" in "".join(cell.source for cell in book.cells) or "certificate.json" in printed:
        assert "verdict: valid." in printed
