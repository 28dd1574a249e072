r"""Checkpoints and model files: safetensors only, written whole or not at all. Nothing is ever unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from mechanisms.base import NonNegative, Positive, Value
from trainer.engine.loop import TrainingState
from trainer.errors import CheckpointRefused
from trainer.report import MetricValues, Step

PARAMETERS = "parameters"
OPTIMIZER = "optimizer."
CANARIES = "canaries."
HEADER = "zetadp"
EARLIER = "zetadp checkpoint 1"


@final
class Evaluated(Value):
    """What a private evaluation released after ``step``: kept, so that a run that is taken up again tells it again instead of anew."""

    step: Step
    metrics: MetricValues


@final
class CheckpointHeader(Value):
    r"""Metadata of a checkpoint file.

    Attributes:
      digest: of spec, plan and data: no other run may continue from it.
      written: checkpoints of this run so far, this one included.
      bound: that the next step clips to.
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
    r"""A state and what was counted up to it, over all attempts.

    Attributes:
      resumptions: how often the run continued from a checkpoint.
      written: checkpoints, this one included.
      seconds: trained.
      evaluated: by the last private evaluation; None before the first.
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
    tensors = {PARAMETERS: state.parameters} | {OPTIMIZER + name: value for name, value in state.optimizer.items()}
    tensors |= {CANARIES + name: value for name, value in state.canaries.items()}
    write_tensors(path, tensors, header.model_dump_json())


def load_checkpoint(path: Path, digest: str, device: torch.device) -> Checkpoint:
    r"""Reads what ``save_checkpoint`` wrote.

    Raises:
      CheckpointRefused: the file isn't a checkpoint of ours, or of an earlier version, or of another spec, plan or data set.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get(HEADER, "{}")
            if EARLIER in text:
                raise CheckpointRefused(path.name, "an earlier version wrote it, whose state this one doesn't read; submit the job again")
            header = CheckpointHeader.model_validate_json(text)
            # Numbers that aren't vectors are the optimizer's own counters: they stay on the processor.
            tensors = {name: value.to(device) if value.dim() else value for name, value in _tensors(file)}
    except (SafetensorError, ValidationError) as error:
        raise CheckpointRefused(path.name, "it isn't a checkpoint of this version") from error
    if header.digest != digest:
        raise CheckpointRefused(path.name, "it was written for another spec, plan or data set")
    if PARAMETERS not in tensors:
        raise CheckpointRefused(path.name, "it isn't a checkpoint of this version")
    parameters = tensors.pop(PARAMETERS)
    # Scores stay on the processor too.
    canaries = {name.removeprefix(CANARIES): value.cpu() for name, value in tensors.items() if name.startswith(CANARIES)}
    optimizer = {name.removeprefix(OPTIMIZER): value for name, value in tensors.items() if name.startswith(OPTIMIZER)}
    state = TrainingState(header.step, parameters, optimizer, header.bound, canaries)
    return Checkpoint(state, header.resumptions, header.written, header.seconds, header.evaluated)


def _tensors(file: safe_open) -> Iterator[tuple[str, torch.Tensor]]:
    for name in file.keys():  # noqa: SIM118 (not a mapping)
        yield name, file.get_tensor(name)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], header: str) -> None:
    """A safetensors file with ``header``, a JSON text, under the metadata key ``zetadp``."""
    json.loads(header)  # a reader will: better to fail here
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomically(path, save(contiguous, metadata={HEADER: header}))


def discard_unfinished(path: Path) -> None:
    r"""Deletes what writers of ``path`` that were killed have left beside it.

    It may hold the state of a step that is run again, with other noise: two releases where the event counts one.
    """
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        left.unlink(missing_ok=True)


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
