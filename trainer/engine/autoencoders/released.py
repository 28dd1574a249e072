r"""Released values on disk: written before anything that depends on them is published, and never drawn a second time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, final

from pydantic import ValidationError
from torch import Tensor

from zetadp.mechanisms.base import Value
from zetadp.trainer.engine.checkpoint import discard_unfinished, read_tensors, write_tensors
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.errors import CheckpointRefused

RELEASED = "released.safetensors"
VALUES = "values"
NO_RELEASE = "it is damaged, or it isn't a file of released values of this version"


@final
class ReleasedHeader(Value):
    """Metadata of the file; ``digest``: of spec, plan and data, so that no other run mistakes these values for its own."""

    format: Literal["zetadp released 1"] = "zetadp released 1"
    digest: str


def released_once(setting: Setting, release: Callable[[], Tensor]) -> Tensor:
    r"""Returns what ``release`` gives, or what it gave in an earlier attempt.

    The file is whole and durable before this returns. If an attempt lost a draw before that, nobody saw it, and its remains are deleted.

    Raises:
      CheckpointRefused: the file is damaged, belongs to something else, or is gone where the run continues from a checkpoint.
    """
    path = setting.workdir / RELEASED
    discard_unfinished(path)
    if path.exists():
        return _load(path, setting)
    if setting.resumed_from is not None:
        # A second draw would be a second release; the event counts one.
        raise CheckpointRefused(path.name, "the released values that the checkpoint was trained on are gone")
    values = release()
    write_tensors(path, {VALUES: values}, ReleasedHeader(digest=setting.digest).model_dump_json())
    return values


def _load(path: Path, setting: Setting) -> Tensor:
    text, tensors = read_tensors(path, NO_RELEASE)
    try:
        header = ReleasedHeader.model_validate_json(text)
    except ValidationError as error:
        raise CheckpointRefused(path.name, NO_RELEASE) from error
    if header.digest != setting.digest:
        raise CheckpointRefused(path.name, "it was written for another spec, plan or data set")
    return tensors[VALUES].to(setting.device)
