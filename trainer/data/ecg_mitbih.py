r"""Heartbeats of the MIT-BIH Arrhythmia Database: normal against left bundle branch block, from their Fourier transform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet, SplitRecipe, SplitRule
from zetadp.trainer.data.files.archives import npz_arrays
from zetadp.trainer.data.files.location import Folder, files_of
from zetadp.trainer.data.files.wfdb_records import LEFT_BUNDLE_BRANCH_BLOCK_BEAT, NORMAL_BEAT, read_annotations, read_samples
from zetadp.trainer.data.spectra import spectrum
from zetadp.trainer.data.splits import name_keys, record_keys, sides

BEFORE, AFTER = 100, 156
WINDOW = BEFORE + AFTER
LEAD = "MLII"
GAIN, ZERO = 200.0, 1024.0
"""The database's converter: 200 units per millivolt, zero at 1024."""
ARCHIVE = "beats_normal_vs_lbbb.npz"
SAME_PATIENT = {202: 201}


class _Beats(NamedTuple):
    """Windows in millivolt (beats, 256), labels 0 normal and 1 LBBB, and patients, int64 (beats,)."""

    windows: NDArray[Any]
    labels: NDArray[Any]
    patients: NDArray[Any]


@final
class EcgMitBih(SplitRecipe):
    r"""Beats of lead MLII as the unitary Fourier transform of 256 samples at 360 Hz, 100 before the R peak; 256 complex numbers.

    Attributes:
      folder: with the beats' archive, or with records (``.hea``, ``.dat``, ``.atr``) in it or below it.
      source: "beats" is the archive (x, y, record); "records" is every N and L beat of the WFDB records that has a lead MLII.
      centring: "record_mean" subtracts each window's own mean; "none" leaves millivolts.
      split: "beats" draws over beats, so that a patient's beats are on both sides and accuracy says nothing about new patients; "patients"
        keeps patients apart (201 and 202 are one).
      (others): as in ``SplitRecipe``, of beats or of patients.
    """

    UNIT: ClassVar[str] = "beat"
    USER_UNIT: ClassVar[str | None] = "patient"
    DESCRIPTION: ClassVar[str] = (
        "MIT-BIH Arrhythmia Database (Moody and Mark 2001), lead MLII, normal versus left bundle branch block beats: 256 samples at 360 "
        "Hz, 100 of them before the R peak, in millivolt, unitary Fourier transform."
    )

    kind: Literal["ecg_mitbih"] = "ecg_mitbih"
    folder: Folder
    source: Literal["beats", "records"] = "beats"
    centring: Literal["record_mean", "none"] = "record_mean"
    split: Literal["beats", "patients"]

    def split_rule(self) -> SplitRule:
        return "users" if self.split == "patients" else self.split_by

    def describe(self) -> str:
        centred = " Each window's own mean is subtracted first." if self.centring == "record_mean" else ""
        apart = (
            "Training and test patients are different people."
            if self.split == "patients"
            else "Beats are split, not patients: the same patients are on both sides."
        )
        return f"{self.DESCRIPTION}{centred} {apart} One record is one beat; a patient has many."

    def sources(self) -> tuple[Path, ...]:
        if self.source == "beats":
            return files_of(self.folder, ARCHIVE)
        headers = files_of(self.folder, "**/*.hea")
        return tuple(header.with_suffix(ending) for header in headers for ending in (".hea", ".dat", ".atr"))

    def arrays(self) -> DataSet:
        beats = _from_archive(self.sources()[0]) if self.source == "beats" else _from_records(self.sources()[::3])
        windows = beats.windows - beats.windows.mean(axis=1, keepdims=True) if self.centring == "record_mean" else beats.windows
        features, patients = spectrum(windows), name_keys(beats.patients)
        if self.split == "patients":
            training, test = sides(patients, self.split_seed, self.test_fraction)
        else:
            # By what was measured: a transform's last bits aren't the same on every machine.
            training, test = self.sides(record_keys(beats.windows, beats.labels))
        return DataSet(features[training], beats.labels[training], features[test], beats.labels[test], 2, patients[training])


def _from_archive(path: Path) -> _Beats:
    x, y, record = npz_arrays(path, ("x", "y", "record")).values()
    beats = len(x)
    if x.ndim != 2 or x.shape[1] != WINDOW or not np.isrealobj(x) or y.shape != (beats,) or record.shape != (beats,):
        raise InvalidParameter(path.name, f"x (beats, {WINDOW}), y (beats,) and record (beats,)", (x.shape, y.shape, record.shape))
    return _Beats((x.astype(np.float64) - ZERO) / GAIN, y.astype(np.int64), _patients(record))


def _from_records(headers: tuple[Path, ...]) -> _Beats:
    found = [part for path in headers for part in _beats_of(path)]
    if not found:
        raise InvalidParameter("data.folder", f"a folder with records that have a lead {LEAD}", [path.name for path in headers])
    return _Beats(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _beats_of(header_path: Path) -> Iterator[_Beats]:
    """The N and L beats of one record whose window lies inside it; nothing for a record without the lead."""
    header, samples = read_samples(header_path)
    leads = [signal.name for signal in header.signals]
    if LEAD not in leads:
        return
    if not header_path.stem.isdigit():
        # The record's number is the patient's: without it nobody could say whose beats these are.
        raise InvalidParameter(header_path.name, "named by the patient's number", header_path.stem)
    times, codes = read_annotations(header_path.with_suffix(".atr"))
    usable = np.isin(codes, (NORMAL_BEAT, LEFT_BUNDLE_BRANCH_BLOCK_BEAT)) & (times >= BEFORE) & (times + AFTER <= header.samples)
    times, codes = times[usable], codes[usable]
    signal = header.signals[leads.index(LEAD)]
    raw = samples[:, leads.index(LEAD)][times[:, np.newaxis] + np.arange(-BEFORE, AFTER)]
    patients = _patients(np.full(len(times), int(header_path.stem)))
    yield _Beats((raw - float(signal.baseline)) / signal.gain, (codes == LEFT_BUNDLE_BRANCH_BLOCK_BEAT).astype(np.int64), patients)


def _patients(records: NDArray[Any]) -> NDArray[Any]:
    patients = records.astype(np.int64)
    for again, first in SAME_PATIENT.items():
        patients[patients == again] = first
    return patients
