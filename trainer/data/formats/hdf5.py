r"""HDF5 files, read without following links out of them, and MATLAB's files of version 7.3, which are HDF5."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats.base import (
    FILE,
    HIGHEST_RATIO,
    MOST_ARRAYS,
    MOST_UNPACKED,
    ArrayFacts,
    Contents,
    Format,
    checked_size,
    dtype_name,
    is_number,
)

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
"""Allowed filters of a data set, by HDF5's numbers; none of them is loaded from a plugin."""
DEEPEST = 16
READ_AT_ONCE = 2**24
"""Bytes."""


class _Hdf5File(Format):
    """The common part of HDF5 and MATLAB 7.3; they differ in ``_in_order``."""

    def inspect(self, path: Path) -> Contents:
        with self._opened(path) as (found, left_out):
            facts: list[ArrayFacts] = []
            for name, stored in found.items():
                shape, dtype = self._shape(stored), _dtype(stored.dtype)
                for _ in _pieces(stored):
                    pass
                facts.append(ArrayFacts(name=name, shape=shape, dtype=dtype_name(dtype)))
            if not facts:
                raise self.broken("no array of numbers")
            return Contents(arrays=tuple(facts), left_out=tuple(left_out))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        with self._opened(path) as (found, _):
            if set(names) - found.keys():
                raise self.missing(names, tuple(found))
            return {name: self._in_order(_number(found[name][()])) for name in names}

    def _shape(self, stored: h5py.Dataset) -> tuple[int, ...]:
        return tuple(stored.shape)

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    @contextmanager
    def _opened(self, path: Path) -> Generator[tuple[dict[str, h5py.Dataset], list[str]]]:
        """The data sets of numbers by their paths, and the names of the rest. Raises InvalidParameter."""
        import h5py  # a tenth of a second to import, and only these files need it

        try:
            with h5py.File(path, "r") as file:
                found: dict[str, h5py.Dataset] = {}
                left_out: list[str] = []
                self._walk(file, "", found, left_out, {_address(file)})
                if sum(stored.nbytes for stored in found.values()) > MOST_UNPACKED:
                    raise InvalidParameter(FILE, f"at most {MOST_UNPACKED} bytes unpacked", "more")
                yield found, left_out
        except InvalidParameter:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise self.broken(f"a file that is cut off or damaged ({type(error).__name__})") from error

    def _walk(self, group: h5py.Group, prefix: str, found: dict[str, h5py.Dataset], left_out: list[str], seen: set[object]) -> None:
        import h5py

        if prefix.count("/") > DEEPEST:
            raise self.broken(f"groups more than {DEEPEST} deep")
        for key in group:
            name = f"{prefix}{key}"
            if len(found) + len(left_out) >= MOST_ARRAYS or len(name) > 200 or not name.isprintable():
                raise self.broken(f"more than {MOST_ARRAYS} objects in it, or a name longer than 200 printable characters")
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise InvalidParameter(FILE, "an HDF5 file without soft and external links", name)
            member = cast("object", group[key])
            if isinstance(member, h5py.Group):
                if (address := _address(member)) in seen:
                    raise self.broken("a group that contains itself or occurs twice")
                seen.add(address)
                self._walk(member, f"{name}/", found, left_out, seen)
            elif isinstance(member, h5py.Dataset) and self._is_array(member, name):
                found[name] = member
            else:
                left_out.append(name)

    def _is_array(self, stored: h5py.Dataset, name: str) -> bool:
        """Whether it is one of numbers. Raises InvalidParameter where its bytes aren't plainly in the file."""
        if stored.external is not None or stored.is_virtual:
            raise InvalidParameter(FILE, "an HDF5 file whose data are in the file itself", f"external or virtual storage of {name}")
        properties = stored.id.get_create_plist()
        used = [int(properties.get_filter(number)[0]) for number in range(properties.get_nfilters())]
        if any(one not in FILTERS for one in used):
            raise InvalidParameter(FILE, f"compressed by {', '.join(FILTERS.values())} or not at all", f"filter {used} of {name}")
        if stored.shape is None or not stored.shape or not is_number(_dtype(stored.dtype)):
            return False
        if checked_size(stored.shape, stored.dtype, self) > HIGHEST_RATIO * stored.id.get_storage_size():
            raise self.broken(f"less data stored for {name} than its shape says")
        return True


@final
class Hdf5(_Hdf5File):
    """Data sets of numbers, by their paths. Complex numbers are compounds (r, i), as h5py writes them, or (real, imag)."""

    NAME: ClassVar[str] = "hdf5"
    IS: ClassVar[str] = "a whole HDF5 file with data sets of numbers"


@final
class Matlab73(_Hdf5File):
    """MATLAB's variables of version 7.3, their axes in MATLAB's order."""

    NAME: ClassVar[str] = "mat"
    IS: ClassVar[str] = "a whole MATLAB file (version 5 or 7.3) with matrices of numbers"

    def _shape(self, stored: h5py.Dataset) -> tuple[int, ...]:
        return tuple(reversed(stored.shape))

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        # MATLAB stores columns first, and HDF5's axes are then the other way round.
        return values.T


def _pieces(stored: h5py.Dataset) -> Generator[NDArray[Any]]:
    """Everything in it, some rows at a time."""
    rows = max(1, READ_AT_ONCE // max(1, math.prod(stored.shape[1:]) * stored.dtype.itemsize))
    for start in range(0, stored.shape[0], rows):
        yield stored[start : start + rows]


def _is_pair(dtype: np.dtype[Any]) -> bool:
    return dtype.names == ("real", "imag") and dtype["real"] == dtype["imag"] and dtype["real"].kind == "f"


def _dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What the numbers are once they are read."""
    if _is_pair(dtype):
        return np.dtype(np.complex64 if dtype["real"].itemsize <= 4 else np.complex128)
    return dtype


def _number(values: NDArray[Any]) -> NDArray[Any]:
    if not _is_pair(values.dtype):
        return values
    result = np.empty(values.shape, _dtype(values.dtype))
    result.real, result.imag = values["real"], values["imag"]
    return result


def _address(group: h5py.Group) -> object:
    import h5py

    return h5py.h5o.get_info(group.id).addr  # pyright: ignore[reportAttributeAccessIssue] (a compiled module)
