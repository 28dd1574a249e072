r"""Recordings of the China Physiological Signal Challenge 2018: normal against left bundle branch block, from the Fourier transform."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet, SplitRecipe
from zetadp.trainer.data.files.archives import check_mat_size
from zetadp.trainer.data.files.location import Folder, files_of, folder_of
from zetadp.trainer.data.files.wfdb_records import read_header
from zetadp.trainer.data.spectra import fixed_length, spectrum
from zetadp.trainer.data.splits import name_keys

LEADS = 12
LENGTH = 5000
"""Samples a recording is trimmed or padded to: 10 s at 500 Hz."""
LARGEST_FILE = 2**25
LARGEST_RECORDING = 2**27
"""Bytes of a recording's file once it is unpacked: 12 leads at 500 Hz for more than 40 minutes, as float64. The longest has 2.5 minutes."""
LABEL_FILES = ("labels.csv", "REFERENCE.csv")
NORMAL, LEFT_BUNDLE_BRANCH_BLOCK = 1, 4
"""The challenge's codes of the two classes."""
SNOMED = {"426783006": NORMAL, "164909002": LEFT_BUNDLE_BRANCH_BLOCK}


@final
class EcgCpsc(SplitRecipe):
    r"""One lead of a recording: trimmed or padded to 5000 samples, then the unitary Fourier transform of the first ones (A.6.2).

    Labels come from ``labels.csv`` or the challenge's ``REFERENCE.csv`` (a recording's first label), else from the headers' Dx line.

    Attributes:
      folder: with ``.mat`` files, in it or below it: the challenge's own struct ``ECG``, or PhysioNet's ``val`` with a ``.hea`` each.
      lead: 1 to 12 in the order I II III aVR aVL aVF V1 ... V6; the paper's channel is 3.
      transform_length: samples transformed, from the start; the paper's is 512.
      (others): as in ``SplitRecipe``; a recording is identified by its name.
    """

    UNIT: ClassVar[str] = "recording"
    DESCRIPTION: ClassVar[str] = (
        "China Physiological Signal Challenge 2018 (Liu et al. 2018), normal versus left bundle branch block recordings, in millivolt, "
        f"trimmed or padded to {LENGTH} samples. One record is one recording; the files don't say whose it is, so a person with several is "
        "protected less."
    )

    kind: Literal["ecg_cpsc"] = "ecg_cpsc"
    folder: Folder
    lead: Annotated[int, Strict(), Field(ge=1, le=LEADS)] = 3
    transform_length: Annotated[int, Strict(), Field(ge=8, le=LENGTH)] = 512

    def describe(self) -> str:
        return f"{self.DESCRIPTION} Lead {self.lead}, unitary Fourier transform of the first {self.transform_length} samples."

    def sources(self) -> tuple[Path, ...]:
        files = files_of(self.folder, "**/*.mat")
        headers = tuple(header for header in (path.with_suffix(".hea") for path in files) if header.is_file())
        return (*files, *headers, *self._label_file())

    def arrays(self) -> DataSet:
        files = {path.stem: path for path in files_of(self.folder, "**/*.mat")}
        codes = self._codes(files)
        wanted = sorted(name for name, code in codes.items() if code in (NORMAL, LEFT_BUNDLE_BRANCH_BLOCK))
        missing = [name for name in wanted if name not in files]
        if missing or not wanted:
            raise InvalidParameter("data.folder", "a folder with every labelled recording of both classes", missing[:5])
        signals = np.stack([fixed_length(fixed_length(_lead(files[name], self.lead), LENGTH), self.transform_length) for name in wanted])
        features = spectrum(signals)
        labels = np.array([codes[name] == LEFT_BUNDLE_BRANCH_BLOCK for name in wanted], dtype=np.int64)
        training, test = self.sides(name_keys(np.array(wanted)))
        return DataSet(features[training], labels[training], features[test], labels[test], 2)

    def _label_file(self) -> tuple[Path, ...]:
        present = [name for name in LABEL_FILES if (folder_of(self.folder) / name).is_file()]
        return files_of(self.folder, present[0]) if present else ()

    def _codes(self, files: dict[str, Path]) -> dict[str, int]:
        """The challenge's class code of each labelled recording."""
        for path in self._label_file():
            return _codes_of(path)
        found: dict[str, int] = {}
        for name, path in files.items():
            codes = [SNOMED[code] for code in read_header(path.with_suffix(".hea")).diagnoses if code in SNOMED]
            if codes:
                found[name] = codes[0]
        return found


def _codes_of(path: Path) -> dict[str, int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
        header = [name.strip().lower() for name in rows[0]]
        name = next(place for place, title in enumerate(header) if title in {"record", "recording"})
        code = next(place for place, title in enumerate(header) if title in {"class_code", "first_label"})
        return {row[name].strip(): int(row[code]) for row in rows[1:]}
    except (OSError, ValueError, IndexError, StopIteration, csv.Error) as error:
        expected = "a table with the columns record (or Recording) and class_code (or First_label)"
        # The reader's own words would quote the table's.
        raise InvalidParameter(path.name, expected, f"a table that can't be read ({type(error).__name__})") from error


def _lead(path: Path, lead: int) -> NDArray[Any]:
    """One lead of a recording in millivolt, float64 (samples,)."""
    from scipy.io import loadmat  # half a second to import, and not needed by whoever only reads a spec

    if path.stat().st_size > LARGEST_FILE:
        raise InvalidParameter(path.name, f"at most {LARGEST_FILE} bytes", path.stat().st_size)
    check_mat_size(path, LARGEST_RECORDING)
    try:
        content = loadmat(path, variable_names=["ECG", "val"])
        signals = content["ECG"][0, 0]["data"] if "ECG" in content else content["val"]
    except Exception as error:  # SciPy's reader raises whatever a broken file makes it stumble on
        raise InvalidParameter(
            path.name, "a MATLAB file with the struct ECG or the matrix val", str(error) or type(error).__name__
        ) from error
    if not isinstance(signals, np.ndarray) or signals.ndim != 2 or signals.shape[0] != LEADS or signals.dtype.kind not in "iuf":
        raise InvalidParameter(path.name, f"numbers of shape ({LEADS}, samples)", np.shape(signals))
    if "ECG" in content:
        return signals[lead - 1].astype(np.float64)
    header = read_header(path.with_suffix(".hea"))
    if len(header.signals) != LEADS:
        raise InvalidParameter(path.name, f"accompanied by a header of {LEADS} leads", len(header.signals))
    return (signals[lead - 1].astype(np.float64) - header.signals[lead - 1].baseline) / header.signals[lead - 1].gain
