r"""NumPy's files: one array (.npy), or several in a ZIP archive (.npz). Nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats.base import FILE, MOST_ARRAYS, ArrayFacts, Contents, Format, checked_size, dtype_name, is_number
from zetadp.trainer.data.formats.packed import archive, pass_over, read_array, unpacked

ONLY_ARRAY = "array"
"""The name of a .npy file's array."""
SUFFIX = ".npy"


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int

    def facts(self, name: str) -> ArrayFacts:
        return ArrayFacts(name=name, shape=self.shape, dtype=dtype_name(self.dtype))


def _header(stream: IO[bytes], format_: Format) -> _Header:
    """The header of an array. Raises InvalidParameter for anything but plain numbers and text, ValueError for what is no header."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise format_.broken(f"version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(stream)
    except (TokenError, SyntaxError, RecursionError, TypeError) as error:  # NumPy tries to repair a header that isn't one
        raise format_.broken(f"a header that can't be read ({type(error).__name__})") from error
    if dtype.hasobject:
        raise InvalidParameter(FILE, "a file of arrays of numbers (Python objects are never unpickled)", "an array of objects")
    if not is_number(dtype) and dtype.kind not in "US":
        raise InvalidParameter(FILE, "a file of arrays of plain numbers or text", f"an array of {dtype.str}")
    return _Header(shape, fortran, dtype, checked_size(shape, dtype, format_))


def _array(stream: IO[bytes], format_: Format) -> NDArray[Any]:
    header = _header(stream, format_)
    flat = read_array(stream, header.size, header.dtype, format_)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def _passed(stream: IO[bytes], name: str, format_: Format) -> ArrayFacts:
    header = _header(stream, format_)
    if pass_over(stream, header.size, format_) != header.size:
        raise format_.broken("fewer bytes than its header says")
    return header.facts(name)


@final
class Npy(Format):
    """One array."""

    NAME: ClassVar[str] = "npy"
    IS: ClassVar[str] = "a whole NumPy file (.npy) of numbers"

    def inspect(self, path: Path) -> Contents:
        with unpacked(path, self) as stream:
            return Contents(arrays=(_passed(stream, ONLY_ARRAY, self),))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        if set(names) - {ONLY_ARRAY}:
            raise self.missing(names, (ONLY_ARRAY,))
        with unpacked(path, self) as stream:
            return {ONLY_ARRAY: _array(stream, self)}


@final
class Npz(Format):
    """Several arrays by name."""

    NAME: ClassVar[str] = "npz"
    IS: ClassVar[str] = "a whole NumPy archive (.npz) of arrays of numbers"

    def inspect(self, path: Path) -> Contents:
        found: list[ArrayFacts] = []
        with archive(path, self, MOST_ARRAYS) as (opened, members):
            for member in members:
                # To its end, so that its checksum is compared.
                with opened.open(member) as stream:
                    found.append(_passed(stream, self._name(member.filename), self))
        return Contents(arrays=tuple(found))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        with archive(path, self, MOST_ARRAYS) as (opened, members):
            present = {self._name(member.filename): member for member in members}
            if set(names) - present.keys():
                raise self.missing(names, tuple(present))
            found: dict[str, NDArray[Any]] = {}
            for name in names:
                with opened.open(present[name]) as stream:
                    found[name] = _array(stream, self)
                    pass_over(stream, 0, self)
            return found

    def _name(self, member: str) -> str:
        name = member.removesuffix(SUFFIX)
        if name == member or not name or "/" in name or "\\" in name:
            raise self.broken(f"a file {member[:100]!a} in it")
        return name
