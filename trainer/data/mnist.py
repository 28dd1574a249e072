r"""MNIST from its original files, and MNIST as phase pairs (PhaseMNIST)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.files.archives import idx_array
from zetadp.trainer.data.files.location import Folder, file_of
from zetadp.trainer.data.pairing import CLASSES, Pairs, disjoint_pairs, pairs_with_replacement, records_of_one_image
from zetadp.trainer.data.splits import SplitSeed

IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049
BRIGHTEST = 255.0
"""The file format's largest grey value, a public constant."""
Layout = Literal["flat", "image"]
"""Records of shape (784,), or (1, 28, 28) for convolution."""


class _Files(NamedTuple):
    """Images uint8 (records, height, width) and labels int64 (records,) of each side."""

    training_images: NDArray[Any]
    training_labels: NDArray[Any]
    test_images: NDArray[Any]
    test_labels: NDArray[Any]


def _paths(folder: str) -> tuple[Path, ...]:
    sides = (("train", "images-idx3"), ("train", "labels-idx1"), ("t10k", "images-idx3"), ("t10k", "labels-idx1"))
    names = [f"{side}-{what}-ubyte" for side, what in sides]
    return tuple(file_of(folder, f"{name}.gz", name) for name in names)


def _labels(path: Path) -> NDArray[Any]:
    labels = idx_array(path, LABELS_MAGIC).astype(np.int64)
    if len(labels) == 0 or labels.max() >= CLASSES or len(np.unique(labels)) != CLASSES:
        raise InvalidParameter(path.name, "labels in 0 .. 9, each occurring at least once", "labels outside, or missing digits")
    return labels


def _read(folder: str) -> _Files:
    paths = _paths(folder)
    files = _Files(idx_array(paths[0], IMAGES_MAGIC), _labels(paths[1]), idx_array(paths[2], IMAGES_MAGIC), _labels(paths[3]))
    for path, images, labels in (
        (paths[0], files.training_images, files.training_labels),
        (paths[2], files.test_images, files.test_labels),
    ):
        if len(images) != len(labels):
            raise InvalidParameter(path.name, f"as many images as labels, {len(labels)}", len(images))
    return files


def _shaped(images: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Grey values in [0, 1], float32, as ``layout`` says."""
    grey = images.astype(np.float32) / np.float32(BRIGHTEST)
    return grey.reshape(len(images), -1) if layout == "flat" else grey[:, np.newaxis]


@final
class Mnist(DataRecipe):
    """MNIST as it is: real images, grey values divided by 255, and the original split.

    Attributes:
      folder: with the four IDX files, gzipped or not.
      layout: of one record.
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "MNIST handwritten digits (LeCun, Cortes and Burges), grey values divided by 255, real-valued, the original split. "
        "One record is one image; the files don't say who wrote it."
    )

    kind: Literal["mnist"] = "mnist"
    folder: Folder
    layout: Layout = "flat"

    def sources(self) -> tuple[Path, ...]:
        return _paths(self.folder)

    def arrays(self) -> DataSet:
        files = _read(self.folder)
        return DataSet(
            _shaped(files.training_images, self.layout),
            files.training_labels,
            _shaped(files.test_images, self.layout),
            files.test_labels,
            CLASSES,
        )


@final
class PhaseMnist(DataRecipe):
    r"""MNIST as phase pairs: real part an image of digit L, imaginary part one of digit 9 - L, label L; the original split.

    Attributes:
      folder: with the four IDX files, gzipped or not.
      pairing: "with_replacement" is the paper's construction (A.6.5): as many records as images, and one image in several of them, so that
        a guarantee per record is not one per image (errata Z19). "disjoint": each image in at most one record, about half as many.
      pairing_seed: public, of the draw with replacement; disjoint pairs go by the order of the files.
      layout: of one record.
    """

    UNIT: ClassVar[str] = "phase_pair"
    DESCRIPTION: ClassVar[str] = (
        "PhaseMNIST from MNIST handwritten digits (LeCun, Cortes and Burges), grey values divided by 255: real part an image of digit L, "
        "imaginary part an image of digit 9 - L from the same side of the original split, label L."
    )

    kind: Literal["phase_mnist"] = "phase_mnist"
    folder: Folder
    pairing: Literal["with_replacement", "disjoint"]
    pairing_seed: SplitSeed = 0
    layout: Layout = "flat"

    def sources(self) -> tuple[Path, ...]:
        return _paths(self.folder)

    def errata(self) -> tuple[str, ...]:
        return ("Z19",) if self.pairing == "with_replacement" else ()

    def describe(self) -> str:
        if self.pairing == "disjoint":
            return f"{self.DESCRIPTION} Pairs are disjoint: every image lies in at most one record. One record is one pair of images."
        most = records_of_one_image(self._pairs(_labels(_paths(self.folder)[1]), "training"))
        return (
            f"{self.DESCRIPTION} The imaginary image is drawn with replacement: one image lies in up to {most} training records, so a "
            "guarantee for one record is not a guarantee for one image (errata Z19). One record is one pair of images."
        )

    def arrays(self) -> DataSet:
        files = _read(self.folder)
        training, training_labels = self._side(files.training_images, files.training_labels, "training")
        test, test_labels = self._side(files.test_images, files.test_labels, "test")
        return DataSet(training, training_labels, test, test_labels, CLASSES)

    def _side(self, images: NDArray[Any], digits: NDArray[Any], side: str) -> tuple[NDArray[Any], NDArray[Any]]:
        real, imaginary, labels = self._pairs(digits, side)
        grey = _shaped(images, self.layout)
        features = np.empty((len(labels), *grey.shape[1:]), dtype=np.complex64)
        features.real, features.imag = grey[real], grey[imaginary]
        return features, labels

    def _pairs(self, digits: NDArray[Any], side: str) -> Pairs:
        if self.pairing == "disjoint":
            return disjoint_pairs(digits)
        return pairs_with_replacement(digits, self.pairing_seed, f"phase pairs, {side}")
