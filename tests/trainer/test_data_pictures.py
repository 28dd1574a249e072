r"""CIFAR-100, CUB and CelebA from small folders of their forms, whose pictures Pillow writes and whose tables and records NumPy writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, CelebA, Cifar100, Cub, facts_of

RECORD = np.dtype([("coarse", "u1"), ("fine", "u1"), ("image", "u1", (3, 32, 32))])
"""Of CIFAR-100's binary version."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def cifar100(root: Path) -> np.ndarray:
    records = np.zeros(200, dtype=RECORD)
    records["fine"] = np.arange(200) % 100
    records["coarse"] = records["fine"] // 5
    records["image"] = np.random.default_rng(0).integers(0, 256, (200, 3, 32, 32))
    records.tofile(root / "train.bin")
    records[:100].tofile(root / "test.bin")
    return records


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100s_binary_version_and_an_archive_are_the_same(root: Path, labels: str, classes: int) -> None:
    records = cifar100(root)
    spec = Cifar100.model_validate({"folder": "set", "labels": labels, "numbers": "real"})
    data = spec.read()
    assert data.classes == classes
    assert np.array_equal(data.training_targets, records[labels])
    assert np.array_equal(np.round((data.training_features + 1.0) * 127.5), records["image"])
    last = np.moveaxis(records["image"], 1, -1)
    np.savez(root / "all.npz", x_train=last, y_train=records[labels], x_test=last[:100], y_test=records[labels][:100])
    assert facts_of(spec, spec.read()).sha256 == facts_of(spec, data).sha256


def test_cifar100_as_complex_numbers(root: Path) -> None:
    cifar100(root)
    data = Cifar100(folder="set", labels="fine", numbers="complex", imaginary="copy").read()
    assert np.array_equal(data.training_features.real, data.training_features.imag)


def test_cifar100s_other_files_are_refused(root: Path) -> None:
    spec = Cifar100(folder="set", labels="fine", numbers="real")
    (root / "train").write_bytes(b"a pickle")
    with pytest.raises(InvalidParameter, match=r"of CIFAR-100's binary version .* never opened"):
        spec.sources()
    (root / "train.bin").write_bytes(bytes(3075))
    (root / "test.bin").write_bytes(bytes(3074))
    with pytest.raises(InvalidParameter, match=r"train\.bin must be whole records of 3074 bytes"):
        spec.read()


def written(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (23, 17), colour).save(path, quality=95)


def cub(root: Path) -> None:
    """Two pictures of every species, the first for training."""
    names = [f"{species:03d}.Bird/Bird_{species}_{number}.jpg" for species in range(1, 201) for number in (1, 2)]
    for place, name in enumerate(names):
        written(root / "images" / name, (place % 256, 10, 200))
    numbers = np.arange(1, 401)
    (root / "images.txt").write_text("\n".join(f"{number} {name}" for number, name in zip(numbers, names, strict=True)))
    np.savetxt(root / "image_class_labels.txt", np.stack((numbers, (numbers + 1) // 2), axis=1), fmt="%d")
    np.savetxt(root / "train_test_split.txt", np.stack((numbers, numbers % 2), axis=1), fmt="%d")


def test_cub_is_its_pictures_by_its_lists(root: Path) -> None:
    cub(root)
    spec = Cub(folder="set", side=8)
    data = spec.read()
    assert facts_of(spec, data).shape == (3, 8, 8)
    assert np.array_equal(data.training_targets, np.arange(200))
    assert np.array_equal(data.test_targets, np.arange(200))
    # JPEG rounds colours.
    assert np.abs((data.training_features[7, :, 3, 3] + 1.0) * 127.5 - (14, 10, 200)).max() <= 3.0
    assert len(spec.sources()) == 3 + 400


def test_cub_without_a_picture_or_with_another_file_is_refused(root: Path) -> None:
    cub(root)
    spec = Cub(folder="set", side=8)
    (root / "images" / "001.Bird" / "Bird_1_1.jpg").write_bytes(b"no picture")
    with pytest.raises(InvalidParameter, match=r"Bird_1_1\.jpg must be a picture as JPEG or PNG"):
        spec.read()
    (root / "images.txt").write_text("1 ../../secret.jpg\n")
    with pytest.raises(InvalidParameter, match="lists of the same pictures"):
        spec.read()
    (root / "images" / "001.Bird" / "Bird_1_1.jpg").unlink()
    (root.parent.parent / "secret.jpg").write_bytes(b"")
    for name in ("image_class_labels.txt", "train_test_split.txt"):
        (root / name).write_text("1 1\n")
    (root / "images.txt").write_text("1 ../../../secret.jpg\n")
    with pytest.raises(InvalidParameter, match="inside the data sets' root"):
        spec.sources()


def celeba(root: Path) -> None:
    """Six pictures of three people: two for training, one for the test."""
    names = [f"{number:06d}.png" for number in range(1, 7)]
    for place, name in enumerate(names):
        written(root / "img_align_celeba" / name, (40 * place, 0, 0))
    rows = [f"{name}  {1 if place % 2 else -1} -1" for place, name in enumerate(names)]
    (root / "list_attr_celeba.txt").write_text("\n".join(["6", "Smiling Young ", *rows]))
    (root / "list_eval_partition.txt").write_text("\n".join(f"{name} {part}" for name, part in zip(names, (0, 0, 0, 1, 2, 2), strict=True)))
    (root / "identity_CelebA.txt").write_text("\n".join(f"{name} {owner}" for name, owner in zip(names, (7, 7, 3, 9, 5, 5), strict=True)))


def test_celeba_is_its_parts_with_celebrities_as_users(root: Path) -> None:
    celeba(root)
    spec = CelebA(folder="set", attribute="Smiling", side=8)
    data, facts = spec.read(), facts_of(spec, spec.read())
    assert data.training_targets.tolist() == [0, 1, 0]
    assert data.test_targets.tolist() == [0, 1]
    assert np.round((data.training_features[:, 0, 0, 0] + 1.0) * 127.5).tolist() == [0.0, 40.0, 80.0]
    assert (facts.user_unit, facts.users, facts.largest_user) == ("celebrity", 2, 2)
    with pytest.raises(InvalidParameter, match=r"data\.attribute must be one of Smiling, Young, got 'Bald'"):
        CelebA(folder="set", attribute="Bald", side=8).read()


def test_celebas_lists_have_to_agree(root: Path) -> None:
    celeba(root)
    (root / "identity_CelebA.txt").write_text("000001.png 7\n")
    with pytest.raises(InvalidParameter, match=r"every picture of list_eval_partition\.txt, got 'none for 000002\.png'"):
        CelebA(folder="set", attribute="Young", side=8).read()
    (root / "list_attr_celeba.txt").write_text("1\nSmiling Young\n000001.png 1\n")
    with pytest.raises(InvalidParameter, match="a name and 2 numbers 1 or -1 in every line"):
        CelebA(folder="set", attribute="Young", side=8).read()
