r"""Batches in a secret order, new in every epoch: for trainings on records as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor

from mechanisms.source import RandomStream


@final
class Epochs:
    r"""The batch of each step, all of one size: what doesn't fill one is left out, another part of the records in every epoch.

    Args:
      rows: the records that are used, (records,), int64.
      batch_size: records in each batch; all records where there are fewer.
      streams: a stream for a purpose, which an epoch's order comes from.
    """

    def __init__(self, rows: Tensor, batch_size: int, streams: Callable[[str], RandomStream]) -> None:
        self._rows, self._streams = rows, streams
        self._size = min(batch_size, len(rows))
        self._in_epoch = len(rows) // self._size
        self._order, self._epoch = rows, -1

    def after(self, step: int) -> Tensor:
        """The records that the step after ``step`` steps takes."""
        epoch, place = divmod(step, self._in_epoch)
        if epoch != self._epoch:
            keys = self._streams(f"epoch {epoch}").uniform(len(self._rows))
            self._order, self._epoch = self._rows[torch.from_numpy(np.argsort(keys, kind="stable")).to(self._rows.device)], epoch
        return self._order[place * self._size : (place + 1) * self._size]
