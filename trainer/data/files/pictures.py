r"""Photographs from files, as arrays of one size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

FORMATS = ("JPEG", "PNG")
MOST_PIXELS = 2**25
"""Of a file, before it is made smaller."""


def picture(path: Path, side: int) -> NDArray[np.uint8]:
    r"""(3, side, side) uint8: red, green and blue of the whole picture, stretched to a square by Pillow's bilinear filter.

    Raises:
      InvalidParameter: it isn't a JPEG or PNG file, is damaged, or has more than ``MOST_PIXELS`` pixels.
    """
    from PIL import Image, UnidentifiedImageError  # not needed by whoever only reads a spec

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise InvalidParameter(path.name, f"a picture of at most {MOST_PIXELS} pixels", f"{image.width} x {image.height}")
                small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InvalidParameter(path.name, "a picture as JPEG or PNG", str(error)) from error
    return np.ascontiguousarray(np.asarray(small, dtype=np.uint8).transpose(2, 0, 1))


def pictures(paths: list[Path], side: int) -> NDArray[Any]:
    """(records, 3, side, side) float32: colours x as x / 127.5 - 1."""
    found = np.empty((len(paths), 3, side, side), dtype=np.float32)
    for row, path in zip(found, paths, strict=True):
        row[:] = picture(path, side)
    found /= np.float32(127.5)
    found -= np.float32(1.0)
    return found


def lines_of(path: Path, columns: int) -> list[list[str]]:
    """Words of each line that isn't empty. Raises InvalidParameter if one has another number of them."""
    found = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if any(len(words) != columns for words in found):
        raise InvalidParameter(path.name, f"{columns} words in every line", next(words for words in found if len(words) != columns)[:3])
    return found
