r"""Whether all numbers of a tensor are finite, in one pass where they are."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from zetadp.trainer.layers.flat_parameters import as_real


def all_finite(values: Tensor) -> bool:
    """No NaN and no infinity. A sum with one of them is never finite; a sum may also overflow, so then each number is checked."""
    real = as_real(values)
    return math.isfinite(real.sum().item()) or bool(torch.isfinite(real).all())


@final
class Verdict:
    r"""Whether all numbers of a tensor were finite when this was made. ``is_finite`` waits for an accelerator if it isn't that far yet.

    >>> Verdict(torch.tensor([1.0, math.nan])).is_finite()
    False
    """

    def __init__(self, values: Tensor) -> None:
        self._reached: torch.cuda.Event | None = None
        if values.device.type != "cuda":
            self._told = torch.tensor(all_finite(values))
            return
        self._told = torch.isfinite(as_real(values)).all().to("cpu", non_blocking=True)
        self._reached = torch.cuda.Event()
        self._reached.record(torch.cuda.current_stream(values.device))

    def is_finite(self) -> bool:
        if self._reached is not None:
            self._reached.synchronize()
        return bool(self._told)
