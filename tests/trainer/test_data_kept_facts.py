r"""Facts kept on disk: found while nothing has changed, and never afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from zetadp.trainer import data as data_sets
from zetadp.trainer.data import ROOT_VARIABLE, DataSetFacts, Digits, Table, data_set_facts, kept_facts
from zetadp.trainer.data.files.columns import Column
from zetadp.trainer.data.table import HeldOutFraction


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table's file."""
    folder = tmp_path / "sets" / "set"
    folder.mkdir(parents=True)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "sets"))
    monkeypatch.setattr(kept_facts, "YOUNG_SECONDS", -1.0)
    path = folder / "rows.npy"
    write(path, 0)
    return path


def write(path: Path, seed: int) -> None:
    np.save(path, np.random.default_rng(seed).random((40, 3)))


def spec() -> Table:
    columns = tuple(Column(name=str(number), lower=0.0, upper=1.0) for number in range(3))
    held_out = HeldOutFraction(fraction=0.25, split_seed=0)
    return Table(folder="set", file="rows.npy", columns=columns, outside="refuse", held_out=held_out)


def facts(kept: Path) -> DataSetFacts:
    """As another process would find them: nothing is remembered in this one."""
    data_sets._facts.cache_clear()
    with kept_facts.kept_in(kept):
        return data_set_facts(spec())


def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "arrays", None)


def test_a_data_set_is_read_once(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = facts(tmp_path / "kept")
    unreadable(monkeypatch)
    assert facts(tmp_path / "kept") == first
    with pytest.raises(TypeError):
        facts(tmp_path / "others")


def test_without_a_folder_nothing_is_kept_or_found(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(tmp_path / "kept")
    unreadable(monkeypatch)
    data_sets._facts.cache_clear()
    with pytest.raises(TypeError):
        data_set_facts(spec())


def test_other_content_of_the_same_size_and_time_is_read(table: Path, tmp_path: Path) -> None:
    first, before = facts(tmp_path / "kept"), table.stat()
    write(table, 1)
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (table.stat().st_size, table.stat().st_mtime_ns, table.stat().st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert facts(tmp_path / "kept").sha256 != first.sha256


def test_a_file_in_its_place_is_read(table: Path, tmp_path: Path) -> None:
    first = facts(tmp_path / "kept")
    write(table.with_name("other.npy"), 1)
    table.with_name("other.npy").replace(table)
    assert facts(tmp_path / "kept").sha256 != first.sha256


def test_other_code_reads_anew(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts(tmp_path / "kept")
    unreadable(monkeypatch)
    monkeypatch.setattr(kept_facts, "_code", lambda: "another version")
    with pytest.raises(TypeError):
        facts(tmp_path / "kept")


def test_of_a_file_that_changed_just_now_nothing_is_kept(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_facts, "YOUNG_SECONDS", 3600.0)
    facts(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
def test_what_cannot_be_read_is_replaced(table: Path, tmp_path: Path, content: bytes) -> None:
    first = facts(tmp_path / "kept")
    [kept] = (tmp_path / "kept").iterdir()
    kept.write_bytes(content)
    assert facts(tmp_path / "kept") == first
    assert kept.read_bytes() == first.model_dump_json().encode()


def test_a_folder_that_cannot_be_written_costs_only_the_next_reading(table: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    assert facts(tmp_path / "kept").training_records > 0


def test_the_longest_unused_go_first(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_facts, "MOST_KEPT", 3)
    folder = tmp_path / "kept"
    folder.mkdir()
    for age in range(4):
        (folder / f"{age}.json").write_text("{}")
        os.utime(folder / f"{age}.json", (1e9 - age, 1e9 - age))
    facts(folder)
    assert {path.name for path in folder.iterdir()} > {"0.json", "1.json"}
    assert len(list(folder.iterdir())) == 3


def test_data_of_a_library_are_kept_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = Digits(split_seed=0, test_fraction=0.2)
    with kept_facts.kept_in(tmp_path / "kept"):
        data_sets._facts.cache_clear()
        first = data_set_facts(digits)
        monkeypatch.setattr(Digits, "arrays", None)
        data_sets._facts.cache_clear()
        assert data_set_facts(digits) == first
        data_sets._facts.cache_clear()
        kept_facts._code.cache_clear()
        monkeypatch.setattr(kept_facts, "version", lambda _name: "0")
        with pytest.raises(TypeError):
            data_set_facts(digits)
    kept_facts._code.cache_clear()
