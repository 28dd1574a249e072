r"""The interface of every upload format: facts about a file's arrays, without values, and the arrays themselves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, StringConstraints

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

FILE = "file"
"""The field named when a file's content is refused."""
MOST_UNPACKED = 4 * 2**30
"""The most bytes of a file's contents, unpacked."""
MOST_ARRAYS = 4096
MOST_AXES = 16
PIECE = 2**20
"""Bytes that are unpacked at a time."""
HIGHEST_RATIO = 1100
"""Deflate can't shrink more than 1032 times: a larger ratio is a forged size."""
NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")

ArrayName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Length = Annotated[int, Strict(), Field(ge=0, le=2**40)]


@final
class ArrayFacts(Value):
    r"""An array in a file, without its values.

    Attributes:
      name: of the array in the file, or of a table's column; fixed if a format holds one array without a name.
      shape: its axes' lengths.
      dtype: NumPy's name for its type, such as ``float32`` or ``complex64``; ``text`` for words.
    """

    name: ArrayName
    shape: tuple[Length, ...]
    dtype: Annotated[str, Field(max_length=32)]


@final
class Contents(Value):
    r"""The contents of a complete file.

    Attributes:
      arrays: those that a data set can be made from.
      left_out: names of other contents (structs, cells, text, references), which aren't read.
    """

    arrays: Annotated[tuple[ArrayFacts, ...], Field(min_length=1, max_length=MOST_ARRAYS)]
    left_out: Annotated[tuple[ArrayName, ...], Field(max_length=MOST_ARRAYS)] = ()


class Format(ABC):
    """A kind of file. Both methods treat the file as untrusted and raise InvalidParameter if it isn't a complete file of this kind."""

    NAME: ClassVar[str]
    IS: ClassVar[str]
    """The name of such a file in error messages."""

    @abstractmethod
    def inspect(self, path: Path) -> Contents:
        """The contents of the file, which is read completely: a file that is cut off is refused."""

    @abstractmethod
    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The named arrays. Also raises InvalidParameter if one is missing."""

    @final
    def broken(self, why: object) -> InvalidParameter:
        """The error for a malformed file; ``why`` quotes no data."""
        return InvalidParameter(FILE, self.IS, why)

    @final
    def missing(self, names: Sequence[str], present: Sequence[str]) -> InvalidParameter:
        """The error for a name that isn't in the file."""
        absent = [name for name in names if name not in present]
        return InvalidParameter("array", f"one of {', '.join(present[:20])}", ", ".join(absent))


def checked_size(shape: Sequence[int], dtype: np.dtype[Any], format_: Format) -> int:
    """Bytes of such an array. Raises InvalidParameter before anything is allocated."""
    if len(shape) > MOST_AXES or any(length < 0 for length in shape):
        raise format_.broken(f"an array of {len(shape)} axes")
    size = math.prod(shape) * dtype.itemsize
    if size > MOST_UNPACKED:
        raise InvalidParameter(FILE, f"at most {MOST_UNPACKED} bytes unpacked", size)
    return size


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether such an array holds plain numbers or truth values."""
    return dtype.fields is None and dtype.subdtype is None and f"{dtype.kind}{dtype.itemsize}" in NUMBERS


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The type's name in ``ArrayFacts``."""
    return "text" if dtype.kind in "US" else dtype.newbyteorder("=").name
