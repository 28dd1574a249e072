r"""CIFAR-10 from a NumPy archive or the binary version's batches; the Python version's pickles are never opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.files.archives import npz_arrays
from zetadp.trainer.data.files.location import Folder, file_of, files_of, folder_of

CLASSES = 10
IMAGE = (3, 32, 32)
IMAGE_BYTES = 3 * 32 * 32
LARGEST_BATCH = 2**30
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
Side = tuple[NDArray[Any], NDArray[Any]]
"""Images and labels."""


@final
class Cifar10(DataRecipe):
    r"""CIFAR-10: colour values x as x / 127.5 - 1 in [-1, 1], channels first, the original split.

    Attributes:
      folder: with one NumPy archive (``x_train``, ``y_train``, ``x_test``, ``y_test``; images channels last), or with the binary version's
        ``data_batch_1.bin`` ... and ``test_batch.bin``.
      numbers: complex records, or real ones for the real-valued baseline.
      imaginary: of complex records: all zero, or a copy of the real part (zeta-DP paper, A.6.1).
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "CIFAR-10 colour images (Krizhevsky 2009), x / 127.5 - 1, channels first, the original split. One record is one image"
    )

    kind: Literal["cifar10"] = "cifar10"
    folder: Folder
    numbers: Literal["complex", "real"]
    imaginary: Literal["zero", "copy"] = "zero"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.numbers == "real" and self.imaginary == "copy":
            raise InvalidParameter("imaginary", "zero for numbers real", self.imaginary)
        return self

    def describe(self) -> str:
        if self.numbers == "real":
            return f"{self.DESCRIPTION}, real-valued."
        return f"{self.DESCRIPTION}, imaginary part {'zero' if self.imaginary == 'zero' else 'a copy of the real part'}."

    def sources(self) -> tuple[Path, ...]:
        if archive := archive_in(self.folder):
            return archive
        place = folder_of(self.folder)
        if not any(place.glob("*.bin")) and (place / "data_batch_1").exists():
            raise InvalidParameter(
                "data.folder",
                "of CIFAR-10's binary version (cifar-10-binary.tar.gz: data_batch_1.bin, ...), since Python pickles can run code and are "
                "never opened",
                self.folder,
            )
        return (*files_of(self.folder, "data_batch_*.bin"), file_of(self.folder, "test_batch.bin"))

    def arrays(self) -> DataSet:
        *training, last = self.sources()
        if not training:
            sides = archived(last)
        else:
            batches = [batch(path) for path in training]
            sides = (np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])), batch(last)
        (x, y), (x_test, y_test) = sides
        features, others = (colours(images, self.numbers, self.imaginary) for images in (x, x_test))
        return DataSet(features, y.astype(np.int64), others, y_test.astype(np.int64), CLASSES)


def colours(images: NDArray[Any], numbers: Literal["complex", "real"], imaginary: Literal["zero", "copy"]) -> NDArray[Any]:
    """Bytes x as x / 127.5 - 1, float32, or as the real parts of complex64 numbers whose imaginary parts are 0 or a copy."""
    real = images.astype(np.float32) / np.float32(127.5) - np.float32(1.0)
    if numbers == "real":
        return real
    return (real * np.complex64(1.0 + 1.0j) if imaginary == "copy" else real).astype(np.complex64)


def from_channels_last(images: NDArray[Any], name: str) -> NDArray[Any]:
    """(records, 32, 32, 3) uint8 -> (records, 3, 32, 32). Raises InvalidParameter for other arrays."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise InvalidParameter(name, "images uint8 of shape (records, 32, 32, 3)", (images.dtype.name, images.shape))
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def archive_in(folder: Folder) -> tuple[Path, ...]:
    """The folder's NumPy archive, if there is one. Raises InvalidParameter where there are several."""
    if not any(folder_of(folder).glob("*.npz")):
        return ()
    archives = files_of(folder, "*.npz")
    if len(archives) > 1:
        raise InvalidParameter("data.folder", "a folder with one .npz file", [path.name for path in archives])
    return archives


def archived(path: Path) -> tuple[Side, Side]:
    """Training and test side of an archive."""
    x, y, x_test, y_test = npz_arrays(path, ARRAYS).values()
    return (from_channels_last(x, path.name), y), (from_channels_last(x_test, path.name), y_test)


def batch(path: Path, labels: int = 1, label: int = 0) -> Side:
    """Images uint8 (records, 3, 32, 32) and one label of each: a record is its label bytes, then 1024 red, green and blue ones."""
    size, each = path.stat().st_size, labels + IMAGE_BYTES
    if size == 0 or size % each or size > LARGEST_BATCH:
        raise InvalidParameter(path.name, f"whole records of {each} bytes, at most {LARGEST_BATCH} bytes", size)
    records = np.frombuffer(path.read_bytes(), dtype=np.uint8).reshape(-1, each)
    return records[:, labels:].reshape(-1, *IMAGE), records[:, label]
