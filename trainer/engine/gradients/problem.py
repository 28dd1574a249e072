r"""What is minimised: a network, each record's loss, and the training records, each alone or grouped by user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from trainer.models.losses import Losses


@final
@dataclass(frozen=True)
class Problem:
    r"""Everything on one device.

    Attributes:
      network: features (n, ...) -> outputs (n, ...); mixes no records. In every call of every module row r belongs to record r, whatever
        the data are: what made-up records show of that is checked before training, control flow that only rare data trigger can't be.
      losses: of each record by itself, neither summed nor averaged.
      features: of all training records, (records, ...); ``targets``: (records, ...).
      members: None where every record is a unit of privacy. Else (units, records_per_unit), int64: the record numbers of each unit (a
        user, say), first the real ones, then -1 as padding. No record belongs to two units.
    """

    network: nn.Module
    losses: Losses
    features: Tensor
    targets: Tensor
    members: Tensor | None

    @property
    def units(self) -> int:
        """How many units of privacy there are: what sampling and sensitivity count."""
        return len(self.features) if self.members is None else len(self.members)

    @property
    def records_per_unit(self) -> int:
        """Records of the largest unit allowed for, padding included."""
        return 1 if self.members is None else self.members.shape[1]
