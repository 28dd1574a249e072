r"""CIFAR-100 from a NumPy archive or the binary version's two files; the Python version's pickles are never opened."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self, final

import numpy as np
from pydantic import model_validator

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.cifar10 import archive_in, archived, batch, colours
from zetadp.trainer.data.files.location import Folder, file_of, folder_of

LABELS = ("coarse", "fine")
"""As their bytes stand before an image."""
CLASSES = {"fine": 100, "coarse": 20}


@final
class Cifar100(DataRecipe):
    r"""CIFAR-100: colour values x as x / 127.5 - 1 in [-1, 1], channels first, the original split.

    Attributes:
      folder: with the binary version's ``train.bin`` and ``test.bin``, or with one NumPy archive (``x_train``, ``y_train``, ``x_test``,
        ``y_test``; images channels last, labels of the wanted kind).
      labels: the 100 fine ones or the 20 coarse ones.
      numbers: complex records, or real ones.
      imaginary: of complex records: all zero, or a copy of the real part.
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "CIFAR-100 colour images (Krizhevsky 2009), x / 127.5 - 1, channels first, the original split. One record is one image"
    )

    kind: Literal["cifar100"] = "cifar100"
    folder: Folder
    labels: Literal["fine", "coarse"]
    numbers: Literal["complex", "real"]
    imaginary: Literal["zero", "copy"] = "zero"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.numbers == "real" and self.imaginary == "copy":
            raise InvalidParameter("imaginary", "zero for numbers real", self.imaginary)
        return self

    def describe(self) -> str:
        parts = "real-valued" if self.numbers == "real" else f"imaginary part {'zero' if self.imaginary == 'zero' else 'the real part'}"
        return f"{self.DESCRIPTION}, {self.labels} labels, {parts}."

    def sources(self) -> tuple[Path, ...]:
        if archive := archive_in(self.folder):
            return archive
        place = folder_of(self.folder)
        if (place / "train").exists() and not (place / "train.bin").exists():
            raise InvalidParameter(
                "data.folder",
                "of CIFAR-100's binary version (cifar-100-binary.tar.gz: train.bin, test.bin), since Python pickles can run code and are "
                "never opened",
                self.folder,
            )
        return file_of(self.folder, "train.bin"), file_of(self.folder, "test.bin")

    def arrays(self) -> DataSet:
        files = self.sources()
        if len(files) == 1:
            sides = archived(files[0])
        else:
            label = LABELS.index(self.labels)
            sides = batch(files[0], len(LABELS), label), batch(files[1], len(LABELS), label)
        (x, y), (x_test, y_test) = ((colours(images, self.numbers, self.imaginary), labels.astype(np.int64)) for images, labels in sides)
        return DataSet(x, y, x_test, y_test, CLASSES[self.labels])
