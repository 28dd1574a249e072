r"""MRI pulse sequences classified in k-space (Riess et al. 2024, section 5), from slices or the Medical Segmentation Decathlon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from zetadp.mechanisms.base import OpenProbability
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet, SplitRule
from zetadp.trainer.data.files.location import Folder, file_of, files_of, folder_of
from zetadp.trainer.data.files.mri_files import read_nifti, read_slices
from zetadp.trainer.data.spectra import centre, to_k_space, whitened
from zetadp.trainer.data.splits import SplitSeed, name_keys, sides

ARCHIVE = "brain_slices_128.npz"
SEQUENCES = ("FLAIR", "T1w", "T1wGD", "T2w")
"""Of the Decathlon's brain volumes, in the order of their fourth axis."""
Resolution = Annotated[int, Strict(), Field(ge=8, le=256)]
Scale = Literal["linear", "log"]


def k_space_records(images: NDArray[Any], resolution: int, scale: Scale) -> NDArray[Any]:
    """Whitened centred k-space of each slice, complex64 (slices, 1, resolution, resolution).

    Cutting k-space to its middle is how a scanner would measure the same head at a lower resolution. ``log`` replaces each number's
    magnitude r by log(1 + r / s), s the slice's own root mean square: k-space spans many orders of magnitude.

    Args:
      images: real, (slices, height, width), height and width at least ``resolution``.
      resolution: of the result.
      scale: of magnitudes; "linear" is the paper's.
    """
    k_space = centre(to_k_space(images), resolution, resolution)
    if scale == "log":
        magnitude = np.abs(k_space)
        spread = np.sqrt((magnitude**2).mean(axis=(1, 2), keepdims=True))
        # An empty slice stays zero.
        k_space = k_space * (np.log1p(magnitude / np.maximum(spread, 1e-30)) / np.maximum(magnitude, 1e-30))
    return whitened(k_space)[:, np.newaxis]


@final
class MriSequences(DataRecipe):
    r"""Brain slices in k-space with their pulse sequence as label; the user unit is the patient.

    Attributes:
      folder: with the archive of slices, or the Decathlon's ``imagesTr`` (and ``imagesTs``) of 4-D NIfTI volumes, one a patient.
      source: "slices": classes FLAIR, T1w, T2w; split by patient. "decathlon": FLAIR, T1w, T1wGD, T2w; ``imagesTs`` is the test where
        there is one, else a split by patient.
      slices_per_volume: of the Decathlon, from the middle of each volume; the paper has 20.
      resolution: of k-space; the paper has 32.
      magnitudes: "linear" as in the paper, or "log".
      split_seed: of the public split by patient.
      test_fraction: of the patients, where they are split.
    """

    UNIT: ClassVar[str] = "slice"
    USER_UNIT: ClassVar[str | None] = "patient"
    DESCRIPTION: ClassVar[str] = "the middle of the centred unitary 2-D Fourier transform (k-space), whitened slice by slice"

    kind: Literal["mri_sequences"] = "mri_sequences"
    folder: Folder
    source: Literal["slices", "decathlon"] = "slices"
    slices_per_volume: Annotated[int, Strict(), Field(ge=1, le=1000)] = 20
    resolution: Resolution = 32
    magnitudes: Scale = "linear"
    split_seed: SplitSeed
    test_fraction: OpenProbability

    def describe(self) -> str:
        names = {
            "slices": "Axial brain MRI slices of patients with multiple sclerosis (Lesjak et al. 2016 and 2017), FLAIR, T1w and T2w",
            "decathlon": "Brain MRI of the Medical Segmentation Decathlon (Antonelli et al. 2022), FLAIR, T1w, T1w with contrast agent and "
            f"T2w, {self.slices_per_volume} slices from each volume's middle",
        }
        magnitudes = "" if self.magnitudes == "linear" else ", logarithmic magnitudes"
        return (
            f"{names[self.source]}: {self.DESCRIPTION}, {self.resolution} x {self.resolution}{magnitudes}. "
            "Training and test patients are different people. One record is one slice; a patient has many."
        )

    def split_rule(self) -> SplitRule:
        return "users"

    def sources(self) -> tuple[Path, ...]:
        if self.source == "slices":
            return (file_of(self.folder, ARCHIVE),)
        held_out = files_of(self.folder, "imagesTs/*.nii.gz") if (folder_of(self.folder) / "imagesTs").is_dir() else ()
        return (*files_of(self.folder, "imagesTr/*.nii.gz"), *held_out)

    def arrays(self) -> DataSet:
        if self.source == "slices":
            slices = read_slices(self.sources()[0])
            smallest = min(slices.images.shape[1:])
            if smallest < self.resolution:
                raise InvalidParameter("resolution", f"at most the slices' {smallest}", self.resolution)
            features = k_space_records(slices.images, self.resolution, self.magnitudes)
            return self._split(features, slices.labels, slices.patients, len(slices.classes))
        files = self.sources()
        training = [path for path in files if path.parent.name == "imagesTr"]
        if {path.name for path in training} & {path.name for path in files[len(training) :]}:
            raise InvalidParameter("data.folder", "a folder whose imagesTs has none of the training patients", self.folder)
        features, labels, patients = self._volumes(training)
        if len(training) == len(files):
            return self._split(features, labels, patients, len(SEQUENCES))
        test, test_labels, _ = self._volumes([path for path in files if path.parent.name != "imagesTr"])
        return DataSet(features, labels, test, test_labels, len(SEQUENCES), name_keys(patients))

    def _volumes(self, paths: list[Path]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Features, labels and patients of the Decathlon's volumes, one volume a patient."""
        per_volume = self.slices_per_volume * len(SEQUENCES)
        features = np.empty((len(paths) * per_volume, 1, self.resolution, self.resolution), dtype=np.complex64)
        for number, path in enumerate(paths):
            volume = read_nifti(path, self.slices_per_volume, len(SEQUENCES))
            if min(volume.shape[2:]) < self.resolution:
                raise InvalidParameter("resolution", f"at most the slices' {min(volume.shape[2:])} ({path.name})", self.resolution)
            images = volume.reshape(-1, *volume.shape[2:])
            features[number * per_volume : (number + 1) * per_volume] = k_space_records(images, self.resolution, self.magnitudes)
        labels = np.tile(np.repeat(np.arange(len(SEQUENCES)), self.slices_per_volume), len(paths))
        return features, labels, np.repeat([path.name for path in paths], per_volume)

    def _split(self, features: NDArray[Any], labels: NDArray[Any], patients: NDArray[Any], classes: int) -> DataSet:
        users = name_keys(patients)
        training, test = sides(users, self.split_seed, self.test_fraction)
        return DataSet(features[training], labels[training], features[test], labels[test], classes, users[training])
