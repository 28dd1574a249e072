r"""Untrusted MRI files: slices in a NumPy archive, NIfTI volumes, fastMRI's HDF5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.archives import npz_arrays
from zetadp.trainer.data.files.location import Stamp, stamps
from zetadp.trainer.data.files.stored import UNCHANGED

LARGEST_VOLUME = 2**31
"""Bytes of one volume in memory."""


class Slices(NamedTuple):
    """Magnitude images (slices, height, width) of any number type, labels and patients int64 (slices,), and the classes' names."""

    images: NDArray[Any]
    labels: NDArray[Any]
    patients: NDArray[Any]
    classes: tuple[str, ...]


def read_slices(path: Path) -> Slices:
    """An archive with x (slices, height, width), y and patient (slices,), and classes (names,).

    Raises:
      InvalidParameter: other arrays, or labels that name no class.
    """
    x, y, patient, classes = npz_arrays(path, ("x", "y", "patient", "classes")).values()
    if x.ndim != 3 or x.dtype.kind not in "uif" or y.shape != (len(x),) or patient.shape != (len(x),) or classes.dtype.kind != "U":
        expected = "x (slices, height, width), y (slices,), patient (slices,) and classes (names,)"
        raise InvalidParameter(path.name, expected, (x.shape, y.shape, patient.shape, classes.dtype.str))
    labels = y.astype(np.int64)
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= len(classes):
        raise InvalidParameter(path.name, f"a file with labels in 0 .. {len(classes) - 1}", "labels outside, or none")
    return Slices(x, labels, patient.astype(np.int64), tuple(classes.tolist()))


def read_nifti(path: Path, slices: int, sequences: int) -> NDArray[Any]:
    """The middle slices of a 4-D NIfTI volume (height, width, slices, sequences): float32 (sequences, slices, height, width).

    Raises:
      InvalidParameter: it isn't one, is cut off, too large, or has other sequences or too few slices.
    """
    import nibabel  # a quarter of a second to import, and only these files need it

    try:
        volume = nibabel.Nifti1Image.from_filename(path)
        shape = volume.shape
        if len(shape) != 4 or shape[3] != sequences or shape[2] < slices or 8 * math.prod(shape) > LARGEST_VOLUME:
            raise InvalidParameter(
                path.name, f"of shape (height, width, {slices} or more, {sequences}), at most {LARGEST_VOLUME} bytes", shape
            )
        start = (shape[2] - slices) // 2
        middle = np.asarray(volume.dataobj[:, :, start : start + slices, :], dtype=np.float32)
    except InvalidParameter:
        raise
    except Exception as error:  # nibabel raises whatever a broken file makes it stumble on
        raise InvalidParameter(path.name, "a whole NIfTI volume", str(error) or type(error).__name__) from error
    return np.ascontiguousarray(middle.transpose(3, 2, 0, 1))


class FastMriFile(NamedTuple):
    """A single-coil fastMRI file as far as its header says: k-space is (slices, height, width); whose it is, and when it was changed."""

    path: Path
    shape: tuple[int, int, int]
    patient: str
    stamp: Stamp


def open_fastmri(path: Path) -> FastMriFile:
    """What is known of a file without reading k-space. Raises InvalidParameter if it isn't one, or is too large."""
    stamp = stamps((path,))[0]
    with _k_space_of(path) as k_space:
        patient = k_space.file.attrs.get("patient_id", path.stem)
        return FastMriFile(path, k_space.shape, patient.decode() if isinstance(patient, bytes) else str(patient), stamp)


def read_fastmri_slice(file: FastMriFile, number: int) -> NDArray[Any]:
    """K-space of one slice, complex64 (height, width). Raises InvalidParameter if the file is cut off, or has changed."""
    with _k_space_of(file.path) as k_space:
        found = k_space[number]
    if stamps((file.path,))[0] != file.stamp:
        raise InvalidParameter(file.path.name, UNCHANGED, "a file that changed")
    return found


@contextmanager
def _k_space_of(path: Path) -> Iterator[Any]:
    """HDF5's data set. Nothing is followed out of the file: links, external storage and virtual data sets are refused."""
    import h5py  # a tenth of a second to import, and only these files need it

    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("kspace", getlink=True), h5py.HardLink):
                raise InvalidParameter(path.name, "a file that itself contains the data set kspace, not a link to it", "a link, or none")
            k_space = file["kspace"]
            if not isinstance(k_space, h5py.Dataset) or k_space.external is not None or k_space.is_virtual:
                raise InvalidParameter(
                    path.name, "a file with kspace as a plain data set stored in the file itself", type(k_space).__name__
                )
            if k_space.ndim != 3 or k_space.dtype != np.complex64 or k_space.nbytes > LARGEST_VOLUME or not k_space.size:
                expected = f"a file with kspace complex64 (slices, height, width) of at most {LARGEST_VOLUME} bytes"
                raise InvalidParameter(path.name, expected, (k_space.dtype.name, k_space.shape))
            yield k_space
    except InvalidParameter:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise InvalidParameter(path.name, "a whole HDF5 file of fastMRI", str(error)) from error
