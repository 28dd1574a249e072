r"""MRI from small files of each format and from invented heads, and what is refused of bad files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
from pydantic import ValidationError

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, MriPhantoms, MriReconstruction, MriSequences, facts_of
from zetadp.trainer.data.mri_slices import k_space_records
from zetadp.trainer.data.spectra import to_image, to_k_space, whitened
from zetadp.trainer.data.splits import name_keys


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def _slices(**change: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.integers(0, 4096, (24, 40, 36)).astype(np.uint16),
        "y": np.tile(np.arange(3, dtype=np.uint8), 8),
        "patient": np.repeat(np.arange(4), 6).astype(np.int16) + 7,
        "classes": np.array(["FLAIR", "T1w", "T2w"]),
        **change,
    }


def _sequences(**fields: Any) -> MriSequences:
    return MriSequences.model_validate({"folder": "set", "split_seed": 0, "test_fraction": 0.25, **fields})


def _reconstruction(**fields: Any) -> MriReconstruction:
    return MriReconstruction.model_validate({"folder": "set", "split_seed": 0, "test_fraction": 0.25, **fields})


@pytest.fixture
def slices(root: Path) -> Path:
    np.savez(root / "brain_slices_128.npz", **_slices())
    return root


def test_record_is_the_whitened_middle_of_k_space(slices: Path) -> None:
    data = _sequences(resolution=16).read()
    features = np.concatenate((data.training_features, data.test_features))
    expected = whitened(to_k_space(_slices()["x"])[:, 12:28, 10:26])
    distances = np.linalg.norm(features[:, 0, np.newaxis] - expected, axis=(2, 3)).min(axis=1)
    assert distances.max() < 1e-4 * 16.0


def test_patients_are_users_and_stay_on_one_side(slices: Path) -> None:
    spec = _sequences()
    facts = facts_of(spec, spec.read())
    assert (facts.users, facts.user_unit, facts.largest_user, facts.training_records, facts.test_records) == (3, "patient", 6, 18, 6)
    assert facts.shape == (1, 32, 32)


def test_slice_does_not_depend_on_the_others() -> None:
    images = _slices()["x"]
    for scale in ("linear", "log"):
        assert np.array_equal(k_space_records(images, 16, scale)[1:], k_space_records(images[1:], 16, scale))


def test_empty_slice_becomes_zero() -> None:
    for scale in ("linear", "log"):
        assert not k_space_records(np.zeros((1, 20, 20)), 16, scale).any()


def test_resolution_above_the_slices_is_refused(slices: Path) -> None:
    with pytest.raises(InvalidParameter, match="resolution must be at most the slices' 36"):
        _sequences(resolution=40).read()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((24, 40), dtype=np.uint16)}, "x .slices, height, width"),
        ({"y": np.full(24, 3)}, r"a file with labels in 0 \.\. 2"),
        ({"y": np.zeros(24, dtype=int)}, r"none for classes \[1, 2\]"),
        ({"patient": np.arange(3)}, "patient .slices"),
        ({"patient": np.zeros(24, dtype=int)}, "no held-out records"),
        ({"x": np.full((24, 40, 36), np.nan)}, "features must be finite"),
        ({"classes": np.arange(3)}, "classes .names"),
    ],
)
def test_broken_slices_are_refused(root: Path, change: dict[str, Any], message: str) -> None:
    np.savez(root / "brain_slices_128.npz", **_slices(**change))
    with pytest.raises(InvalidParameter, match=message):
        _sequences(resolution=16).read()


def _volume(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, (20, 18, 9, 4)).astype(np.int16)


def _write_volumes(folder: Path, count: int, first: int) -> None:
    folder.mkdir()
    for number in range(first, first + count):
        nibabel.save(nibabel.Nifti1Image(_volume(number), np.eye(4)), folder / f"BRATS_{number:03}.nii.gz")


def test_decathlon_takes_the_middle_slices_of_every_sequence_and_its_own_test(root: Path) -> None:
    _write_volumes(root / "imagesTr", 3, 1)
    _write_volumes(root / "imagesTs", 2, 10)
    spec = _sequences(source="decathlon", slices_per_volume=3, resolution=16)
    data = spec.read()
    facts = facts_of(spec, data)
    assert (facts.training_records, facts.test_records, facts.users, facts.largest_user, facts.classes) == (36, 24, 3, 12, 4)
    # The second patient's third sequence, the middle slice of 3 .. 5.
    expected = k_space_records(_volume(2)[np.newaxis, :, :, 4, 2].astype(np.float32), 16, "linear")
    number = 12 + 2 * 3 + 1
    assert np.array_equal(data.training_features[number], expected[0])
    assert data.training_targets[number] == 2
    assert data.training_users.tolist() == name_keys(np.repeat([f"BRATS_{volume:03}.nii.gz" for volume in (1, 2, 3)], 12)).tolist()


def test_decathlon_without_a_test_is_split_by_patient(root: Path) -> None:
    _write_volumes(root / "imagesTr", 4, 1)
    data = _sequences(source="decathlon", slices_per_volume=2, resolution=16, split_seed=2).read()
    assert (len(data.training_features), len(data.test_features)) == (24, 8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"slices_per_volume": 10}, "10 or more"), ({"resolution": 19}, "at most the slices' 18")],
)
def test_volumes_that_are_too_small_are_refused(root: Path, fields: dict[str, int], message: str) -> None:
    _write_volumes(root / "imagesTr", 2, 1)
    with pytest.raises(InvalidParameter, match=message):
        _sequences(source="decathlon", **{"slices_per_volume": 2, "resolution": 16, **fields}).read()


@pytest.mark.parametrize("kept", [0, 100, 3000])
def test_volume_that_is_cut_off_is_refused(root: Path, kept: int) -> None:
    _write_volumes(root / "imagesTr", 2, 1)
    raw = (root / "imagesTr" / "BRATS_001.nii.gz").read_bytes()
    (root / "imagesTr" / "BRATS_001.nii.gz").write_bytes(raw[:kept])
    with pytest.raises(InvalidParameter, match=r"BRATS_001\.nii\.gz must be a whole NIfTI volume"):
        _sequences(source="decathlon", slices_per_volume=2, resolution=16).read()


def test_volume_of_other_sequences_is_refused(root: Path) -> None:
    _write_volumes(root / "imagesTr", 2, 1)
    nibabel.save(nibabel.Nifti1Image(_volume(1)[..., :3], np.eye(4)), root / "imagesTr" / "BRATS_001.nii.gz")
    with pytest.raises(InvalidParameter, match=r"of shape .height, width, 2 or more, 4"):
        _sequences(source="decathlon", slices_per_volume=2, resolution=16).read()


def test_reconstruction_target_is_the_slice_and_features_are_a_part_of_its_columns(slices: Path) -> None:
    data = _reconstruction().read()
    features, targets = (
        np.concatenate(side)[:, 0] for side in ((data.training_features, data.test_features), (data.training_targets, data.test_targets))
    )
    assert data.classes is None
    assert features.shape == (24, 36, 36)
    assert np.abs(features).max(axis=(1, 2)) == pytest.approx(np.ones(24), rel=1e-6)
    cosines = [max(_cosine(np.abs(target), image) for image in _slices()["x"][:, 2:38].astype(float)) for target in targets]
    assert min(cosines) > 1.0 - 1e-6


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float((first * second).sum() / (np.linalg.norm(first) * np.linalg.norm(second)))


def test_measured_columns_of_uncropped_slices_are_the_targets_and_the_others_are_zero(root: Path) -> None:
    np.savez(root / "brain_slices_128.npz", **_slices(x=_slices()["x"][:, :36]))
    data = _reconstruction().read()
    measured, full = to_k_space(data.training_features[:, 0]), to_k_space(data.training_targets[:, 0])
    columns = np.abs(measured).max(axis=1) > 1e-4 * np.abs(full).max()
    # Nine of 36 expected, three of them the centre.
    assert 4.0 < columns.sum(axis=1).mean() < 14.0
    assert columns[:, 17:20].all()
    kept = np.broadcast_to(columns[:, np.newaxis], full.shape)
    assert np.abs((measured - full)[kept]).max() < 1e-4 * np.abs(full).max()


def test_a_records_mask_and_phase_dont_depend_on_other_records(root: Path) -> None:
    def found(kept: np.ndarray) -> set[bytes]:
        np.savez(root / "brain_slices_128.npz", **{name: part if name == "classes" else part[kept] for name, part in _slices().items()})
        data = _reconstruction().read()
        return {record.tobytes() for side in (data.training_features, data.test_features) for record in side}

    whole, fewer = found(np.arange(24)), found(np.delete(np.arange(24), 2))
    assert len(whole) == 24
    assert len(whole - fewer) == 1
    assert fewer < whole


def test_masks_differ_between_records_and_follow_their_seed(slices: Path) -> None:
    first, again, other = (_reconstruction(mask_seed=seed).read().training_features for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_centre_that_is_larger_than_all_measured_columns_is_refused() -> None:
    with pytest.raises(ValidationError, match="centre_fraction must be below 1 / acceleration"):
        _reconstruction(centre_fraction=0.25)


def test_size_above_the_slices_is_refused(slices: Path) -> None:
    with pytest.raises(InvalidParameter, match="size must be at most the images' 36"):
        _reconstruction(size=64).read()


def _k_space(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(5, 24, 20)) + 1j * rng.normal(size=(5, 24, 20))).astype(np.complex64)


def _write_fastmri(path: Path, seed: int, patient: str | None) -> None:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=_k_space(seed), compression="gzip")
        if patient is not None:
            file.attrs["patient_id"] = patient


@pytest.fixture
def fastmri(root: Path) -> Path:
    for number, patient in enumerate(("a", "a", "b", None)):
        _write_fastmri(root / "singlecoil_train" / f"file{number}.h5", number, patient)
    return root


def test_fastmri_targets_are_the_cropped_images_of_the_middle_slices(fastmri: Path) -> None:
    _write_fastmri(fastmri / "singlecoil_val" / "file9.h5", 9, "z")
    spec = _reconstruction(source="fastmri", size=16, slices_per_volume=3)
    data = spec.read()
    facts = facts_of(spec, data)
    assert (facts.training_records, facts.test_records, facts.users, facts.largest_user, facts.task) == (12, 3, 3, 6, "reconstruction")
    expected = to_image(_k_space(1))[1:4, 4:20, 2:18]
    assert all(
        _cosine(np.abs(found), np.abs(image)) > 1.0 - 1e-6 for found, image in zip(data.training_targets[3:6, 0], expected, strict=True)
    )


def test_fastmri_without_validation_is_split_by_patient(fastmri: Path) -> None:
    spec = _reconstruction(source="fastmri", size=16, test_fraction=0.34, split_seed=3)
    facts = facts_of(spec, spec.read())
    assert facts.users == 2
    assert facts.training_records + facts.test_records == 20


def test_patient_in_training_and_validation_is_refused(fastmri: Path) -> None:
    _write_fastmri(fastmri / "singlecoil_val" / "file9.h5", 9, "b")
    with pytest.raises(InvalidParameter, match="none of the training patients"):
        _reconstruction(source="fastmri", size=16).read()


def test_links_out_of_a_file_are_refused(fastmri: Path) -> None:
    with h5py.File(fastmri / "singlecoil_train" / "file9.h5", "w") as file:
        file["kspace"] = h5py.ExternalLink("file0.h5", "/kspace")
    with pytest.raises(InvalidParameter, match="a file that itself contains the data set kspace, not a link"):
        _reconstruction(source="fastmri", size=16).read()


def test_external_storage_is_refused(fastmri: Path) -> None:
    raw = fastmri / "raw.bin"
    raw.write_bytes(_k_space(0).tobytes())
    with h5py.File(fastmri / "singlecoil_train" / "file9.h5", "w") as file:
        file.create_dataset("kspace", (5, 24, 20), np.complex64, external=[(str(raw), 0, raw.stat().st_size)])
    with pytest.raises(InvalidParameter, match="a plain data set"):
        _reconstruction(source="fastmri", size=16).read()


def test_virtual_data_set_is_refused(fastmri: Path) -> None:
    layout = h5py.VirtualLayout((5, 24, 20), np.complex64)
    layout[:] = h5py.VirtualSource(str(fastmri / "singlecoil_train" / "file0.h5"), "kspace", (5, 24, 20))
    with h5py.File(fastmri / "singlecoil_train" / "file9.h5", "w") as file:
        file.create_virtual_dataset("kspace", layout)
    with pytest.raises(InvalidParameter, match="a plain data set"):
        _reconstruction(source="fastmri", size=16).read()


@pytest.mark.parametrize(
    ("k_space", "message"),
    [
        (np.ones((5, 24)), "kspace complex64"),
        (np.ones((5, 24, 20)), "kspace complex64"),
        (np.ones((0, 24, 20), dtype=np.complex64), "kspace complex64"),
        (np.full((5, 24, 20), np.nan, dtype=np.complex64), "features must be finite"),
        (np.ones((5, 24, 12), dtype=np.complex64), "at most the images' 12"),
    ],
)
def test_other_arrays_are_refused(fastmri: Path, k_space: np.ndarray, message: str) -> None:
    with h5py.File(fastmri / "singlecoil_train" / "file9.h5", "w") as file:
        file["kspace"] = k_space
    _write_fastmri(fastmri / "singlecoil_val" / "file8.h5", 8, "z")
    with pytest.raises(InvalidParameter, match=message):
        _reconstruction(source="fastmri", size=16).read()


@pytest.mark.parametrize("kept", [0, 500, 4000])
def test_file_that_is_cut_off_is_refused(fastmri: Path, kept: int) -> None:
    path = fastmri / "singlecoil_train" / "file0.h5"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InvalidParameter, match="a whole HDF5 file"):
        _reconstruction(source="fastmri", size=16).read()


def test_phantoms_have_the_asked_sizes_and_patients() -> None:
    spec = MriPhantoms(patients=9, test_patients=5, slices=3, seed=0)
    facts = facts_of(spec, spec.read())
    assert (facts.training_records, facts.test_records, facts.users, facts.largest_user) == (108, 60, 9, 12)
    assert (facts.shape, facts.classes, facts.unit, facts.user_unit) == ((1, 32, 32), 4, "slice", "patient")
    assert facts.description.startswith("SYNTHETIC")


def test_phantoms_follow_their_seed_and_test_patients_are_others() -> None:
    first, again, other = (MriPhantoms(patients=2, test_patients=2, slices=1, seed=seed).read() for seed in (0, 0, 1))
    assert np.array_equal(first.training_features, again.training_features)
    assert not np.array_equal(first.training_features, other.training_features)
    assert not np.array_equal(first.training_features, first.test_features)


def test_phantoms_cant_be_told_apart_linearly_but_better_than_by_chance() -> None:
    data = MriPhantoms(patients=60, test_patients=40, slices=4, resolution=16, seed=2).read()
    x, y = (side.reshape(len(side), -1) for side in (data.training_features, data.test_features))
    x, y = (np.concatenate((side.real, side.imag), axis=1).astype(np.float64) for side in (x, y))
    # Ridge regression onto the four classes' indicators.
    weights = np.linalg.solve(x.T @ x + 100.0 * np.eye(x.shape[1]), x.T @ np.eye(4)[data.training_targets])
    accuracy = float(((y @ weights).argmax(axis=1) == data.test_targets).mean())
    assert 0.35 < accuracy < 0.9
