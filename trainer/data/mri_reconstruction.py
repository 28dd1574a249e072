r"""Single-coil MRI reconstruction from undersampled k-space (zeta-DP paper, A.6.4), from slices or fastMRI's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import OpenProbability
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataRecipe, DataSet, SplitRule
from zetadp.trainer.data.files.location import Folder, file_of, files_of, folder_of
from zetadp.trainer.data.files.mri_files import FastMriFile, open_fastmri, read_fastmri_slice, read_slices
from zetadp.trainer.data.files.stored import DataSetOnDisk, Pair, SomeRecords, StoredRecords
from zetadp.trainer.data.mri_slices import ARCHIVE
from zetadp.trainer.data.spectra import centre, to_image, to_k_space
from zetadp.trainer.data.splits import Keys, SplitSeed, name_keys, record_keys, sides
from zetadp.trainer.data.undersampling import cartesian_mask, smooth_phase, zero_filled

TRAINING, VALIDATION = "singlecoil_train", "singlecoil_val"
"""fastMRI's folders."""


@final
@dataclass(frozen=True)
class Pairs:
    r"""From k-space to a record: the zero-filled image and the full one, both complex64 (size, size); see ``MriReconstruction``."""

    mask_seed: int
    acceleration: float
    centre_fraction: float
    size: int

    def of(self, k_space: NDArray[Any], key: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """``key``: of the record's own measurements (``record_keys``)."""
        stream = RandomStream.from_seed(self.mask_seed, f"mask of {key}")
        self.check(k_space.shape)
        mask = cartesian_mask(k_space.shape[1], self.acceleration, self.centre_fraction, stream)
        image = centre(zero_filled(k_space, mask), self.size, self.size)
        largest = np.abs(image).max()
        scale = 1.0 / largest if largest > 0.0 else 1.0
        full = centre(to_image(k_space), self.size, self.size) * scale
        return (image * scale).astype(np.complex64), full.astype(np.complex64)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises InvalidParameter if images of this (height, width) are too small."""
        if min(shape) < self.size:
            raise InvalidParameter("size", f"at most the images' {min(shape)}", self.size)


@final
class FastMriRecords(StoredRecords):
    r"""The middle slices of each file, at most ``slices`` of them where it isn't None.

    Attributes:
      patients: whose each slice is, (records,).
    """

    def __init__(self, files: Sequence[FastMriFile], slices: int | None, pairs: Pairs) -> None:
        for file in files:
            pairs.check(file.shape[1:])
        self._files, self._pairs = files, pairs
        kept = [file.shape[0] if slices is None else min(slices, file.shape[0]) for file in files]
        self._places = [
            (file, (file.shape[0] - count) // 2 + number) for file, count in zip(files, kept, strict=True) for number in range(count)
        ]
        self.patients = np.repeat([file.patient for file in files], kept)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._places), 1, self._pairs.size, self._pairs.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.complex64)

    def read(self, numbers: NDArray[np.intp]) -> Pair:
        features, targets = (np.empty((len(numbers), *self.shape[1:]), self.dtype) for _ in range(2))
        for row, number in enumerate(numbers.tolist()):
            k_space = read_fastmri_slice(*self._places[number])
            features[row, 0], targets[row, 0] = self._pairs.of(k_space, int(record_keys(k_space[np.newaxis])[0]))
        return features, targets


@final
class MriReconstruction(DataRecipe):
    r"""From the zero-filled image of a quarter of k-space's columns to the image of all of them, both complex.

    Both are divided by the largest magnitude of the zero-filled image, a number of this record alone. Masks and phases are drawn once, from
    a public seed and the record's own measurements: those of others don't change them.

    Attributes:
      folder: with the archive of slices, or fastMRI's ``singlecoil_train`` (and ``singlecoil_val``) of HDF5 files.
      source: "slices": magnitude images times a smooth random phase each; split by patient. "fastmri": measured k-space;
        ``singlecoil_val`` is the test where there is one, else a split by patient.
      size: of the square image kept, from its middle; None for fastMRI's 320, or the whole slice.
      slices_per_volume: of fastMRI, from the middle of each volume; None for all.
      acceleration: columns of k-space to columns expected to be measured; > 1.
      centre_fraction: of the columns, always measured; below 1 / acceleration.
      mask_seed: public, of the masks and phases.
      split_seed: of the public split by patient.
      test_fraction: of the patients, where they are split.
    """

    UNIT: ClassVar[str] = "slice"
    USER_UNIT: ClassVar[str | None] = "patient"
    DESCRIPTION: ClassVar[str] = (
        "zero-filled complex image of undersampled Cartesian single-coil k-space, to be turned into the image of the full k-space; both "
        "divided by the zero-filled image's largest magnitude"
    )

    kind: Literal["mri_reconstruction"] = "mri_reconstruction"
    folder: Folder
    source: Literal["slices", "fastmri"] = "slices"
    size: Annotated[int, Strict(), Field(ge=8, le=640)] | None = None
    slices_per_volume: Annotated[int, Strict(), Field(ge=1, le=1000)] | None = None
    acceleration: Annotated[float, Strict(), Field(gt=1.0, le=64.0, allow_inf_nan=False)] = 4.0
    centre_fraction: OpenProbability = 0.08
    mask_seed: SplitSeed = 0
    split_seed: SplitSeed
    test_fraction: OpenProbability

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.centre_fraction * self.acceleration >= 1.0:
            raise InvalidParameter("centre_fraction", f"below 1 / acceleration = {1.0 / self.acceleration!r}", self.centre_fraction)
        return self

    def describe(self) -> str:
        names = {
            "slices": "Axial brain MRI slices (Lesjak et al. 2016 and 2017), each times a smooth random phase",
            "fastmri": "fastMRI single-coil k-space (Zbontar et al. 2018)",
        }
        return (
            f"{names[self.source]}: {self.DESCRIPTION}. {self.acceleration!r} times fewer columns, the middle {self.centre_fraction!r} of "
            "them always measured, the others at random. Training and test patients are different people. One record is one slice; a "
            "patient has many."
        )

    def split_rule(self) -> SplitRule:
        return "users"

    def sources(self) -> tuple[Path, ...]:
        if self.source == "slices":
            return (file_of(self.folder, ARCHIVE),)
        held_out = files_of(self.folder, f"{VALIDATION}/*.h5") if (folder_of(self.folder) / VALIDATION).is_dir() else ()
        return (*files_of(self.folder, f"{TRAINING}/*.h5"), *held_out)

    def arrays(self) -> DataSet:
        if (stored := self.on_disk()) is not None:
            return DataSet(*stored.training.whole(), *stored.test.whole(), None, stored.training_users)
        slices = read_slices(self.sources()[0])
        size = min(slices.images.shape[1:]) if self.size is None else self.size
        keys, pairs = record_keys(slices.images), Pairs(self.mask_seed, self.acceleration, self.centre_fraction, size)
        features, targets = (np.empty((len(keys), 1, size, size), dtype=np.complex64) for _ in range(2))
        for number, k_space in enumerate(self._with_phase(slices.images, keys)):
            features[number, 0], targets[number, 0] = pairs.of(k_space, int(keys[number]))
        users = name_keys(slices.patients)
        training, test = sides(users, self.split_seed, self.test_fraction)
        return DataSet(features[training], targets[training], features[test], targets[test], None, users[training])

    def on_disk(self) -> DataSetOnDisk | None:
        if self.source == "slices":
            return None
        files = self.sources()
        training = self._volumes([path for path in files if path.parent.name == TRAINING])
        users = name_keys(training.patients)
        if all(path.parent.name == TRAINING for path in files):
            kept, held = sides(users, self.split_seed, self.test_fraction)
            return DataSetOnDisk(SomeRecords(training, kept), SomeRecords(training, held), None, users[kept])
        test = self._volumes([path for path in files if path.parent.name != TRAINING])
        if np.isin(training.patients, test.patients).any():
            raise InvalidParameter("data.folder", f"a folder whose {VALIDATION} has none of the training patients", self.folder)
        return DataSetOnDisk(training, test, None, users)

    def _volumes(self, paths: list[Path]) -> FastMriRecords:
        pairs = Pairs(self.mask_seed, self.acceleration, self.centre_fraction, 320 if self.size is None else self.size)
        return FastMriRecords([open_fastmri(path) for path in paths], self.slices_per_volume, pairs)

    def _with_phase(self, images: NDArray[Any], keys: Keys) -> Iterator[NDArray[Any]]:
        """Full k-space of magnitude images."""
        for image, key in zip(images, keys, strict=True):
            stream = RandomStream.from_seed(self.mask_seed, f"coil phase of {key}")
            yield to_k_space(image * smooth_phase(image.shape[0], image.shape[1], stream))
