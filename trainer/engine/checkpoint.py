r"""Checkpoints and model files: safetensors only, written whole or not at all. Nothing is ever unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from mechanisms.base import NonNegative, Value
from trainer.engine.loop import TrainingState
from trainer.errors import CheckpointRefused
from trainer.report import Step

PARAMETERS = "parameters"
OPTIMIZER = "optimizer."
HEADER = "zetadp"


@final
class CheckpointHeader(Value):
    """Metadata of a checkpoint file. ``digest`` is of spec, plan and data: no other run may continue from it."""

    format: Literal["zetadp checkpoint 1"] = "zetadp checkpoint 1"
    digest: str
    step: Step
    resumptions: Step
    seconds: NonNegative


@final
@dataclass(frozen=True)
class Checkpoint:
    """A state, how often the run continued from a checkpoint, and the seconds trained up to it."""

    state: TrainingState
    resumptions: int
    seconds: float


def save_checkpoint(path: Path, checkpoint: Checkpoint, digest: str) -> None:
    """Writes the checkpoint over ``path``; after a crash at any instant the file is the old or the new one."""
    state = checkpoint.state
    header = CheckpointHeader(digest=digest, step=state.step, resumptions=checkpoint.resumptions, seconds=checkpoint.seconds)
    tensors = {PARAMETERS: torch.view_as_real(state.parameters)} | {OPTIMIZER + name: value for name, value in state.optimizer.items()}
    write_tensors(path, tensors, header.model_dump_json())


def load_checkpoint(path: Path, digest: str, device: torch.device) -> Checkpoint:
    r"""Reads what ``save_checkpoint`` wrote.

    Raises:
      CheckpointRefused: the file isn't a checkpoint of ours, or of another spec, plan or data set.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            header = CheckpointHeader.model_validate_json((file.metadata() or {}).get(HEADER, "{}"))
            tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, ValidationError) as error:
        raise CheckpointRefused(path.name, "it isn't a checkpoint of this version") from error
    if header.digest != digest:
        raise CheckpointRefused(path.name, "it was written for another spec, plan or data set")
    if PARAMETERS not in tensors:
        raise CheckpointRefused(path.name, "it isn't a checkpoint of this version")
    parameters = torch.view_as_complex(tensors.pop(PARAMETERS).contiguous())
    optimizer = {name.removeprefix(OPTIMIZER): value for name, value in tensors.items()}
    return Checkpoint(TrainingState(header.step, parameters, optimizer), header.resumptions, header.seconds)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], header: str) -> None:
    """A safetensors file with ``header``, a JSON text, under the metadata key ``zetadp``."""
    json.loads(header)  # a reader will: better to fail here
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomically(path, save(contiguous, metadata={HEADER: header}))


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, and durably: temporary file, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
