r"""Records that stay on disk: the same sums, figures and models as from memory, sizes from headers alone, and files that change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import h5py
import numpy as np
import pytest
from safetensors.torch import load

from tests.selection import thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.data import (
    READERS,
    ROOT_VARIABLE,
    DataRecipe,
    DataSet,
    MriReconstruction,
    NamedDataSet,
    Uploaded,
    data_set_facts,
    facts_of,
)
from zetadp.trainer.data.base import facts_on_disk, facts_with
from zetadp.trainer.data.files.stored import ArrayFile
from zetadp.trainer.data.uploaded import UPLOADED_VARIABLE, StoredDataSet, store
from zetadp.trainer.engine import loaded_network
from zetadp.trainer.engine.loaded_network import records_of
from zetadp.trainer.engine.network_run import _keys
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.errors import TrainingAborted
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.report import CheckpointWritten, RunReport, TrainingEvent

ID = "0" * 32


@pytest.fixture
def uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[DataSet, str | None], Path]:
    """Writes a data set as the service does, and returns its folder."""
    monkeypatch.setenv(UPLOADED_VARIABLE, str(tmp_path / "made"))

    def write(data: DataSet, user_unit: str | None = None) -> Path:
        folder = tmp_path / "made" / ID
        folder.mkdir(parents=True)
        digest, itself = store(folder, data)
        facts = facts_with(data, "record", user_unit, "content", "Made up")
        named = NamedDataSet(id=ID, manifest_sha256="0" * 64, words="Made up")
        described = StoredDataSet(named=named, facts=facts, arrays_sha256=digest, rebuilds_itself=itself)
        (folder / "description.json").write_text(described.model_dump_json())
        return folder

    return write


def _data(users: bool = False, records: int = 90) -> DataSet:
    rng = np.random.default_rng(5)
    labels = np.arange(records) % 3
    features = (rng.normal(size=(records, 6)) + 1j * rng.normal(size=(records, 6)) + labels[:, np.newaxis]).astype(np.complex64)
    keys = np.arange(records - 20, dtype=np.int64) // 4 if users else None
    return DataSet(features[20:], labels[20:], features[:20], labels[:20], 3, keys)


def _spec(spec_json: dict[str, Any], **changes: Any) -> ZetaDpSgd:
    asked = {"data": {"kind": "uploaded", "data_set": ID}, "expected_batch_size": 12, "steps": 6, **changes}
    return ZetaDpSgd.model_validate({**spec_json, **asked})


def _behind_fourier(*layers: dict[str, Any]) -> dict[str, Any]:
    behind = [{"kind": "fourier"}, *layers, {"kind": "linear", "outputs": 3}]
    return {"kind": "sequential", "numbers": "complex", "layers": behind, "head": "magnitude"}


def _run(spec: TrainingSpec, workdir: Path, records: str, report: Callable[[TrainingEvent], None] = lambda _: None) -> RunReport:
    runtime = RuntimeSpec.model_validate({"microbatch_size": 8, "checkpoint_seconds": 0.0, "threads": 1, "records": records})
    return load_train(spec)(spec, spec.plan(), runtime, workdir, report=report, should_stop=lambda: False)


def _alike(spec: TrainingSpec, tmp_path: Path) -> None:
    """The same model, bit for bit, and the same figures."""
    reports = [_run(spec, tmp_path / records, records) for records in ("memory", "disk")]
    models = [(tmp_path / records / "artifacts" / "model.safetensors").read_bytes() for records in ("memory", "disk")]
    assert models[0] == models[1]
    assert reports[0].metrics == reports[1].metrics
    assert reports[0].audit == reports[1].audit


PUBLIC = {"kind": "public_held_out"}


@pytest.mark.parametrize(
    "changes",
    thinned(
        [
            {"evaluation": PUBLIC},
            {"evaluation": {"kind": "private_accuracy", "noise_std": 5.0, "every_steps": 3}},
            {"clipping": {"kind": "per_layer"}, "audit": {"kind": "canaries", "canaries": 100}},
            {"augmentation": {"copies": 2, "phase": True}, "audit": {"kind": "canaries", "canaries": 100}},
            {"augmentation": {"copies": 2, "phase": True}, "model": _behind_fourier({"kind": "dropout", "probability": 0.5})},
            {"model": _behind_fourier()},
        ],
        every=3,
    ),
)
def test_records_on_disk_give_the_same_model_and_figures_as_records_in_memory(
    changes: dict[str, Any], spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path
) -> None:
    uploaded(_data())
    _alike(_spec(spec_json, **changes), tmp_path)


@pytest.mark.parametrize("variants", [{}, pytest.param({"augmentation": {"copies": 2, "phase": True}}, marks=pytest.mark.slow)])
def test_users_are_units_with_records_on_disk_too(
    variants: dict[str, Any], spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path
) -> None:
    uploaded(_data(users=True), "patient")
    privacy = {**spec_json["privacy"], "unit": "patient"}
    changes = {"records_per_user": 3, "expected_batch_size": 4, "audit": {"kind": "canaries", "canaries": 100}}
    _alike(_spec(spec_json, privacy=privacy, **changes, **variants), tmp_path)


def test_nodes_hold_the_same_units_with_records_on_disk(uploaded: Callable[..., Path], tmp_path: Path) -> None:
    uploaded(_data())
    example = FederatedZetaDpSgd.example().model_dump(mode="json", exclude_none=True)
    asked = {
        "data": {"kind": "uploaded", "data_set": ID},
        "steps": 2,
        "nodes": 2,
        "expected_batch_size": 5,
        "reproducible": True,
        "seed": 1,
    }
    _alike(FederatedZetaDpSgd.model_validate(example | asked), tmp_path)


def test_training_without_privacy_reads_its_batches_from_disk_too(uploaded: Callable[..., Path], tmp_path: Path) -> None:
    uploaded(_data())
    example = NonPrivateTraining.example().model_dump(mode="json", exclude_none=True)
    asked = {"data": {"kind": "uploaded", "data_set": ID}, "steps": 4, "batch_size": 9, "reproducible": True, "seed": 1}
    _alike(NonPrivateTraining.model_validate(example | asked), tmp_path)


def test_records_larger_than_the_limit_stay_on_disk_by_themselves(
    spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(_data())

    def refuse(_recipe: DataRecipe) -> DataSet:
        raise AssertionError("read into memory")

    monkeypatch.setattr(Uploaded, "read", refuse)
    with pytest.raises(AssertionError, match="read into memory"):
        _run(_spec(spec_json), tmp_path / "small", "auto")
    monkeypatch.setattr(loaded_network, "IN_MEMORY_BYTES", 90 * 6 * 8 - 1)
    assert _run(_spec(spec_json), tmp_path / "large", "auto").steps_released == 6


def test_data_that_cant_be_read_by_record_are_refused_where_they_are_to_stay_on_disk(spec: ZetaDpSgd, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"runtime\.records must be 'auto' or 'memory' for data that aren't stored record by record"):
        _run(spec, tmp_path, "disk")


def test_algorithm_that_goes_through_all_records_is_refused_where_they_are_to_stay_on_disk() -> None:
    with pytest.raises(InvalidParameter, match=r"runtime\.records must be 'auto' or 'memory' for spof, got 'disk'"):
        Spof.example().check_runtime(RuntimeSpec(records="disk"))


def test_sizes_come_from_headers_alone(uploaded: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, data = uploaded(_data()), _data()

    def refuse(*_: object) -> int:
        raise AssertionError("a row was read")

    monkeypatch.setattr(os, "preadv", refuse)
    stored = Uploaded(data_set=ID).on_disk()
    assert (stored.training.shape, stored.training.dtype, len(stored.test)) == ((70, 6), np.complex64, 20)
    assert data_set_facts(Uploaded(data_set=ID)).training_records == 70
    monkeypatch.undo()
    file = ArrayFile(folder / "training_features.npy")
    assert np.array_equal(file.read(np.array([3, 4, 5, 1, 1])), data.training_features[[3, 4, 5, 1, 1]])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.asfortranarray(np.ones((3, 2))), r"a\.npy must be an array of numbers with rows, in C order"),
        (np.array(1.0), r"a\.npy must be an array of numbers with rows"),
        (np.array([None]), r"a\.npy must be an array of numbers with rows"),
    ],
)
def test_arrays_without_rows_on_disk_are_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InvalidParameter, match=message):
        ArrayFile(tmp_path / "a.npy")


@pytest.mark.parametrize("kept", [0, 50, 150])
def test_array_file_that_is_cut_off_is_refused_by_name(tmp_path: Path, kept: int) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 8)))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:kept])
    with pytest.raises(InvalidParameter, match=r"a\.npy must be (a whole NumPy array|as long as its header says)"):
        ArrayFile(tmp_path / "a.npy")


def test_content_other_than_the_described_is_refused_before_a_step(
    spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path
) -> None:
    path = uploaded(_data()) / "training_features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match="unchanged since it was made"):
        _run(_spec(spec_json), tmp_path / "run", "disk")
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    # A file system's clock may stand still between two writes.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("change", thinned([_cut, _overwrite], every=2))
def test_file_that_changes_during_training_ends_it_with_its_name_and_releases_nothing_of_that_step(
    change: Callable[[Path], None], spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path
) -> None:
    path = uploaded(_data()) / "training_features.npy"
    model: list[bytes] = []

    def report(event: TrainingEvent) -> None:
        if isinstance(event, CheckpointWritten) and event.step == 3:
            model.append((tmp_path / "run" / "checkpoint.safetensors").read_bytes())
            change(path)

    spec = _spec(spec_json, expected_batch_size=60)  # so that nobody's sample is empty
    with pytest.raises(TrainingAborted) as aborted:
        _run(spec, tmp_path / "run", "disk", report)
    assert aborted.value.step == 4
    assert isinstance(aborted.value.__cause__, InvalidParameter)
    assert "training_features.npy must be unchanged as long as it is read" in str(aborted.value.__cause__)
    before, after = (_parameters(content) for content in (model[0], (tmp_path / "run" / "checkpoint.safetensors").read_bytes()))
    assert np.array_equal(before, after)
    assert not (tmp_path / "run" / "artifacts").exists()


def _parameters(checkpoint: bytes) -> np.ndarray:
    return load(checkpoint)["parameters"].numpy()


@pytest.fixture
def fastmri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    rng = np.random.default_rng(2)
    for number in range(6):
        path = tmp_path / "set" / "singlecoil_train" / f"file{number}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        k_space = rng.normal(size=(4, 20, 18)) + 1j * rng.normal(size=(4, 20, 18))
        with h5py.File(path, "w") as file:
            file["kspace"] = k_space.astype(np.complex64)
            file.attrs["patient_id"] = f"patient {number // 2}"
    return tmp_path / "set"


def _fastmri() -> MriReconstruction:
    asked = {"folder": "set", "source": "fastmri", "size": 16, "slices_per_volume": 3, "split_seed": 3, "test_fraction": 0.34}
    return MriReconstruction.model_validate(asked)


def test_facts_of_volumes_on_disk_are_those_of_their_arrays(fastmri: Path) -> None:
    spec = _fastmri()
    stored = spec.on_disk()
    assert stored is not None
    assert facts_on_disk(spec, stored) == facts_of(spec, spec.read()) == data_set_facts(spec)


@pytest.mark.slow
def test_reconstruction_from_volumes_on_disk_gives_the_same_model_and_figures(
    fastmri: Path, spec_json: dict[str, Any], tmp_path: Path
) -> None:
    unet = {
        "kind": "complex_unet", "channels": 2, "pools": 1, "activation": "crelu", "norm_groups": None, "dropout": 0.0, "residual": True,
    }  # fmt: skip
    privacy = {**spec_json["privacy"], "unit": "patient"}
    changes = {"data": _fastmri().model_dump(mode="json"), "model": unet, "privacy": privacy, "records_per_user": 2}
    _alike(_spec(spec_json, **changes, evaluation=PUBLIC, expected_batch_size=2, steps=2), tmp_path)


def test_volume_that_changes_while_it_is_read_is_named(fastmri: Path) -> None:
    stored = _fastmri().on_disk()
    assert stored is not None
    for path in (fastmri / "singlecoil_train").iterdir():
        os.utime(path, ns=(0, 1))
    with pytest.raises(InvalidParameter, match=r"file\d\.h5 must be unchanged as long as it is read, got 'a file that changed'"):
        stored.training.read(np.arange(1))


def test_files_that_changed_after_their_facts_were_found_are_refused(fastmri: Path) -> None:
    spec = _fastmri()
    setting = SimpleNamespace(facts=data_set_facts(spec), runtime=RuntimeSpec(records="disk"))
    for path in (fastmri / "singlecoil_train").iterdir():
        with h5py.File(path, "r+") as file:
            file["kspace"][...] *= 2.0j
    with pytest.raises(InvalidParameter, match="data must be unchanged since the run was begun"):
        records_of(spec, cast("Setting", setting))


@pytest.mark.slow
def test_processes_that_share_a_sample_each_read_their_part_of_it(
    spec_json: dict[str, Any], uploaded: Callable[..., Path], tmp_path: Path
) -> None:
    uploaded(_data())
    spec = _spec(spec_json, evaluation=PUBLIC)
    for records in ("memory", "disk"):
        runtime = RuntimeSpec.model_validate({"microbatch_size": 8, "threads": 1, "processes": 2, "records": records, "device": "cpu"})
        load_train(spec)(spec, spec.plan(), runtime, tmp_path / records, report=lambda _: None, should_stop=lambda: False)
    models = [(tmp_path / records / "artifacts" / "model.safetensors").read_bytes() for records in ("memory", "disk")]
    assert models[0] == models[1]


@pytest.mark.slow
def test_training_process_needs_less_memory_than_its_data(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.large_data",
        "--gigabytes",
        "1",
        "--limit",
        "0.7",
        "--steps",
        "3",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "records on disk: RssAnon at most 0." in done.stdout


def _arrays(folder: Callable[..., Path]) -> DataRecipe:
    folder(_data())
    return Uploaded(data_set=ID)


def _images(folder: Callable[..., Path]) -> DataRecipe:
    data = _data()
    folder(DataSet(data.training_features, data.training_features * 2.0, data.test_features, data.test_features * 2.0, None, None))
    return Uploaded(data_set=ID)


ON_DISK: list[tuple[type[DataRecipe], Callable[[Callable[..., Path]], DataRecipe]]] = [
    (Uploaded, _arrays),
    (Uploaded, _images),
    (MriReconstruction, lambda _: _fastmri()),
]


def test_every_recipe_that_reads_from_disk_is_among_those_whose_keys_are_compared() -> None:
    assert {kind for kind, _ in ON_DISK} == {kind for kind in READERS if kind.on_disk is not DataRecipe.on_disk}


@pytest.mark.parametrize("made", [made for _, made in ON_DISK], ids=["labels", "images", "volumes"])
def test_units_have_the_same_keys_on_disk_as_in_memory(
    made: Callable[[Callable[..., Path]], DataRecipe], uploaded: Callable[..., Path], fastmri: Path
) -> None:
    # Groups and nodes follow from them: with others a resumed run would deal its units again.
    del fastmri
    recipe = made(uploaded)
    data, stored = recipe.read(), recipe.on_disk()
    assert stored is not None
    keys = [_keys(data, None), _keys(stored, None)]
    assert np.array_equal(*keys)
    assert len(np.unique(keys[0])) == len(data.training_features)
    assert (data.training_users is None) == (stored.training_users is None)
    if data.training_users is not None and stored.training_users is not None:
        assert np.array_equal(_keys(data, data.training_users), _keys(stored, stored.training_users))
