r"""What canaries and marks have in common: made-up units after the real ones, fair coins for which take part, and a score of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from zetadp.accountants.audit import Scores
from zetadp.mechanisms.sampling.source import RandomStream

MEMBERS, SCORES = "members", "scores"


class AuditedUnits(ABC):
    r"""The made-up units of one run; what has been learned about them so far is in the training state.

    Attributes:
      first: number of the first of them among the units; those before it are real.
    """

    KIND: ClassVar[Literal["canaries", "marks"]]
    first: int

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of them, whether they take part or not."""

    @abstractmethod
    def scores(self, state: Mapping[str, Tensor]) -> Scores:
        """What has been learned, in the form that audits read."""

    def begin(self, stream: RandomStream) -> dict[str, Tensor]:
        """The state before the first step: fair coins, and no scores."""
        members = torch.from_numpy(stream.uniform(self.count) < 0.5)
        return {MEMBERS: members, SCORES: torch.zeros(self.count, dtype=torch.float64)}

    def members(self, state: Mapping[str, Tensor], device: torch.device) -> Tensor:
        """Numbers of those that take part, to sample among with everybody else, int64."""
        return (torch.nonzero(state[MEMBERS]).squeeze(1) + self.first).to(device)
