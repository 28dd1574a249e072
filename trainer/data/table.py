r"""Your own table, as a CSV or NumPy file: real features in [0, 1], to reconstruct."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, model_validator

from zetadp.mechanisms.base import OpenProbability, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet, SplitRule
from zetadp.trainer.data.files.columns import ColumnName, Columns, Outside, as_numbers, csv_cells, npy_table, scaled
from zetadp.trainer.data.files.location import Folder, file_of
from zetadp.trainer.data.splits import Keys, SplitBy, SplitSeed, by_record, name_keys, record_keys, sides

FileName = Annotated[str, StringConstraints(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_. -]*\.(csv|npy)$")]

_OTHER_ROWS = "a file with rows other than the training rows (measurements on held-out rows are published without noise)"


@final
class HeldOutFile(Value):
    """The rows of another file are held out."""

    kind: Literal["file"] = "file"
    file: FileName


@final
class HeldOutFraction(Value):
    r"""A share of the rows, drawn from a public seed, is held out; with a user column, a share of the users with all their rows.

    Attributes: as in ``SplitRecipe``; ``split_by`` is for rows, not for users.
    """

    kind: Literal["fraction"] = "fraction"
    fraction: OpenProbability
    split_seed: SplitSeed
    split_by: SplitBy = "content"


@final
class Table(DataRecipe):
    r"""Rows of numbers, each column scaled to [0, 1] by public bounds.

    Attributes:
      folder: with the files.
      file: the training rows: CSV with a first line of names, or a NumPy array (rows, columns).
      columns: the features, in this order, with their public bounds.
      outside: what happens to values outside the bounds.
      user_column: the user of each row: any text in a CSV file, a column of numbers in a NumPy file; None if unknown.
      held_out: the rows that aren't trained on.
    Raises:
      ValidationError: the held-out rows would be the training rows.
    """

    UNIT: ClassVar[str] = "record"
    USER_UNIT: ClassVar[str | None] = "user"
    DESCRIPTION: ClassVar[str] = "A table of numbers, each column scaled to [0, 1] by public bounds that the request names"

    kind: Literal["table"] = "table"
    folder: Folder
    file: FileName
    columns: Columns
    outside: Outside
    user_column: ColumnName | None = None
    held_out: Annotated[HeldOutFile | HeldOutFraction, Field(discriminator="kind")]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.held_out, HeldOutFile) and self.held_out.file == self.file:
            raise InvalidParameter("held_out.file", _OTHER_ROWS, self.file)
        return self

    def split_rule(self) -> SplitRule:
        if isinstance(self.held_out, HeldOutFile):
            return "given"
        return self.held_out.split_by if self.user_column is None else "users"

    def describe(self) -> str:
        beyond = "values beyond them are clipped to them" if self.outside == "clip" else "no value lies beyond them"
        if isinstance(self.held_out, HeldOutFile):
            split = "The held-out rows are from another file; whether they are about the same people isn't known."
        elif self.user_column is None:
            split = "The held-out rows are drawn at random; whether they are about the same people isn't known."
        else:
            split = "The held-out rows belong to users drawn at random, who have no training rows."
        return f"{self.DESCRIPTION}; {beyond}. One record is one row. {split}"

    def sources(self) -> tuple[Path, ...]:
        held_out = (self.held_out.file,) if isinstance(self.held_out, HeldOutFile) else ()
        return tuple(file_of(self.folder, name) for name in (self.file, *held_out))

    def arrays(self) -> DataSet:
        path, *others = self.sources()
        features, users = self._rows(path, self.user_column)
        if isinstance(self.held_out, HeldOutFile):
            test, _ = self._rows(others[0], None)
            # Under another name, by a link or as a copy.
            if np.array_equal(test, features):
                raise InvalidParameter("held_out.file", _OTHER_ROWS, self.held_out.file)
            return DataSet(features, features, test, test, None, users)
        asked = self.held_out
        if users is None:
            kept, held = by_record(asked.split_by, record_keys(features), asked.split_seed, asked.fraction)
            return DataSet(features[kept], features[kept], features[held], features[held], None)
        kept, held = sides(users, asked.split_seed, asked.fraction)
        return DataSet(features[kept], features[kept], features[held], features[held], None, users[kept])

    def _rows(self, path: Path, user_column: str | None) -> tuple[NDArray[np.float32], Keys | None]:
        """Features, and the keys of whose they are."""
        wanted = [column.name for column in self.columns]
        if path.suffix == ".csv":
            cells = csv_cells(path, [*wanted, *(() if user_column is None else (user_column,))])
            table = np.column_stack([as_numbers(path, name, cells[name]) for name in wanted])
            users = None if user_column is None else name_keys(np.array(cells[user_column]))
        else:
            whole = npy_table(path)
            table = np.column_stack([_column(path, whole, name) for name in wanted])
            users = None if user_column is None else name_keys(_column(path, whole, user_column))
        return scaled(table, self.columns, self.outside), users


def _column(path: Path, table: NDArray[Any], name: str) -> NDArray[Any]:
    number = int(name) if name.isascii() and name.isdecimal() else -1
    if not 0 <= number < table.shape[1]:
        raise InvalidParameter(f"{path.name}: column {name!r}", f"a number from 0 to {table.shape[1] - 1}", name)
    return table[:, number]
