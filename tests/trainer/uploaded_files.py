r"""Small files of every format that may be uploaded, with what is in them."""

from __future__ import annotations

import gzip
import io
import struct
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import numpy as np
import scipy.io

from zetadp.trainer.data.formats import FormatName

RNG = np.random.default_rng(7)
COMPLEX = (RNG.normal(size=(6, 4)) + 1j * RNG.normal(size=(6, 4))).astype(np.complex64)
LABELS = np.arange(6) % 2
Maker = Callable[[Path], None]


def npz(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **(arrays or {"x": COMPLEX, "y": LABELS}))


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.asfortranarray(COMPLEX))


def idx(path: Path) -> None:
    path.write_bytes(struct.pack(">4B2I", 0, 0, 0x0D, 2, 6, 4) + COMPLEX.real.astype(">f4").tobytes())


def idx_gz(path: Path) -> None:
    idx(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def csv(path: Path) -> None:
    rows = "".join(f"{real!r},{label},clinic {label}\n" for real, label in zip(COMPLEX.real[:, 0].tolist(), LABELS, strict=True))
    path.write_text("height,label,place\n" + rows)


def recording(samples: int = 8, rate: int = 8000) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.arange(samples, dtype="<i2").tobytes())
    return stream.getvalue()


def wav_zip(path: Path, *recordings: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(recordings or (recording(),) * 4):
            archive.writestr(f"word{number % 2}/speaker{number // 2}/{number}.wav", content)


def hdf5_file(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("scan/x", data=COMPLEX, compression="gzip", shuffle=True, chunks=(2, 4))
        file.create_dataset("y", data=LABELS, compression="lzf")
        file["words"] = ["a", "b"]


def mat(path: Path) -> None:
    with path.open("wb") as file:
        scipy.io.savemat(file, {"x": COMPLEX, "y": LABELS, "c": np.array(["a"], dtype=object)}, do_compression=True)


def mat73(path: Path) -> None:
    header = b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM"
    with h5py.File(path, "w", userblock_size=512) as file:
        pairs = np.empty((4, 6), np.dtype([("real", "f4"), ("imag", "f4")]))
        pairs["real"], pairs["imag"] = COMPLEX.T.real, COMPLEX.T.imag
        file["x"] = pairs
        file["y"] = LABELS[:, np.newaxis]
    with path.open("r+b") as file:
        file.write(header)


def nifti(path: Path) -> None:
    path.write_bytes(nibabel.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.eye(4)).to_bytes())


def nifti_2_gz(path: Path) -> None:
    path.write_bytes(gzip.compress(nibabel.Nifti2Image(np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.eye(4)).to_bytes()))


WHOLE: dict[str, tuple[FormatName, Maker, dict[str, tuple[tuple[int, ...], str]]]] = {
    "npz": ("npz", npz, {"x": ((6, 4), "complex64"), "y": ((6,), "int64")}),
    "npy": ("npy", npy, {"array": ((6, 4), "complex64")}),
    "idx": ("idx", idx, {"array": ((6, 4), "float32")}),
    "idx gzipped": ("idx", idx_gz, {"array": ((6, 4), "float32")}),
    "csv": ("csv", csv, {"height": ((6,), "float64"), "label": ((6,), "float64"), "place": ((6,), "text")}),
    "wav": ("wav_zip", wav_zip, {"samples": ((4, 8), "float32"), "folder": ((4,), "int64"), "subfolder": ((4,), "int64")}),
    "hdf5": ("hdf5", hdf5_file, {"scan/x": ((6, 4), "complex64"), "y": ((6,), "int64")}),
    "mat": ("mat", mat, {"x": ((6, 4), "complex64"), "y": ((1, 6), "int64")}),
    "mat 7.3": ("mat", mat73, {"x": ((6, 4), "complex64"), "y": ((1, 6), "int64")}),
    "nifti": ("nifti", nifti, {"volume": ((2, 3, 4), "int16")}),
    "nifti 2 gzipped": ("nifti", nifti_2_gz, {"volume": ((2, 3, 4), "float32")}),
}
