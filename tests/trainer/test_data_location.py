r"""Files are found under one root and nowhere else, and facts notice that one changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import READERS, ROOT_VARIABLE, Cifar10, DataSet, DataSpec, Mnist, data_set_facts
from zetadp.trainer.data.files.location import file_of, files_of, folder_of


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "root"
    (place / "set").mkdir(parents=True)
    (place / "set" / "a.bin").write_bytes(b"a")
    monkeypatch.setenv(ROOT_VARIABLE, str(place))
    return place


@pytest.mark.parametrize("folder", ["..", "../set", "set/../..", "/etc", "", "set/", "./set", ".hidden", "set\\..", "set/..", "a\nb"])
def test_folder_that_could_leave_the_root_is_refused_by_its_name(folder: str) -> None:
    with pytest.raises(ValidationError, match="folder"):
        Mnist(folder=folder)


def test_folder_of_several_names_is_found_below_the_root(root: Path) -> None:
    (root / "set" / "deeper").mkdir()
    assert folder_of("set/deeper") == (root / "set" / "deeper").resolve()


def test_missing_root_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(InvalidParameter, match=f"{ROOT_VARIABLE} must be set in the environment"):
        folder_of("set")


def test_root_that_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(InvalidParameter, match="an existing folder"):
        folder_of("set")


def test_missing_folder_is_refused(root: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"data\.folder must be an existing folder"):
        folder_of("other")


def test_symbolic_link_of_a_folder_out_of_the_root_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidParameter, match="symbolic links followed"):
        folder_of("link")


@pytest.mark.parametrize("pattern", ["*.npz", "**/*.npz"])
def test_symbolic_link_of_a_file_out_of_the_root_is_refused(root: Path, tmp_path: Path, pattern: str) -> None:
    (tmp_path / "secret.npz").write_bytes(b"")
    (root / "set" / "x.npz").symlink_to(tmp_path / "secret.npz")
    with pytest.raises(InvalidParameter, match="symbolic links followed"):
        files_of("set", pattern)
    with pytest.raises(InvalidParameter, match="symbolic links followed"):
        file_of("set", "x.npz")


def test_missing_file_is_named(root: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"a folder with b\.bin or c\.bin"):
        file_of("set", "b.bin", "c.bin")


def _archive(path: Path, seed: int) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)


def test_facts_notice_a_file_changed_to_one_of_the_same_size(root: Path) -> None:
    path = root / "set" / "c.npz"
    digests: list[str] = []
    for seed in (0, 1):
        _archive(path, seed)
        os.utime(path, (1e9 + seed, 1e9 + seed))
        digests.append(data_set_facts(Cifar10(folder="set", numbers="real")).sha256)
    assert digests[0] != digests[1]


def test_files_that_change_while_they_are_read_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "set" / "c.npz"
    _archive(path, 0)
    read = Cifar10.arrays

    def meanwhile(spec: Cifar10) -> DataSet:
        data = read(spec)
        os.utime(path, (1.0, 1.0))
        return data

    monkeypatch.setattr(Cifar10, "arrays", meanwhile)
    with pytest.raises(InvalidParameter, match="unchanged while it is read"):
        data_set_facts(Cifar10(folder="set", numbers="real"))


def test_facts_of_unchanged_files_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _archive(root / "set" / "c.npz", 0)
    first = data_set_facts(Cifar10(folder="set", numbers="real"))
    monkeypatch.setattr(Cifar10, "arrays", None)
    assert data_set_facts(Cifar10(folder="set", numbers="real")) is first


def test_every_reader_is_in_the_union_under_its_own_kind() -> None:
    kinds = {reader.model_fields["kind"].default for reader in READERS}
    assert set(TypeAdapter(DataSpec).json_schema()["discriminator"]["mapping"]) == kinds
    assert len(kinds) == len(READERS)
