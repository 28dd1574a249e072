r"""What correlated strategies make of a run's sums before there is noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.engine.noise.weighted import CorrelatedSums, Encoding


def encoded(sums: CorrelatedSums, step: int, total: Tensor) -> Tensor:
    """What noise would be added to, (numbers,), float64."""
    with sums.encoding(step, total) as encoding:
        return encoding.over(total)


class Encodings:
    """What a run gave to its strategy, step by step, and what noise was added to."""

    def __init__(self, patch: pytest.MonkeyPatch, sums: type[CorrelatedSums] = BandedSums) -> None:
        self.steps: list[int] = []
        self.totals: list[Tensor] = []
        self.rows: list[Tensor] = []
        original = sums.encoding

        @contextmanager
        def encoding(own: CorrelatedSums, step: int, total: Tensor) -> Iterator[Encoding]:
            with original(own, step, total) as found:
                self.steps.append(step)
                self.totals.append(total.clone())
                self.rows.append(found.rule.over(total, found.earlier, None, torch.empty_like(total, dtype=torch.float64)))
                yield found

        patch.setattr(sums, "encoding", encoding)
