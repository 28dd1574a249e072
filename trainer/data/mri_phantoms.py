r"""Synthetic brain MRI: random heads of ellipses, for federated experiments at the paper's size without real data."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.mri_slices import SEQUENCES, Scale, k_space_records
from zetadp.trainer.data.splits import SplitSeed

CHUNK = 4
"""Patients made at once: more memory isn't faster."""
# Brightness of scalp, white matter, grey matter, fluid and lesion (columns) in each sequence (rows), as a radiologist sees it: fluid dark
# in FLAIR and T1w, bright in T2w; a lesion bright in FLAIR and T2w, dark in T1w, and bright with contrast agent.
CONTRAST = np.array(
    [
        [0.55, 0.45, 0.60, 0.10, 0.95],
        [0.90, 0.75, 0.55, 0.20, 0.40],
        [0.95, 0.75, 0.58, 0.22, 0.90],
        [0.60, 0.35, 0.55, 0.98, 0.90],
    ]
)
CONTRAST_SPREAD = 0.2
"""Standard deviation of the logarithm of a tissue's brightness over patients and sequences: scanners differ, so that classes overlap."""
NOISE = 0.06
EDGE = 0.12
"""Width of an ellipse's soft edge, in its own radii: the partial volumes of a coarse pixel."""


@final
class MriPhantoms(DataRecipe):
    r"""Slices of random heads in four pulse sequences, as whitened k-space, every number from ``seed``. Nobody's data.

    A head is nested ellipses: scalp, grey matter, white matter, two ventricles and a lesion, which shrink towards the outer slices. Each
    sequence gives the tissues its own brightness, times a random factor per patient; a smooth shading and noise come on top.

    Attributes:
      patients: to train on; the paper has 484.
      test_patients: others; the paper has 266.
      slices: of each sequence of each patient; the paper has 20.
      resolution: of k-space; the paper has 32.
      magnitudes: "linear" or "log", as in ``mri_sequences``.
      seed: public.

    >>> MriPhantoms(patients=2, test_patients=1, slices=3, seed=0).read().training_features.shape
    (24, 1, 32, 32)
    """

    UNIT: ClassVar[str] = "slice"
    USER_UNIT: ClassVar[str | None] = "patient"
    DESCRIPTION: ClassVar[str] = (
        "SYNTHETIC brain MRI slices of random ellipse heads, not of any person: FLAIR, T1w, T1w with contrast agent and T2w, as centred "
        "unitary 2-D Fourier transform (k-space), whitened slice by slice"
    )

    kind: Literal["mri_phantoms"] = "mri_phantoms"
    patients: Annotated[int, Strict(), Field(ge=1, le=5000)] = 484
    test_patients: Annotated[int, Strict(), Field(ge=1, le=5000)] = 266
    slices: Annotated[int, Strict(), Field(ge=1, le=100)] = 20
    resolution: Annotated[int, Strict(), Field(ge=8, le=128)] = 32
    magnitudes: Scale = "linear"
    seed: SplitSeed

    def describe(self) -> str:
        magnitudes = "" if self.magnitudes == "linear" else ", logarithmic magnitudes"
        return (
            f"{self.DESCRIPTION}, {self.resolution} x {self.resolution}{magnitudes}. One record is one slice; a patient has "
            f"{self.slices * len(SEQUENCES)}. A guarantee for invented patients protects nobody: it shows what one for real ones would be."
        )

    def arrays(self) -> DataSet:
        features, labels, users = self._side(self.patients, "training")
        test, test_labels, _ = self._side(self.test_patients, "test")
        return DataSet(features, labels, test, test_labels, len(SEQUENCES), users)

    def _side(self, patients: int, side: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        stream = RandomStream.from_seed(self.seed, f"phantoms, {side}")
        per_patient = len(SEQUENCES) * self.slices
        features = np.empty((patients * per_patient, 1, self.resolution, self.resolution), dtype=np.complex64)
        for start in range(0, patients, CHUNK):
            count = min(CHUNK, patients - start)
            images = _images(count, self.slices, self.resolution, stream).reshape(-1, self.resolution, self.resolution)
            features[start * per_patient : (start + count) * per_patient] = k_space_records(images, self.resolution, self.magnitudes)
        labels = np.tile(np.repeat(np.arange(len(SEQUENCES)), self.slices), patients)
        return features, labels, np.repeat(np.arange(patients), per_patient)


def _images(patients: int, slices: int, size: int, stream: RandomStream) -> NDArray[Any]:
    """Magnitude images, (patients, sequences, slices, size, size)."""
    tissue = _tissue(patients, slices, size, stream)
    factors = np.exp(CONTRAST_SPREAD * stream.normal(patients * CONTRAST.size)).reshape(patients, *CONTRAST.shape)
    clean = np.einsum("pst,pntyx->psnyx", (CONTRAST * factors).astype(np.float32), tissue, optimize=True)
    axis = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    tilt = 0.3 * stream.normal(patients * len(SEQUENCES) * 2).reshape(patients, len(SEQUENCES), 2).astype(np.float32)
    shading = np.exp(tilt[..., 0, np.newaxis, np.newaxis] * axis[:, np.newaxis] + tilt[..., 1, np.newaxis, np.newaxis] * axis)
    noise = NOISE * stream.normal(clean.size).reshape(clean.shape)
    # A scanner's images are magnitudes: noise never makes them negative.
    return np.abs(clean * shading[:, :, np.newaxis] + noise.astype(np.float32))


def _tissue(patients: int, slices: int, size: int, stream: RandomStream) -> NDArray[Any]:
    """Share of each tissue in each pixel, float32 (patients, slices, tissues, size, size); what is left over is air."""

    def between(low: float, high: float) -> NDArray[Any]:
        """A number a patient, (patients, 1)."""
        return low + (high - low) * stream.uniform(patients)[:, np.newaxis].astype(np.float32)

    # Slices of the middle of a ball: its radius shrinks away from the middle.
    height = np.linspace(-0.6, 0.6, slices, dtype=np.float32)[np.newaxis] + between(-0.15, 0.15)
    shrink = np.sqrt(1.0 - height**2)
    x0, y0, turn = between(-0.08, 0.08), between(-0.08, 0.08), between(-0.2, 0.2)
    wide, tall = between(0.62, 0.78) * shrink, between(0.74, 0.9) * shrink
    ventricle, gap, long = between(0.08, 0.2) * shrink**3, between(0.1, 0.18), between(0.25, 0.4) * shrink**2
    angle, distance, lesion = between(0.0, 2.0 * np.pi), between(0.1, 0.45), between(0.05, 0.22) * shrink
    folds = between(0.68, 0.85)
    pixels = _coordinates(size, x0, y0, turn)
    zero = np.zeros_like(x0)
    scalp = _ellipse(pixels, zero, zero, wide, tall)
    grey = _ellipse(pixels, zero, zero, wide * between(0.82, 0.93), tall * between(0.84, 0.93))
    white = _ellipse(pixels, zero, zero, wide * folds, tall * folds)
    fluid = np.maximum(_ellipse(pixels, gap, zero, ventricle, long), _ellipse(pixels, -gap, zero, ventricle, long))
    tumour = _ellipse(pixels, distance * np.cos(angle), distance * np.sin(angle), lesion, lesion)
    # Inner tissue covers outer: what is left of each is what the ones inside leave free.
    shares: list[NDArray[Any]] = []
    free = np.ones_like(scalp)
    for inner in (tumour, fluid, white, grey, scalp):
        shares.append(free * inner)
        free = free * (1.0 - inner)
    lesion_share, fluid_share, white_share, grey_share, scalp_share = shares
    return np.stack((scalp_share, white_share, grey_share, fluid_share, lesion_share), axis=2)


def _coordinates(size: int, x0: NDArray[Any], y0: NDArray[Any], turn: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each patient's own coordinates of the pixels, (patients, 1, size, size) each; offsets and turn are (patients, 1)."""
    axis = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    x, y = axis - x0[..., np.newaxis, np.newaxis], axis[:, np.newaxis] - y0[..., np.newaxis, np.newaxis]
    cosine, sine = np.cos(turn)[..., np.newaxis, np.newaxis], np.sin(turn)[..., np.newaxis, np.newaxis]
    return cosine * x + sine * y, cosine * y - sine * x


def _ellipse(
    pixels: tuple[NDArray[Any], NDArray[Any]], x0: NDArray[Any], y0: NDArray[Any], wide: NDArray[Any], tall: NDArray[Any]
) -> NDArray[Any]:
    """Soft indicator of an ellipse in each slice, float32 (patients, slices, size, size); parameters are (patients, 1 or slices)."""
    x, y = pixels
    x0, y0, wide, tall = (value[..., np.newaxis, np.newaxis] for value in (x0, y0, wide, tall))
    radius = np.sqrt(((x - x0) / wide) ** 2 + ((y - y0) / tall) ** 2)
    return np.clip(0.5 + (1.0 - radius) / (2.0 * EDGE), 0.0, 1.0)
