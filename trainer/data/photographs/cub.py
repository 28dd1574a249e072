r"""Caltech-UCSD Birds-200-2011 from its own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, final

import numpy as np
from pydantic import Field, Strict

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.files.location import Folder, file_of
from zetadp.trainer.data.files.pictures import lines_of, pictures

CLASSES = 200
LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt")

Side = Annotated[int, Strict(), Field(ge=8, le=256)]
"""Pixels of a picture's side."""


@final
class Cub(DataRecipe):
    r"""Birds of 200 species, whole pictures, stretched to squares; x / 127.5 - 1, channels first, the original split.

    Attributes:
      folder: ``CUB_200_2011``, with ``images.txt``, ``image_class_labels.txt``, ``train_test_split.txt`` and ``images/``.
      side: of the squares.
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "Caltech-UCSD Birds-200-2011 (Wah et al. 2011), whole pictures stretched to squares, x / 127.5 - 1, the original split. One "
        "record is one image"
    )

    kind: Literal["cub"] = "cub"
    folder: Folder
    side: Side

    def describe(self) -> str:
        return f"{self.DESCRIPTION} of {self.side} x {self.side} pixels."

    def sources(self) -> tuple[Path, ...]:
        lists = tuple(file_of(self.folder, name) for name in LISTS)
        return (*lists, *(path for path, _, _ in self._rows()))

    def arrays(self) -> DataSet:
        rows = self._rows()
        sides = [[row for row in rows if row[2] == is_training] for is_training in (True, False)]
        (x, y), (x_test, y_test) = (
            (pictures([path for path, _, _ in side], self.side), np.array([label for _, label, _ in side], dtype=np.int64))
            for side in sides
        )
        return DataSet(x, y, x_test, y_test, CLASSES)

    def _rows(self) -> list[tuple[Path, int, bool]]:
        """Each picture's file, its species from 0 on, and whether it is for training."""
        images, labels, splits = (dict(lines_of(file_of(self.folder, name), 2)) for name in LISTS)
        if not (images and images.keys() == labels.keys() == splits.keys()):
            raise InvalidParameter("data.folder", "lists of the same pictures", [len(images), len(labels), len(splits)])
        found: list[tuple[Path, int, bool]] = []
        for number, name in images.items():
            label, split = labels[number], splits[number]
            if not label.isdecimal() or not 1 <= int(label) <= CLASSES or split not in {"0", "1"}:
                raise InvalidParameter("data.folder", f"species from 1 to {CLASSES}, and 0 or 1 for the split", (number, label, split))
            found.append((file_of(f"{self.folder}/images", name), int(label) - 1, split == "1"))
        return found
