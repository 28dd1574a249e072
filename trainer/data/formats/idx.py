r"""IDX files, as MNIST's: one array of numbers, gzipped or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from zetadp.trainer.data.formats.base import ArrayFacts, Contents, Format, checked_size, dtype_name
from zetadp.trainer.data.formats.numpy_files import ONLY_ARRAY
from zetadp.trainer.data.formats.packed import pass_over, read_array, unpacked

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""By the third byte of the magic number; the fourth is the number of axes."""
MOST_AXES = 8


def is_idx(start: bytes) -> bool:
    """Whether a file that starts so may be one."""
    return len(start) >= 8 and start[:2] == b"\0\0" and start[2] in DTYPES and 0 < start[3] <= MOST_AXES


@final
class Idx(Format):
    """One array of big-endian numbers."""

    NAME: ClassVar[str] = "idx"
    IS: ClassVar[str] = "a whole IDX file, gzipped or not"

    def inspect(self, path: Path) -> Contents:
        with unpacked(path, self) as stream:
            shape, dtype, size = self._header(stream)
            if pass_over(stream, size, self) != size:
                raise self.broken("fewer bytes than its header says")
            return Contents(arrays=(ArrayFacts(name=ONLY_ARRAY, shape=shape, dtype=dtype_name(dtype)),))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        if set(names) - {ONLY_ARRAY}:
            raise self.missing(names, (ONLY_ARRAY,))
        with unpacked(path, self) as stream:
            shape, dtype, size = self._header(stream)
            return {ONLY_ARRAY: read_array(stream, size, dtype, self).reshape(shape)}

    def _header(self, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        magic = stream.read(4)
        if not is_idx(magic + bytes(4)):
            raise self.broken("another magic number")
        lengths = stream.read(4 * magic[3])
        if len(lengths) != 4 * magic[3]:
            raise self.broken("fewer bytes than its header says")
        shape, dtype = tuple(int(length) for length in np.frombuffer(lengths, ">u4")), np.dtype(DTYPES[magic[2]])
        return shape, dtype, checked_size(shape, dtype, self)
