r"""Checkpoint files: exact, whole, bound to their run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import Checkpoint, Evaluated, TrainingState, load_checkpoint, save_checkpoint, write_tensors
from zetadp.trainer.engine.checkpoint import DAMAGED, NO_CHECKPOINT, checkpointed_step, read_tensors
from zetadp.trainer.errors import CheckpointRefused

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


@pytest.mark.slow
def test_a_checkpoint_with_any_bit_turned_is_refused(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, checkpoint, "digest")
    written, reasons = path.read_bytes(), set[str]()
    for place in range(len(written)):
        for bit in range(8):
            path.write_bytes(written[:place] + bytes([written[place] ^ 1 << bit]) + written[place + 1 :])
            with pytest.raises(CheckpointRefused) as refused:
                load_checkpoint(path, "digest", CPU)
            reasons.add(refused.value.reason)
    assert reasons == {DAMAGED, NO_CHECKPOINT}
    path.write_bytes(written)
    assert load_checkpoint(path, "digest", CPU).state.step == 17


def test_a_damaged_checkpoint_is_refused_in_plain_words(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, checkpoint, "digest")
    written = path.read_bytes()
    path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    with pytest.raises(CheckpointRefused, match=r"the file is damaged: its contents aren't those that were written; submit the job again$"):
        load_checkpoint(path, "digest", CPU)
    path.write_bytes(written[:-1])
    with pytest.raises(CheckpointRefused, match="it is damaged, or it isn't a checkpoint of this version"):
        load_checkpoint(path, "digest", CPU)


def test_bytes_say_which_tensor_they_are_of(tmp_path: Path) -> None:
    # The same bytes in a row, under other names and in other shapes.
    two = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])}
    for tensors in ({"a": torch.tensor([1.0]), "b": torch.tensor([2.0, 3.0])}, {"a": two["a"].reshape(1, 2), "b": two["b"]}):
        write_tensors(tmp_path / "c", two, "{}")
        with safe_open(str(tmp_path / "c"), framework="pt") as file:
            metadata = file.metadata()
        save_file(tensors, tmp_path / "c", metadata)
        with pytest.raises(CheckpointRefused, match="damaged"):
            read_tensors(tmp_path / "c", "it is something else")


def test_the_step_of_a_checkpoint_can_be_asked_for_alone(tmp_path: Path, checkpoint: Checkpoint) -> None:
    assert checkpointed_step(tmp_path / "c") == 0
    save_checkpoint(tmp_path / "c", checkpoint, "digest")
    assert checkpointed_step(tmp_path / "c") == 17


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
