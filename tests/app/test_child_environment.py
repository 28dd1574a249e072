"""What a child process is told by its environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from zetadp.app.kit.child_environment import MEMORY_KEPT, child_environment
from zetadp.app.worker.child import LOG, JobChild

NAMES = ", ".join(repr(name) for name in MEMORY_KEPT)
TELLS = f"import os, sys; sys.stderr.write(repr([os.environ.get(name) for name in ({NAMES})]))"


def _told(workdir: Path) -> str:
    """What a started child finds in its own environment."""
    descriptor = os.open(workdir, os.O_RDONLY)
    try:
        with JobChild([sys.executable, "-c", TELLS], workdir / LOG, descriptor, None, None) as child:
            child.exit_code()
    finally:
        os.close(descriptor)
    return (workdir / LOG).read_text()


def test_a_child_keeps_the_memory_of_its_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MEMORY_KEPT:
        monkeypatch.delenv(name, raising=False)
    assert _told(tmp_path) == "['268435456', '1073741824']"


def test_what_the_operator_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    assert _told(tmp_path) == "['131072', '65536']"


@pytest.mark.parametrize("name", MEMORY_KEPT)
def test_one_variable_of_the_operators_leaves_the_other_to_the_system(name: str) -> None:
    assert child_environment({name: "1"}, None) == {name: "1"}
