r"""CSV tables: a first line of names, then rows with the same number of cells. Each column is an array, of numbers or of text."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from zetadp.trainer.data.formats.base import MOST_ARRAYS, ArrayFacts, Contents, Format

LONGEST_NAME = 200


@final
class Csv(Format):
    """A table, read line by line. A file that was cut off between two lines looks like a shorter one: compare its SHA-256."""

    NAME: ClassVar[str] = "csv"
    IS: ClassVar[str] = "a CSV table in UTF-8: a first line of distinct names, then rows with the same number of cells"

    def inspect(self, path: Path) -> Contents:
        names: list[str] = []
        numeric: list[int] = []
        rows = -1
        for rows, cells in enumerate(self._lines(path)):
            if rows == 0:
                names, numeric = cells, list(range(len(cells)))
            else:
                numeric = [place for place in numeric if _number(cells[place]) is not None]
        if rows < 1:
            raise self.broken("no row")
        return Contents(
            arrays=tuple(
                ArrayFacts(name=name, shape=(rows,), dtype="float64" if place in numeric else "text") for place, name in enumerate(names)
            )
        )

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        lines = self._lines(path)
        header = next(lines, [])
        if set(names) - set(header):
            raise self.missing(names, header)
        places = {name: header.index(name) for name in names}
        numbers: dict[str, array[float]] = {name: array("d") for name in names}
        texts: dict[str, list[str]] = {}
        for cells in lines:
            for name, place in places.items():
                if (value := _number(cells[place])) is not None:
                    numbers[name].append(value)
                else:
                    texts[name] = self._again(path, place)
                    del numbers[name]
            places = {name: place for name, place in places.items() if name in numbers}
        return {name: np.array(numbers[name]) if name in numbers else np.array(texts[name]) for name in names}

    def _again(self, path: Path, place: int) -> list[str]:
        """All cells of a column that turned out to be text."""
        lines = self._lines(path)
        next(lines, None)
        return [cells[place] for cells in lines]

    def _lines(self, path: Path) -> Iterator[list[str]]:
        width = None
        try:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                for cells in csv.reader(stream, strict=True):
                    if not cells:
                        continue
                    if width is None:
                        width = self._checked_header(cells)
                    if len(cells) != width:
                        raise self.broken(f"a row of {len(cells)} cells in a table of {width} columns")
                    yield cells
        except (csv.Error, UnicodeError) as error:
            # The reader's own words may quote a cell.
            raise self.broken(f"a table that can't be read ({type(error).__name__})") from None

    def _checked_header(self, names: list[str]) -> int:
        if len(set(names)) != len(names) or len(names) > MOST_ARRAYS:
            raise self.broken(f"{len(names)} columns with {len(set(names))} distinct names")
        if any(not name or len(name) > LONGEST_NAME or not name.isprintable() for name in names):
            raise self.broken(f"a column without a name, or with one longer than {LONGEST_NAME} printable characters")
        if all(_number(name) is not None for name in names):
            raise self.broken("a first line of numbers instead of names")
        return len(names)


def _number(cell: str) -> float | None:
    try:
        # Python's own literals have underscores in them; nobody's tables do.
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
