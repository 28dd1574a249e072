r"""Columns of numbers from a table, each scaled to [0, 1] by bounds that the caller states, never by the table's own values.

A column divided by its own maximum reveals that maximum to everybody, without any guarantee (errata S9).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, model_validator

from zetadp.mechanisms.base import Number, Value
from zetadp.mechanisms.errors import InvalidParameter

LARGEST_TABLE = 2**30
"""Bytes of one file."""
MOST_COLUMNS = 4096
SMALLEST_WIDTH = 1e-30

ColumnName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Outside = Literal["refuse", "clip"]
"""What happens to a value outside its column's bounds: the whole table is refused, or the value is moved to the nearer bound."""


@final
class Column(Value):
    r"""One feature: x is scaled to (x - lower) / (upper - lower).

    Attributes:
      name: of the column in a CSV file's first line; its number, from 0, in a NumPy file. A column may be used several times.
      lower, upper: public bounds that follow from the column's meaning (such as 1440 minutes in a day); in units of the column.
    Raises:
      ValidationError: a bound is missing, or they bound nothing.
    """

    name: ColumnName
    lower: Number | None = None
    upper: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for bound in ("lower", "upper"):
            if getattr(self, bound) is None:
                expected = "given: a public bound, known without the data (never the column's own smallest or largest value)"
                raise InvalidParameter(f"columns.{self.name}.{bound}", expected, None)
        low, high = self.bounds
        if not SMALLEST_WIDTH <= high - low < math.inf:
            raise InvalidParameter(f"columns.{self.name}.upper", f"at least {SMALLEST_WIDTH:g} above lower", high)
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """lower and upper."""
        assert self.lower is not None  # checked at construction
        assert self.upper is not None
        return self.lower, self.upper


Columns = Annotated[tuple[Column, ...], Field(min_length=1, max_length=MOST_COLUMNS)]


def scaled(table: NDArray[Any], columns: Sequence[Column], outside: Outside) -> NDArray[np.float32]:
    r"""The columns scaled to [0, 1] by their public bounds, float32.

    Args:
      table: (rows, len(columns)), float64.
    Raises:
      InvalidParameter: a value isn't finite, or, where these are refused, lies outside its column's bounds. No value is quoted.
    """
    lower, upper = (np.array(ends) for ends in zip(*(column.bounds for column in columns), strict=True))
    if not np.isfinite(table).all():
        raise InvalidParameter("data.columns", "finite numbers", "NaN or infinity")
    if outside == "refuse":
        places = np.flatnonzero(np.any((table < lower) | (table > upper), axis=0))
        if len(places):
            names = [columns[int(place)].name for place in places]
            raise InvalidParameter(
                "data.columns", "within their public bounds (outside: clip moves values to the nearer bound)", f"values outside in {names}"
            )
    return np.clip((np.clip(table, lower, upper) - lower) / (upper - lower), 0.0, 1.0).astype(np.float32)


def csv_cells(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    r"""The named columns of a CSV file whose first line names them, as text.

    Raises:
      InvalidParameter: the file is too large or no such table, a name is missing or appears twice, or there is no row. No cell is quoted.
    """
    text = _bytes(path).decode("utf-8-sig", errors="replace")
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    header = lines[0] if lines else []
    for name in names:
        if header.count(name) != 1:
            raise InvalidParameter(path.name, f"a table with one column {name!r}", f"{header.count(name)} of them")
    if any(len(line) != len(header) for line in lines) or len(lines) < 2:
        raise InvalidParameter(path.name, f"a table with rows of {len(header)} cells each", f"{len(lines) - 1} rows")
    return {name: [line[header.index(name)] for line in lines[1:]] for name in names}


def as_numbers(path: Path, name: str, cells: Sequence[str]) -> NDArray[np.float64]:
    """A column's cells as numbers. Raises InvalidParameter, without quoting the cell, if one isn't a number."""
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        pass  # whose text quotes the cell
    raise InvalidParameter(f"{path.name}: column {name!r}", "a number in every row", "a cell that isn't a number")


def npy_table(path: Path) -> NDArray[Any]:
    r"""A NumPy file of a table of numbers, (rows, columns), float64.

    Raises:
      InvalidParameter: the file is too large or holds something else.
    """
    try:
        table = np.load(io.BytesIO(_bytes(path)), allow_pickle=False)
    except (ValueError, OSError, EOFError):
        table = None
    if not isinstance(table, np.ndarray) or table.ndim != 2 or not table.size or table.dtype.kind not in "fiu":
        raise InvalidParameter(path.name, "a NumPy file (.npy) of real numbers, (rows, columns)", "something else")
    return table.astype(np.float64)


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > LARGEST_TABLE:
        raise InvalidParameter(path.name, f"a file of at most {LARGEST_TABLE} bytes", path.stat().st_size)
    return path.read_bytes()
