r"""CelebA's aligned pictures, one of their attributes as the label; a celebrity may have several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, final

import numpy as np
from pydantic import StringConstraints

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.files.location import Folder, file_of
from zetadp.trainer.data.files.pictures import lines_of, pictures
from zetadp.trainer.data.photographs.cub import Side
from zetadp.trainer.data.splits import name_keys

ATTRIBUTES, PARTITION, IDENTITIES = "list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt"
PICTURES = "img_align_celeba"
TRAINING, TEST = "0", "2"
"""In the list of the partition; 1 is for validation, and left out."""


@final
class CelebA(DataRecipe):
    r"""Faces as squares, x / 127.5 - 1, channels first; the original training and test parts, which share no celebrity.

    Attributes:
      folder: with ``img_align_celeba/``, ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and ``identity_CelebA.txt``.
      attribute: one of the 40, for example ``Smiling``; whoever has it is class 1.
      side: of the squares, in pixels; the pictures are stretched.
    """

    UNIT: ClassVar[str] = "image"
    USER_UNIT: ClassVar[str | None] = "celebrity"
    DESCRIPTION: ClassVar[str] = (
        "CelebA's aligned faces (Liu et al. 2015), stretched to squares, x / 127.5 - 1, the original training and test parts. One record "
        "is one image, and a celebrity may have several"
    )

    kind: Literal["celeba"] = "celeba"
    folder: Folder
    attribute: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_]{1,40}$")]
    side: Side

    def describe(self) -> str:
        return f"{self.DESCRIPTION}. {self.side} x {self.side} pixels; the class is whether {self.attribute}."

    def sources(self) -> tuple[Path, ...]:
        lists = tuple(file_of(self.folder, name) for name in (ATTRIBUTES, PARTITION, IDENTITIES))
        return (*lists, *(self._file(name) for name, part in self._partition().items() if part in {TRAINING, TEST}))

    def arrays(self) -> DataSet:
        parts, labels = self._partition(), self._labels()
        owners = dict(lines_of(file_of(self.folder, IDENTITIES), 2))
        names = [[name for name, part in parts.items() if part == wanted] for wanted in (TRAINING, TEST)]
        if missing := next((name for side in names for name in side if name not in labels or name not in owners), None):
            raise InvalidParameter("data.folder", f"lists that have every picture of {PARTITION}", f"none for {missing}")
        (x, y), (x_test, y_test) = (
            (pictures([self._file(name) for name in side], self.side), np.array([labels[name] for name in side], dtype=np.int64))
            for side in names
        )
        return DataSet(x, y, x_test, y_test, 2, name_keys(np.array([owners[name] for name in names[0]])))

    def _file(self, name: str) -> Path:
        return file_of(f"{self.folder}/{PICTURES}", name)

    def _partition(self) -> dict[str, str]:
        return dict(lines_of(file_of(self.folder, PARTITION), 2))

    def _labels(self) -> dict[str, int]:
        """1 for pictures with the attribute, by name: a line with their number, one with the attributes' names, then 1 and -1."""
        _, header, *lines = file_of(self.folder, ATTRIBUTES).read_text(encoding="utf-8").splitlines()
        known = header.split()
        if self.attribute not in known:
            raise InvalidParameter("data.attribute", f"one of {', '.join(known)}", self.attribute)
        column = known.index(self.attribute) + 1
        found: dict[str, int] = {}
        for words in (line.split() for line in lines if line.strip()):
            if len(words) != len(known) + 1 or words[column] not in {"1", "-1"}:
                raise InvalidParameter(ATTRIBUTES, f"a name and {len(known)} numbers 1 or -1 in every line", words[:3])
            found[words[0]] = int(words[column] == "1")
        return found
