r"""Single-coil MRI reconstruction from undersampled k-space (zeta-DP paper, A.6.4), from slices or fastMRI's files."""

from __future__ import annotations

from collections.abc import Iterator
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
from zetadp.trainer.data.files.mri_files import read_fastmri, read_slices
from zetadp.trainer.data.mri_slices import ARCHIVE
from zetadp.trainer.data.spectra import centre, to_image, to_k_space
from zetadp.trainer.data.splits import Keys, SplitSeed, name_keys, record_keys, sides
from zetadp.trainer.data.undersampling import cartesian_mask, smooth_phase, zero_filled

TRAINING, VALIDATION = "singlecoil_train", "singlecoil_val"
"""fastMRI's folders."""


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
        if self.source == "slices":
            slices = read_slices(self.sources()[0])
            size = min(slices.images.shape[1:]) if self.size is None else self.size
            keys = record_keys(slices.images)
            features, targets = self._pairs(self._with_phase(slices.images, keys), keys, size)
            return self._split(features, targets, slices.patients)
        files = self.sources()
        training = [path for path in files if path.parent.name == TRAINING]
        features, targets, patients = self._volumes(training)
        if len(training) == len(files):
            return self._split(features, targets, patients)
        test, test_targets, others = self._volumes([path for path in files if path.parent.name != TRAINING])
        if np.isin(patients, others).any():
            raise InvalidParameter("data.folder", f"a folder whose {VALIDATION} has none of the training patients", self.folder)
        return DataSet(features, targets, test, test_targets, None, name_keys(patients))

    def _with_phase(self, images: NDArray[Any], keys: Keys) -> Iterator[NDArray[Any]]:
        """Full k-space of magnitude images."""
        for image, key in zip(images, keys, strict=True):
            stream = RandomStream.from_seed(self.mask_seed, f"coil phase of {key}")
            yield to_k_space(image * smooth_phase(image.shape[0], image.shape[1], stream))

    def _volumes(self, paths: list[Path]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Features, targets and patients' names of fastMRI's files."""
        size = 320 if self.size is None else self.size
        parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
        patients: list[str] = []
        for path in paths:
            k_space, patient = read_fastmri(path, self.slices_per_volume)
            parts.append(self._pairs(iter(k_space), record_keys(k_space), size))
            patients += [patient] * len(k_space)
        features, targets = (np.concatenate(side) for side in zip(*parts, strict=True))
        return features, targets, np.array(patients)

    def _pairs(self, k_spaces: Iterator[NDArray[Any]], keys: Keys, size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Zero-filled and full images, complex64 (records, 1, size, size)."""
        features, targets = (np.empty((len(keys), 1, size, size), dtype=np.complex64) for _ in range(2))
        for number, (k_space, key) in enumerate(zip(k_spaces, keys, strict=True)):
            stream = RandomStream.from_seed(self.mask_seed, f"mask of {key}")
            if min(k_space.shape) < size:
                raise InvalidParameter("size", f"at most the images' {min(k_space.shape)}", size)
            mask = cartesian_mask(k_space.shape[1], self.acceleration, self.centre_fraction, stream)
            image = centre(zero_filled(k_space, mask), size, size)
            largest = np.abs(image).max()
            scale = 1.0 / largest if largest > 0.0 else 1.0
            features[number, 0], targets[number, 0] = image * scale, centre(to_image(k_space), size, size) * scale
        return features, targets

    def _split(self, features: NDArray[Any], targets: NDArray[Any], patients: NDArray[Any]) -> DataSet:
        users = name_keys(patients)
        training, test = sides(users, self.split_seed, self.test_fraction)
        return DataSet(features[training], targets[training], features[test], targets[test], None, users[training])
