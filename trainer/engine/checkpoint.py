r"""Checkpoints and model files: safetensors only, written whole or not at all. Nothing is ever unpickled.

Every file carries a SHA-256 digest of its header and tensors, and whatever a run continues from is checked against it: a disk that flipped
one bit would otherwise change what is trained, or how many steps count as done, without anybody noticing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Literal, cast, final

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from zetadp.mechanisms.base import NonNegative, Positive, Value
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.errors import CheckpointRefused
from zetadp.trainer.specs.report import MetricValues, Step

PARAMETERS = "parameters"
OPTIMIZER = "optimizer."
CANARIES = "canaries."
HEADER, CONTENTS = "zetadp", "contents_sha256"
"""The key of a file's one metadata text, a JSON object, and the key of the digest in that object. Two texts would come in any order, since
safetensors keeps them in a hash map, and the same run would no longer write the same file."""

UNKNOWN = "0" * 64
"""Stands in for the digest in the text that the digest is computed from."""

NO_CHECKPOINT = "it is damaged, or it isn't a checkpoint of this version"
DAMAGED = "the file is damaged: its contents aren't those that were written; submit the job again"


@final
class Evaluated(Value):
    """What a private evaluation released after ``step``: kept, so that a resumed run publishes it again instead of releasing anew."""

    step: Step
    metrics: MetricValues


@final
class CheckpointHeader(Value):
    r"""Metadata of a checkpoint file.

    Attributes:
      digest: of spec, plan and data: no other run may continue from it.
      written: checkpoints of this run so far, this one included.
      bound: the bound that the next step clips to.
    """

    format: Literal["zetadp checkpoint 2"] = "zetadp checkpoint 2"
    digest: str
    step: Step
    resumptions: Step
    written: Step
    seconds: NonNegative
    bound: Positive
    evaluated: Evaluated | None


@final
@dataclass(frozen=True)
class Checkpoint:
    r"""A state, and the counts up to it over all attempts.

    Attributes:
      resumptions: how often the run continued from a checkpoint.
      written: the number of checkpoints, this one included.
      seconds: the training time.
      evaluated: the result of the last private evaluation; None before the first.
    """

    state: TrainingState
    resumptions: int
    written: int
    seconds: float
    evaluated: Evaluated | None


def save_checkpoint(path: Path, checkpoint: Checkpoint, digest: str) -> None:
    """Writes the checkpoint over ``path``; after a crash at any instant the file is the old or the new one."""
    state = checkpoint.state
    header = CheckpointHeader(
        digest=digest,
        step=state.step,
        resumptions=checkpoint.resumptions,
        written=checkpoint.written,
        seconds=checkpoint.seconds,
        bound=state.bound,
        evaluated=checkpoint.evaluated,
    )
    write_tensors(path, _tensors_of(state), header.model_dump_json())


def state_digest(state: TrainingState) -> str:
    """SHA-256 of a state: of its step and bound, and of every bit of its tensors."""
    contiguous = {name: value.detach().cpu().contiguous() for name, value in _tensors_of(state).items()}
    return _contents_digest(json.dumps([state.step, state.bound]), contiguous)


def _tensors_of(state: TrainingState) -> dict[str, torch.Tensor]:
    tensors = {PARAMETERS: state.parameters} | {OPTIMIZER + name: value for name, value in state.optimizer.items()}
    return tensors | {CANARIES + name: value for name, value in state.canaries.items()}


def load_checkpoint(path: Path, digest: str, device: torch.device) -> Checkpoint:
    r"""Reads what ``save_checkpoint`` wrote.

    Raises:
      CheckpointRefused: the file is damaged, isn't a checkpoint of ours, or is one of another spec, plan or data set.
    """
    header, tensors = _read(path)
    if header.digest != digest:
        raise CheckpointRefused(path.name, "it was written for another spec, plan or data set")
    # Scalars are the optimizer's own counters: they stay on the CPU.
    tensors = {name: value.to(device) if value.dim() else value for name, value in tensors.items()}
    if PARAMETERS not in tensors:
        raise CheckpointRefused(path.name, NO_CHECKPOINT)
    parameters = tensors.pop(PARAMETERS)
    # Scores stay on the CPU too.
    canaries = {name.removeprefix(CANARIES): value.cpu() for name, value in tensors.items() if name.startswith(CANARIES)}
    optimizer = {name.removeprefix(OPTIMIZER): value for name, value in tensors.items() if name.startswith(OPTIMIZER)}
    state = TrainingState(header.step, parameters, optimizer, header.bound, canaries)
    return Checkpoint(state, header.resumptions, header.written, header.seconds, header.evaluated)


def checkpointed_step(path: Path) -> int:
    """The step that the checkpoint at ``path`` was written after; 0 where there is none. Raises CheckpointRefused."""
    return _read(path)[0].step if path.exists() else 0


def _read(path: Path) -> tuple[CheckpointHeader, dict[str, torch.Tensor]]:
    text, tensors = read_tensors(path, NO_CHECKPOINT)
    try:
        return CheckpointHeader.model_validate_json(text), tensors
    except ValidationError as error:
        raise CheckpointRefused(path.name, NO_CHECKPOINT) from error


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], header: str) -> None:
    """Writes a safetensors file with ``header``, a JSON object, which then also holds the digest of all contents."""
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(json.loads(header) | {CONTENTS: UNKNOWN})
    write_atomically(path, save(contiguous, metadata={HEADER: text.replace(UNKNOWN, _contents_digest(text, contiguous))}))


def read_tensors(path: Path, otherwise: str) -> tuple[str, dict[str, torch.Tensor]]:
    r"""Reads the header and the tensors that ``write_tensors`` wrote; the tensors are on the CPU.

    Args:
      otherwise: the reason given for refusing a file that ``write_tensors`` didn't write, or that can't be read at all.
    Raises:
      CheckpointRefused: it is such a file, or its contents aren't those that were written.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get(HEADER, "{}")
            # Copied to memory of torch's own: a file's begins at any multiple of 8, and complex128 there crashes torch 2.13.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = cast("object", json.loads(text))
    except (SafetensorError, JSONDecodeError) as error:
        raise CheckpointRefused(path.name, otherwise) from error
    if not isinstance(header, dict) or not isinstance(stated := cast("dict[str, object]", header).pop(CONTENTS, None), str):
        raise CheckpointRefused(path.name, otherwise)
    # Computed from the text as written: 1e-3 and 1E-3 are the same number but not the same bits.
    if stated != _contents_digest(text.replace(stated, UNKNOWN), tensors):
        raise CheckpointRefused(path.name, DAMAGED)
    return json.dumps(header), tensors


def _contents_digest(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of the metadata's text, of every tensor's name, type and shape, and each tensor's bytes in the order of the names."""
    shapes = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in sorted(tensors.items())]
    digest = hashlib.sha256(json.dumps([text, shapes]).encode())
    for _, tensor in sorted(tensors.items()):
        # Types and shapes determine how many bytes each has, so no two different contents give the same sequence of bytes.
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def discard_unfinished(path: Path) -> None:
    r"""Deletes the files that killed writers of ``path`` left beside it.

    They may hold the state of a step that is run again with other noise: two releases where the event counts one.
    """
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        left.unlink(missing_ok=True)
