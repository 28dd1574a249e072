r"""MNIST, PhaseMNIST and CIFAR-10 from small files of their formats, and what is refused of bad ones."""

from __future__ import annotations

import gzip
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, Cifar10, Mnist, PhaseMnist, facts_of
from zetadp.trainer.data.files.archives import npz_arrays, zip_files
from zetadp.trainer.data.pairing import pairs_with_replacement, records_of_one_image

LABELS = np.tile(np.arange(10, dtype=np.uint8), 4)
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
IMAGE_FILE = "train-images-idx3-ubyte.gz"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def _idx(magic: int, array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(root: Path) -> Path:
    for side in ("train", "t10k"):
        (root / f"{side}-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(2051, IMAGES)))
        (root / f"{side}-labels-idx1-ubyte").write_bytes(_idx(2049, LABELS))
    return root


def test_mnist_is_grey_values_between_zero_and_one(mnist: Path) -> None:
    data = Mnist(folder="set").read()
    assert data.training_features.dtype == np.float32
    assert np.array_equal(np.round(data.training_features * 255.0), IMAGES.reshape(40, 784))
    assert np.array_equal(data.training_targets, LABELS)


def test_mnist_for_convolution_has_one_channel(mnist: Path) -> None:
    spec = Mnist(folder="set", layout="image")
    assert facts_of(spec, spec.read()).shape == (1, 28, 28)


def test_phase_pairs_with_replacement_have_every_image_once_as_real_part(mnist: Path) -> None:
    data = PhaseMnist(folder="set", pairing="with_replacement").read()
    assert np.array_equal(np.round(data.training_features.real * 255.0), IMAGES.reshape(40, 784))
    assert np.array_equal(data.training_targets, LABELS)
    source = {image.tobytes(): label for image, label in zip(IMAGES.reshape(40, 784), LABELS, strict=True)}
    imaginary = [source[image.tobytes()] for image in np.round(data.training_features.imag * 255.0).astype(np.uint8)]
    assert (np.array(imaginary) + data.training_targets == 9).all()


def test_phase_pairs_with_replacement_follow_their_seed(mnist: Path) -> None:
    first, again, other = (PhaseMnist(folder="set", pairing="with_replacement", pairing_seed=seed).read() for seed in (0, 0, 1))
    assert np.array_equal(first.training_features, again.training_features)
    assert not np.array_equal(first.training_features, other.training_features)


def test_disjoint_phase_pairs_use_no_image_twice(mnist: Path) -> None:
    data = PhaseMnist(folder="set", pairing="disjoint").read()
    used = [image.tobytes() for half in (data.training_features.real, data.training_features.imag) for image in half]
    assert len(used) == len(set(used)) == 40


def test_description_of_pairs_with_replacement_says_how_often_an_image_is_used(mnist: Path) -> None:
    spec = PhaseMnist(folder="set", pairing="with_replacement")
    most = records_of_one_image(pairs_with_replacement(LABELS.astype(np.int64), 0, "phase pairs, training"))
    assert most > 1
    assert f"one image lies in up to {most} training records" in spec.describe()
    assert "(errata Z19)" in spec.describe()


def test_images_drawn_with_replacement_are_uniform() -> None:
    digits = np.repeat([4, 5], [30000, 10])
    _, imaginary, _ = pairs_with_replacement(digits, 1, "test")
    counts = np.bincount(imaginary[:30000] - 30000, minlength=10)
    # 3000 each, standard deviation 52.
    assert np.abs(counts - 3000).max() < 260


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGE_FILE, lambda _: gzip.compress(_idx(2049, LABELS)), "an IDX file with magic number 2051"),
        (IMAGE_FILE, lambda raw: raw[:-200], "a whole IDX file"),
        (IMAGE_FILE, lambda _: b"no gzip", "a whole IDX file"),
        (IMAGE_FILE, lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "as long as its header says"),
        (IMAGE_FILE, lambda raw: gzip.compress(gzip.decompress(raw) + b"\0"), "as long as its header says"),
        (IMAGE_FILE, lambda _: gzip.compress(struct.pack(">4I", 2051, 2**31, 28, 28)), "bytes unpacked"),
        (IMAGE_FILE, lambda _: gzip.compress(b""), "an IDX file with magic number 2051"),
        (IMAGE_FILE, lambda _: gzip.compress(_idx(2051, IMAGES[:39])), "as many images as labels, 40"),
        ("t10k-labels-idx1-ubyte", lambda _: _idx(2049, np.full(40, 10, dtype=np.uint8)), r"labels in 0 \.\. 9"),
        ("train-labels-idx1-ubyte", lambda _: _idx(2049, np.full(40, 3, dtype=np.uint8)), "each occurring at least once"),
    ],
)
def test_broken_mnist_files_are_refused(mnist: Path, name: str, change: Callable[[bytes], bytes], message: str) -> None:
    (mnist / name).write_bytes(change((mnist / name).read_bytes()))
    with pytest.raises(InvalidParameter, match=message):
        PhaseMnist(folder="set", pairing="disjoint").read()


def _cifar(images: int) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(images).integers(0, 256, (images, 3, 32, 32), dtype=np.uint8), np.arange(images, dtype=np.uint8) % 10


