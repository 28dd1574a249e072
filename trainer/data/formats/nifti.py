r"""NIfTI volumes (1 and 2, one file, gzipped or not). The header is read here, since a library would go by the file's name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.trainer.data.formats.base import ArrayFacts, Contents, Format, checked_size
from zetadp.trainer.data.formats.packed import read_array, unpacked

VOLUME = "volume"
"""The name of the array."""
SIZES = {348: (b"n+1\0", 344), 540: (b"n+2\0", 4)}
"""Bytes of the header: (magic number, where it stands)."""
DTYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 32: "c8", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8", 1792: "c16",
}  # fmt: skip
"""By the header's ``datatype``."""
LARGEST_OFFSET = 2**24
"""Bytes between the file's start and the numbers: header and extensions."""


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    skipped: int
    """Bytes between header and numbers."""
    slope: float
    intercept: float
    size: int

    @property
    def is_scaled(self) -> bool:
        # 0 means that there is no scaling.
        return self.slope != 0.0 and math.isfinite(self.slope) and (self.slope, self.intercept) != (1.0, 0.0)


def byte_order(start: bytes) -> str | None:
    """``<`` or ``>`` of a file that starts so; None where it is no NIfTI file of its own (.nii)."""
    for order in "<>":
        known = SIZES.get(int.from_bytes(start[:4], "little" if order == "<" else "big"))
        if known is not None and start[known[1] : known[1] + 4] == known[0]:
            return order
    return None


@final
class Nifti(Format):
    """One volume, by the name ``volume``, with the header's slope and intercept applied."""

    NAME: ClassVar[str] = "nifti"
    IS: ClassVar[str] = "a whole NIfTI file (.nii or .nii.gz)"

    def inspect(self, path: Path) -> Contents:
        with unpacked(path, self) as stream:
            header = self._header(stream)
            left = header.size
            while left > 0:
                piece = stream.read(min(2**20, left))
                if not piece:
                    raise self.broken("fewer bytes than its header says")
                left -= len(piece)
            dtype = np.dtype(np.float64) if header.is_scaled and header.dtype.kind != "c" else header.dtype
            return Contents(arrays=(ArrayFacts(name=VOLUME, shape=header.shape, dtype=dtype.newbyteorder("=").name),))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        if set(names) - {VOLUME}:
            raise self.missing(names, (VOLUME,))
        with unpacked(path, self) as stream:
            header = self._header(stream)
            volume = read_array(stream, header.size, header.dtype, self).reshape(header.shape, order="F")
            if not header.is_scaled:
                return {VOLUME: volume}
            wide = volume if header.dtype.kind == "c" else volume.astype(np.float64)
            return {VOLUME: wide * header.slope + header.intercept}

    def _header(self, stream: IO[bytes]) -> _Header:
        """The header; the stream then stands at the first number."""
        start = stream.read(4)
        length = next((size for size in SIZES if start in (size.to_bytes(4, "little"), size.to_bytes(4, "big"))), 4)
        raw = start + stream.read(length - 4)
        order = byte_order(raw)
        if order is None or len(raw) != length:
            raise self.broken("no NIfTI header")
        first = length == 348
        axes = np.frombuffer(raw, f"{order}{'i2' if first else 'i8'}", 8, 40 if first else 16)
        kind = int(np.frombuffer(raw, f"{order}i2", 1, 70 if first else 12)[0])
        offset = float(np.frombuffer(raw, f"{order}{'f4' if first else 'i8'}", 1, 108 if first else 168)[0])
        slope, intercept = (float(one) for one in np.frombuffer(raw, f"{order}{'f4' if first else 'f8'}", 2, 112 if first else 176))
        count = int(axes[0])
        if not 1 <= count <= 7 or kind not in DTYPES or not length <= offset <= LARGEST_OFFSET or offset != int(offset):
            raise self.broken("a header with other axes, number types or offsets")
        if math.isfinite(slope) and slope != 0.0 and not math.isfinite(intercept):
            raise self.broken("an intercept that isn't finite")
        shape, dtype = tuple(int(length) for length in axes[1 : count + 1]), np.dtype(order + DTYPES[kind])
        size = checked_size(shape, dtype, self)
        skipped = int(offset) - length
        if len(stream.read(skipped)) != skipped:
            raise self.broken("fewer bytes than its header says")
        return _Header(shape, dtype, skipped, slope, intercept, size)
