r"""Heartbeats and recordings from small files of their formats, and what is refused of bad ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, EcgCpsc, EcgMitBih, facts_of
from zetadp.trainer.data.files.wfdb_records import read_annotations, read_header, read_samples

SINGLE = 2e-6
"""A few roundings of float32."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def _write_record(folder: Path, number: int, samples: np.ndarray, beats: list[tuple[int, int]]) -> None:
    """A record of two leads in format 212 with its annotations; every second beat after a long interval and with a note."""
    first, second = samples.reshape(-1, 2).T & 0xFFF
    raw = np.stack((first & 0xFF, first >> 8 | (second >> 8) << 4, second & 0xFF), axis=1).astype(np.uint8)
    (folder / f"{number}.dat").write_bytes(raw.tobytes())
    sums = samples.astype(np.int64).sum(axis=0) % 65536
    lines = [f"{number}.dat 212 200 11 1024 0 {total} 0 {lead}" for total, lead in zip(sums, ("MLII", "V5"), strict=True)]
    (folder / f"{number}.hea").write_text("\n".join([f"{number} 2 360 {len(samples)}", *lines, "# a note"]) + "\n", encoding="ascii")
    words: list[int] = []
    last = 0
    for place, (time, code) in enumerate(beats):
        if place % 2:
            words += [59 << 10, 0, time - last, code << 10, 63 << 10 | 3, 0x4241, 0x43]
        else:
            words.append(code << 10 | time - last)
        last = time
    (folder / f"{number}.atr").write_bytes(np.array([*words, 0], dtype="<u2").tobytes())


def _samples(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2048, 2048, (2000, 2)).astype(np.int16)


BEATS = [(50, 1), (300, 1), (700, 2), (1000, 5), (1200, 2), (1500, 1), (1990, 2)]
"""The first and last window don't fit into the record; code 5 is another beat."""


@pytest.fixture
def records(root: Path) -> Path:
    for number in (100, 201, 202, 209):
        _write_record(root, number, _samples(number), BEATS)
    return root


def test_samples_and_annotations_come_back_as_they_were_written(records: Path) -> None:
    _, samples = read_samples(records / "100.hea")
    assert np.array_equal(samples, _samples(100))
    times, codes = read_annotations(records / "100.atr")
    assert list(zip(times.tolist(), codes.tolist(), strict=True)) == BEATS


def test_beat_is_the_unitary_spectrum_of_its_window_in_millivolt(records: Path) -> None:
    spec = EcgMitBih(folder="set", source="records", centring="none", split="beats", split_seed=0, test_fraction=0.25)
    data = spec.read()
    features = np.concatenate((data.training_features, data.test_features))
    window = (_samples(100)[200:456, 0] - 1024.0) / 200.0
    expected = np.fft.fft(window) / 16.0
    assert np.linalg.norm(features - expected, axis=1).min() < SINGLE * np.linalg.norm(expected)
    assert len(features) == 4 * 4


def test_centred_beat_has_no_mean(records: Path) -> None:
    features = EcgMitBih(folder="set", source="records", split="beats", split_seed=0, test_fraction=0.25).read().training_features
    # A window has a norm of about 100 millivolt here.
    assert np.abs(features[:, 0]).max() < 1e-4


def test_records_201_and_202_are_one_patient(records: Path) -> None:
    spec = EcgMitBih(folder="set", source="records", split="beats", split_seed=0, test_fraction=0.1)
    facts = facts_of(spec, spec.read())
    assert (facts.users, facts.user_unit, facts.unit) == (3, "patient", "beat")


