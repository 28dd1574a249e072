"""What reading data must not do: fill the memory from a small file, repeat what is in the data, mix training and test."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, MriSequences
from zetadp.trainer.data.base import DataSet, check
from zetadp.trainer.data.ecg_cpsc import EcgCpsc
from zetadp.trainer.data.files.archives import check_mat_size
from zetadp.trainer.data.files.location import files_of
from zetadp.trainer.data.files.wfdb_records import read_header


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def _compressed(path: Path, content: bytes, mark: bytes = b"IM") -> None:
    """A MATLAB file whose one variable is compressed."""
    order = "<" if mark == b"IM" else ">"
    packed = zlib.compress(content)
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01" + mark + struct.pack(f"{order}II", 15, len(packed)) + packed)


@pytest.mark.parametrize("mark", [b"IM", b"MI"])
def test_a_small_matlab_file_that_unpacks_to_much_is_refused(tmp_path: Path, mark: bytes) -> None:
    _compressed(tmp_path / "bomb.mat", bytes(2**22), mark)
    with pytest.raises(InvalidParameter, match="at most 1000000 bytes unpacked"):
        check_mat_size(tmp_path / "bomb.mat", 10**6)


def test_several_variables_are_counted_together(tmp_path: Path) -> None:
    savemat(tmp_path / "two.mat", {"a": np.zeros(1000), "b": np.zeros(1000)}, do_compression=True)
    check_mat_size(tmp_path / "two.mat", 20_000)
    with pytest.raises(InvalidParameter, match="at most 10000 bytes unpacked"):
        check_mat_size(tmp_path / "two.mat", 10_000)


def test_a_broken_compressed_variable_is_refused(tmp_path: Path) -> None:
    _compressed(tmp_path / "broken.mat", bytes(1000))
    raw = bytearray((tmp_path / "broken.mat").read_bytes())
    raw[136:140] = b"\xff\xff\xff\xff"
    (tmp_path / "broken.mat").write_bytes(raw)
    with pytest.raises(InvalidParameter, match="a whole MATLAB file"):
        check_mat_size(tmp_path / "broken.mat", 10**6)


def test_a_recording_is_checked_before_it_is_unpacked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zetadp.trainer.data.ecg_cpsc.LARGEST_RECORDING", 10**6)
    for name in ("A1", "A2"):
        _compressed(root / f"{name}.mat", bytes(2**22))
    (root / "labels.csv").write_text("record,class_code\nA1,1\nA2,4\n", encoding="ascii")
    with pytest.raises(InvalidParameter, match="at most 1000000 bytes unpacked"):
        EcgCpsc(folder="set", split_seed=0, test_fraction=0.5).read()


def test_a_table_that_cant_be_read_isnt_repeated(root: Path) -> None:
    (root / "A1.mat").write_bytes(b"")
    (root / "labels.csv").write_text("record,class_code\nA1,Jane Roe\n", encoding="ascii")
    with pytest.raises(InvalidParameter, match="a table with the columns") as refused:
        EcgCpsc(folder="set", split_seed=0, test_fraction=0.5).read()
    assert "Jane" not in str(refused.value)


def test_a_header_that_cant_be_read_isnt_repeated(tmp_path: Path) -> None:
    (tmp_path / "A1.hea").write_text("A1 one Roe 5000\n", encoding="ascii")
    with pytest.raises(InvalidParameter, match="the header of a WFDB record") as refused:
        read_header(tmp_path / "A1.hea")
    assert "Roe" not in str(refused.value)


def test_labels_outside_their_range_arent_repeated() -> None:
    features, labels = np.ones((2, 3), dtype=np.float32), np.array([0, 1])
    with pytest.raises(InvalidParameter, match=r"in 0 \.\. 1") as refused:
        check(DataSet(features, np.array([0, 77]), features, labels, 2))
    assert "77" not in str(refused.value)


def test_a_patient_on_both_sides_of_the_decathlon_is_refused(root: Path) -> None:
    for side in ("imagesTr", "imagesTs"):
        (root / side).mkdir()
        (root / side / "BRATS_001.nii.gz").write_bytes(b"")
    with pytest.raises(InvalidParameter, match="imagesTs has none of the training patients"):
        MriSequences(folder="set", source="decathlon", split_seed=0, test_fraction=0.5).read()


def test_a_linked_file_outside_the_root_is_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.wav"
    secret.write_bytes(b"secret")
    (root / "inside.wav").write_bytes(b"")
    (root / "linked.wav").symlink_to(secret)
    with pytest.raises(InvalidParameter, match="symbolic links followed"):
        files_of("set", "*.wav")


def test_a_linked_folder_outside_the_root_is_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "secret.wav").write_bytes(b"secret")
    (root / "word").symlink_to(elsewhere)
    with pytest.raises(InvalidParameter, match="symbolic links followed"):
        files_of("set", "*/*.wav")