def _binary(path: Path, images: int) -> None:
    x, y = _cifar(images)
    path.write_bytes(np.concatenate((y[:, np.newaxis], x.reshape(images, -1)), axis=1).tobytes())


@pytest.fixture
def cifar(root: Path) -> Path:
    for name, images in (("data_batch_1", 12), ("data_batch_2", 11), ("test_batch", 10)):
        _binary(root / f"{name}.bin", images)
    return root


def test_binary_batches_and_the_archive_give_the_same_arrays(cifar: Path) -> None:
    from_batches = Cifar10(folder="set", numbers="real").read()
    x, y = (np.concatenate(parts) for parts in zip(_cifar(12), _cifar(11), strict=True))
    np.savez_compressed(
        cifar / "all.npz", x_train=x.transpose(0, 2, 3, 1), y_train=y, x_test=_cifar(10)[0].transpose(0, 2, 3, 1), y_test=_cifar(10)[1]
    )
    from_archive = Cifar10(folder="set", numbers="real").read()
    assert np.array_equal(from_batches.training_features, from_archive.training_features)
    assert np.array_equal(from_batches.test_targets, from_archive.test_targets)
    assert from_batches.training_features == pytest.approx(x / 127.5 - 1.0, abs=1e-6)


@pytest.mark.parametrize(("imaginary", "factor"), [("zero", 0.0), ("copy", 1.0)])
def test_imaginary_part_is_zero_or_a_copy(cifar: Path, imaginary: str, factor: float) -> None:
    features = Cifar10.model_validate({"folder": "set", "numbers": "complex", "imaginary": imaginary}).read().training_features
    assert features.dtype == np.complex64
    assert np.array_equal(features.imag, factor * features.real)


def test_real_numbers_have_no_imaginary_part_to_copy() -> None:
    with pytest.raises(ValidationError, match="imaginary must be zero for numbers real"):
        Cifar10(folder="set", numbers="real", imaginary="copy")


def test_pickles_are_never_opened(root: Path) -> None:
    for name in ("data_batch_1", "test_batch"):
        (root / name).write_bytes(pickle.dumps({"data": 1}))
    with pytest.raises(InvalidParameter, match="Python pickles can run code and are never opened"):
        Cifar10(folder="set", numbers="real").read()


def test_batch_that_is_cut_off_is_refused(cifar: Path) -> None:
    raw = (cifar / "data_batch_2.bin").read_bytes()
    (cifar / "data_batch_2.bin").write_bytes(raw[:-1])
    with pytest.raises(InvalidParameter, match="whole records of 3073 bytes"):
        Cifar10(folder="set", numbers="real").read()


def test_label_out_of_range_is_refused(cifar: Path) -> None:
    raw = bytearray((cifar / "test_batch.bin").read_bytes())
    raw[0] = 10
    (cifar / "test_batch.bin").write_bytes(bytes(raw))
    with pytest.raises(InvalidParameter, match=r"test labels must be in 0 \.\. 9"):
        Cifar10(folder="set", numbers="real").read()


def test_missing_test_batch_is_named(cifar: Path) -> None:
    (cifar / "test_batch.bin").unlink()
    with pytest.raises(InvalidParameter, match=r"test_batch\.bin"):
        Cifar10(folder="set", numbers="real").read()


def _member(header: dict[str, object], body: bytes) -> bytes:
    text = repr(header).encode()
    padded = text + b" " * (63 - (10 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + body


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (_member({"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)}, b"12345678"), "as long as its header says"),
        (_member({"descr": "|O", "fortran_order": False, "shape": (1,)}, pickle.dumps([1])), "never unpickled"),
        (b"no array", "a whole NumPy archive"),
    ],
)
def test_archive_with_a_forged_array_is_refused(tmp_path: Path, member: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(InvalidParameter, match=message):
        npz_arrays(tmp_path / "x.npz", ("x",))


def test_archive_gives_arrays_back_in_either_order(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4)
    np.savez_compressed(tmp_path / "x.npz", c=array, fortran=np.asfortranarray(array))
    read = npz_arrays(tmp_path / "x.npz", ("c", "fortran"))
    assert all(np.array_equal(read[name], array) for name in read)


def test_archive_without_an_array_names_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    with pytest.raises(InvalidParameter, match="none of b"):
        npz_arrays(tmp_path / "x.npz", ("a", "b"))


def test_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(1000))
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:-100])
    with pytest.raises(InvalidParameter, match="a whole NumPy archive"):
        npz_arrays(tmp_path / "x.npz", ("a",))


@pytest.mark.parametrize("name", ["../x.wav", "/x.wav", "a/../../x.wav", "C:/x.wav"])
def test_archive_with_a_name_that_leaves_it_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, b"1")
    with pytest.raises(InvalidParameter, match="names stay inside"):
        list(zip_files(tmp_path / "x.zip", lambda _: True))


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.wav", bytes(2**22 + 1))
    with pytest.raises(InvalidParameter, match="files of at most 4194304 bytes"):
        list(zip_files(tmp_path / "x.zip", lambda _: True))