def test_beats_of_one_patient_stay_on_one_side(root: Path) -> None:
    record = np.repeat([100, 101, 201, 202, 109, 111], 5)
    labels = np.repeat([0, 0, 0, 0, 1, 1], 5)
    x = np.random.default_rng(0).integers(0, 2048, (30, 256)).astype(np.int16)
    x[:, 0] = record
    np.savez(root / "beats_normal_vs_lbbb.npz", x=x, y=labels.astype(np.uint8), record=record.astype(np.int16))
    data = EcgMitBih(folder="set", centring="none", split="patients", split_seed=0, test_fraction=0.4).read()
    first = [np.round(np.fft.ifft(side, norm="ortho")[:, 0].real * 200.0 + 1024.0) for side in (data.training_features, data.test_features)]
    patients = [{201.0 if number == 202.0 else float(number) for number in side} for side in first]
    assert not patients[0] & patients[1]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("100.dat", lambda raw: raw[:-3], "3 bytes for two"),
        ("100.dat", lambda raw: bytes([raw[0] ^ 1]) + raw[1:], "add up to the header's checksum"),
        ("100.hea", lambda raw: raw.replace(b" 212 ", b" 16 "), "format 212"),
        ("100.hea", lambda raw: raw.replace(b"100.dat", b"../100.dat"), "the header of a WFDB record"),
        ("100.hea", lambda raw: raw.replace(b"2 360", b"3 360"), "3 signals announced"),
        ("100.hea", lambda _: b"", "the header of a WFDB record"),
        ("100.hea", lambda raw: raw.replace(b" 212 200 ", b" 212 0 "), "the header of a WFDB record"),
        ("100.atr", lambda raw: raw[:-2], "a zero word at the end"),
        ("100.atr", lambda raw: raw[:-1], "whole words"),
        ("100.atr", lambda _: np.array([55 << 10, 0], dtype="<u2").tobytes(), "annotation codes"),
    ],
)
def test_broken_records_are_refused(records: Path, name: str, change: Callable[[bytes], bytes], message: str) -> None:
    (records / name).write_bytes(change((records / name).read_bytes()))
    with pytest.raises(InvalidParameter, match=message):
        EcgMitBih(folder="set", source="records", split="beats", split_seed=0, test_fraction=0.25).read()


def test_record_without_annotations_is_refused(records: Path) -> None:
    (records / "100.atr").unlink()
    with pytest.raises(InvalidParameter, match=r"100\.atr must be a file that can be read"):
        EcgMitBih(folder="set", source="records", split="beats", split_seed=0, test_fraction=0.25).read()


def test_beats_without_patients_are_refused(root: Path) -> None:
    np.savez(root / "beats_normal_vs_lbbb.npz", x=np.zeros((4, 256)), y=np.array([0, 1, 0, 1]))
    with pytest.raises(InvalidParameter, match="none of record"):
        EcgMitBih(folder="set", split="patients", split_seed=0, test_fraction=0.5).read()


def test_class_without_a_beat_is_refused(root: Path) -> None:
    np.savez(root / "beats_normal_vs_lbbb.npz", x=np.arange(4 * 256).reshape(4, 256), y=np.zeros(4, dtype=int), record=np.arange(4))
    with pytest.raises(InvalidParameter, match=r"none for classes \[1\]"):
        EcgMitBih(folder="set", split="beats", split_seed=0, test_fraction=0.5).read()


def _recordings(folder: Path) -> dict[str, np.ndarray]:
    """Four recordings in both formats: millivolts by name."""
    rng = np.random.default_rng(0)
    signals = {
        name: rng.integers(-3000, 3000, (12, samples)) / 1000.0 for name, samples in (("A1", 300), ("A2", 6000), ("A3", 700), ("A4", 900))
    }
    for name in ("A1", "A2"):
        savemat(folder / f"{name}.mat", {"ECG": {"sex": "Male", "age": 74, "data": signals[name]}})
    (folder / "wfdb").mkdir()
    for name, code in (("A3", "426783006"), ("A4", "164873001,164909002")):
        savemat(folder / "wfdb" / f"{name}.mat", {"val": np.round(signals[name] * 500.0).astype(np.int16)}, format="4")
        leads = [f"{name}.mat 16+24 500/mV 16 0 0 0 0 lead{lead}" for lead in range(12)]
        header = [f"{name} 12 500 {signals[name].shape[1]} 12-May-2020 12:33:59", *leads, f"#Dx: {code}", "#Rx: Unknown"]
        (folder / "wfdb" / f"{name}.hea").write_text("\n".join(header), encoding="ascii")
    return signals


