r"""Batches in a secret order, new in every epoch: for training on the raw records."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream


@final
class Epochs:
    r"""The batch of each step, all of one size: records that don't fill a batch are left out, different ones in every epoch.

    Args:
      rows: the records that are used, (records,), int64.
      batch_size: records in each batch; all records where there are fewer.
      streams: gives the stream of a purpose; each epoch's order comes from one.
    """

    def __init__(self, rows: Tensor, batch_size: int, streams: Callable[[str], RandomStream]) -> None:
        self._rows, self._streams = rows, streams
        self._size = min(batch_size, len(rows))
        self._in_epoch = len(rows) // self._size
        self._order, self._epoch = rows, -1

    def after(self, step: int) -> Tensor:
        """The records of the step that follows ``step`` steps."""
        epoch, place = divmod(step, self._in_epoch)
        if epoch != self._epoch:
            keys = self._streams(f"epoch {epoch}").uniform(len(self._rows))
            self._order, self._epoch = self._rows[torch.from_numpy(np.argsort(keys, kind="stable")).to(self._rows.device)], epoch
        return self._order[place * self._size : (place + 1) * self._size]
