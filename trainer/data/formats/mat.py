r"""MATLAB's files: version 5, and 7.3, which is HDF5. Only matrices of numbers are read; cells, structs and objects are left out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.archives import check_mat_size
from zetadp.trainer.data.formats.base import FILE, MOST_ARRAYS, MOST_UNPACKED, ArrayFacts, Contents, Format, dtype_name, is_number
from zetadp.trainer.data.formats.hdf5 import SIGNATURE, Matlab73

CLASSES = ("double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "logical")
HDF5_PLACE = 512
"""The position of HDF5's signature in a file of version 7.3."""
HEADER = 128


def is_matlab(start: bytes) -> bool:
    """Whether a file that starts so may be one."""
    return start[126:128] in (b"IM", b"MI") and (start.startswith(b"MATLAB 5.0 MAT-file") or _is_newer(start))


def _is_newer(start: bytes) -> bool:
    return start.startswith(b"MATLAB 7.3 MAT-file") and start[HDF5_PLACE : HDF5_PLACE + len(SIGNATURE)] == SIGNATURE


@final
class Matlab(Format):
    """Variables by name."""

    NAME: ClassVar[str] = "mat"
    IS: ClassVar[str] = Matlab73.IS

    def inspect(self, path: Path) -> Contents:
        if self._is_newer(path):
            return Matlab73().inspect(path)
        names, left_out = self._variables(path)
        if not names:
            raise self.broken("no matrix of numbers")
        arrays = self._load(path, names)
        return Contents(
            arrays=tuple(ArrayFacts(name=name, shape=arrays[name].shape, dtype=dtype_name(arrays[name].dtype)) for name in names),
            left_out=tuple(left_out),
        )

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        if self._is_newer(path):
            return Matlab73().arrays(path, names)
        present, _ = self._variables(path)
        if set(names) - set(present):
            raise self.missing(names, present)
        return self._load(path, names)

    def _is_newer(self, path: Path) -> bool:
        with path.open("rb") as file:
            return _is_newer(file.read(HDF5_PLACE + len(SIGNATURE)))

    def _variables(self, path: Path) -> tuple[list[str], list[str]]:
        """(names of the matrices of numbers, names of the rest). Raises InvalidParameter."""
        from scipy.io import whosmat  # half a second to import, and only these files need it

        self._check_elements(path)
        check_mat_size(path, MOST_UNPACKED)
        try:
            found = whosmat(path, appendmat=False)
        except Exception as error:  # SciPy's reader raises whatever a broken file makes it stumble on
            raise self.broken(f"a file that is cut off or damaged ({type(error).__name__})") from error
        if len(found) > MOST_ARRAYS or len({name for name, _, _ in found}) != len(found):
            raise self.broken(f"more than {MOST_ARRAYS} variables, or one that occurs twice")
        return [name for name, _, kind in found if kind in CLASSES], [name for name, _, kind in found if kind not in CLASSES and name]

    def _check_elements(self, path: Path) -> None:
        """Checks that the file's elements fill it exactly: SciPy would read one that is cut off between two elements as a shorter file."""
        size = path.stat().st_size
        with path.open("rb") as file:
            order = "<" if file.read(HEADER)[126:128] == b"IM" else ">"
            place = HEADER
            while place < size:
                tag = file.read(8)
                if len(tag) != 8:
                    raise self.broken("fewer bytes than it says")
                place += 8 + struct.unpack(f"{order}II", tag)[1]
                file.seek(place)
        if place != size:
            raise self.broken("fewer bytes than it says")

    def _load(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        from scipy.io import loadmat

        try:
            content = loadmat(path, variable_names=list(names), appendmat=False)
            arrays = {name: content[name] for name in names}
        except MemoryError:
            raise
        except Exception as error:  # as above
            raise self.broken(f"a file that is cut off or damaged ({type(error).__name__})") from error
        for name, values in arrays.items():
            if not isinstance(values, np.ndarray) or not is_number(values.dtype):
                raise InvalidParameter(FILE, "a file of full matrices of numbers", f"something else in {name}")
        return arrays
