r"""Batches of rows, each row once in every epoch, in a public order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream

ORDER_SEED = 0
"""Public: the order of the rows in an epoch is no secret, and a resumed run gets the same order."""


def steps_in_epoch(rows: int, batch_size: int) -> int:
    """The number of batches that hold every row once; the last may be smaller."""
    return -(-rows // batch_size)


@final
class Batches:
    r"""The batch of each step.

    Args:
      parts: tensors with the same number of rows, batched together.
    """

    def __init__(self, parts: Sequence[Tensor], batch_size: int) -> None:
        self._parts = tuple(parts)
        self._size = min(batch_size, len(self._parts[0]))
        self._in_epoch = steps_in_epoch(len(self._parts[0]), self._size)
        self._batches: list[tuple[Tensor, ...]] = []
        self._epoch = -1

    def after(self, step: int) -> tuple[Tensor, ...]:
        """The rows of each part for the step that follows ``step`` steps."""
        epoch, place = divmod(step, self._in_epoch)
        if epoch != self._epoch:
            self._batches, self._epoch = self._dealt(epoch), epoch
        return self._batches[place]

    def _dealt(self, epoch: int) -> list[tuple[Tensor, ...]]:
        if self._in_epoch == 1:
            return [self._parts]
        keys = RandomStream.from_seed(ORDER_SEED, f"order of epoch {epoch}").uniform(len(self._parts[0]))
        order = torch.from_numpy(np.argsort(keys, kind="stable")).to(self._parts[0].device)
        # One copy of each part for the whole epoch; the batches are views of it.
        return list(zip(*(part.index_select(0, order).split(self._size) for part in self._parts), strict=True))
