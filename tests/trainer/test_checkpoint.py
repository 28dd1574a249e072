r"""Checkpoint files: exact, whole, bound to their run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainer.engine import Checkpoint, Evaluated, TrainingState, load_checkpoint, save_checkpoint, write_atomically, write_tensors
from trainer.errors import CheckpointRefused

CPU = torch.device("cpu")


@pytest.fixture
def checkpoint() -> Checkpoint:
    generator = torch.Generator().manual_seed(1)
    optimizer = {"momentum": torch.randn(11, generator=generator), "momentum_product": torch.tensor(0.25, dtype=torch.float64)}
    state = TrainingState(17, torch.randn(11, generator=generator), optimizer, bound=0.1 + 0.2)
    return Checkpoint(state, resumptions=2, written=5, seconds=3.5, evaluated=Evaluated(step=15, metrics={"accuracy": 0.1}))


def test_checkpoint_comes_back_to_the_bit(tmp_path: Path, checkpoint: Checkpoint) -> None:
    save_checkpoint(tmp_path / "c", checkpoint, "digest")
    again = load_checkpoint(tmp_path / "c", "digest", CPU)
    assert (again.state.step, again.state.bound, again.resumptions, again.written, again.seconds) == (17, 0.1 + 0.2, 2, 5, 3.5)
    assert again.evaluated == checkpoint.evaluated
    assert torch.equal(again.state.parameters, checkpoint.state.parameters)
    assert set(again.state.optimizer) == set(checkpoint.state.optimizer)
    for name, value in checkpoint.state.optimizer.items():
        assert again.state.optimizer[name].dtype == value.dtype
        assert torch.equal(again.state.optimizer[name], value)


def test_checkpoint_of_another_spec_or_plan_is_refused(tmp_path: Path, checkpoint: Checkpoint) -> None:
    save_checkpoint(tmp_path / "c.safetensors", checkpoint, "digest")
    with pytest.raises(
        CheckpointRefused, match=r"checkpoint c\.safetensors can't be continued: it was written for another spec, plan or data set"
    ):
        load_checkpoint(tmp_path / "c.safetensors", "other", CPU)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x80\x04K\x01."], ids=["empty", "text", "pickle"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CheckpointRefused, match="it isn't a checkpoint of this version"):
        load_checkpoint(tmp_path / "c", "digest", CPU)


def test_a_safetensors_file_without_our_header_is_refused(tmp_path: Path) -> None:
    save_file({"parameters": torch.zeros(2, 2)}, tmp_path / "c")
    with pytest.raises(CheckpointRefused, match="it isn't a checkpoint of this version"):
        load_checkpoint(tmp_path / "c", "digest", CPU)


def test_a_checkpoint_of_the_first_format_is_refused_as_such(tmp_path: Path) -> None:
    # Its state was complex and had no clipping bound.
    header = {"format": "zetadp checkpoint 1", "digest": "d", "step": 1, "resumptions": 0, "seconds": 0.0}
    write_tensors(tmp_path / "c", {"parameters": torch.zeros(2, 2)}, json.dumps(header))
    with pytest.raises(CheckpointRefused, match="an earlier version wrote it, whose state this one doesn't read; submit the job again"):
        load_checkpoint(tmp_path / "c", "d", CPU)


def test_our_header_without_the_parameters_is_refused(tmp_path: Path) -> None:
    header = {
        "format": "zetadp checkpoint 2", "digest": "d", "step": 1, "resumptions": 0, "written": 1, "seconds": 0.0, "bound": 1.0,
        "evaluated": None,
    }  # fmt: skip
    write_tensors(tmp_path / "c", {"other": torch.zeros(1)}, json.dumps(header))
    with pytest.raises(CheckpointRefused, match="it isn't a checkpoint of this version"):
        load_checkpoint(tmp_path / "c", "d", CPU)


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_makes_the_folder(tmp_path: Path) -> None:
    write_tensors(tmp_path / "artifacts" / "m", {"a": torch.zeros(1)}, "{}")
    assert load_file(tmp_path / "artifacts" / "m")["a"].tolist() == [0.0]