def _cpsc(**fields: int) -> EcgCpsc:
    return EcgCpsc.model_validate({"folder": "set", "split_seed": 31, "test_fraction": 0.25, **fields})


def test_recording_is_the_unitary_spectrum_of_one_lead_cut_or_padded(root: Path) -> None:
    signals = _recordings(root)
    (root / "REFERENCE.csv").write_text("Recording,First_label,Second_label,Third_label\nA1,1,,\nA2,4,,\nA3,5,,\n", encoding="ascii")
    data = _cpsc(transform_length=512).read()
    found = {
        int(label): row
        for label, row in zip((*data.training_targets, *data.test_targets), (*data.training_features, *data.test_features), strict=True)
    }
    for name, label in (("A1", 0), ("A2", 1)):
        expected = np.fft.fft(signals[name][2], n=512) / np.sqrt(512.0)
        assert np.linalg.norm(found[label] - expected) < SINGLE * np.linalg.norm(expected)


def test_physionet_recordings_are_scaled_by_their_header_and_labelled_by_it_where_there_is_no_table(root: Path) -> None:
    signals = _recordings(root)
    for name in ("A1", "A2"):
        (root / f"{name}.mat").unlink()
    data = _cpsc(lead=12, transform_length=64).read()
    rows = {
        int(label): row
        for label, row in zip((*data.training_targets, *data.test_targets), (*data.training_features, *data.test_features), strict=True)
    }
    for name, label in (("A3", 0), ("A4", 1)):
        expected = np.fft.fft(np.round(signals[name][11, :64] * 500.0) / 500.0) / 8.0
        assert np.linalg.norm(rows[label] - expected) < SINGLE * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("record,class_code\nA1,1\nA9,4\n", "every labelled recording"),
        ("record,class_code\nA1,5\n", "every labelled recording"),
        ("record,class_code\nA1,normal\n", "a table with the columns"),
        ("name,label\nA1,1\n", "a table with the columns"),
        ("", "a table with the columns"),
        ("record,class_code\nA1,1\nA2,1\n", r"none for classes \[1\]"),
    ],
)
def test_broken_tables_of_labels_are_refused(root: Path, table: str, message: str) -> None:
    _recordings(root)
    (root / "labels.csv").write_text(table, encoding="ascii")
    with pytest.raises(InvalidParameter, match=message):
        _cpsc().read()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"ECG": {"data": np.ones((11, 100))}}, r"numbers of shape \(12, samples\)"),
        ({"other": np.ones((12, 100))}, "the struct ECG or the matrix val"),
        ({"ECG": {"data": np.full((12, 100), np.nan)}}, "features must be finite"),
    ],
)
def test_broken_matlab_files_are_refused(root: Path, content: dict[str, object], message: str) -> None:
    _recordings(root)
    (root / "labels.csv").write_text("record,class_code\nA1,1\nA2,4\n", encoding="ascii")
    savemat(root / "A1.mat", content)
    with pytest.raises(InvalidParameter, match=message):
        _cpsc().read()


def test_matlab_file_that_is_cut_off_is_refused(root: Path) -> None:
    _recordings(root)
    (root / "labels.csv").write_text("record,class_code\nA1,1\nA2,4\n", encoding="ascii")
    (root / "A1.mat").write_bytes((root / "A1.mat").read_bytes()[:200])
    with pytest.raises(InvalidParameter, match="the struct ECG or the matrix val"):
        _cpsc().read()


def test_header_keeps_gain_baseline_and_diagnoses(root: Path) -> None:
    _recordings(root)
    header = read_header(root / "wfdb" / "A4.hea")
    assert (header.frequency, header.samples, header.signals[0].gain, header.diagnoses) == (500.0, 900, 500.0, ("164873001", "164909002"))
