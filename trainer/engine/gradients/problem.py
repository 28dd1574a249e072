r"""What is minimised: a network, each record's loss, and the training records, each alone or grouped by user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from zetadp.trainer.models.losses import Losses


@final
@dataclass(frozen=True)
class Problem:
    r"""A training problem, everything on one device.

    Attributes:
      network: features (n, ...) -> outputs (n, ...); doesn't mix records. In every call of every module row r belongs to record r, whatever
        the data are: this is checked before training on made-up records; control flow that only rare data trigger can't be checked.
      losses: gives the loss of each record separately, neither summed nor averaged.
      features: of all training records, (records, ...); ``targets``: (records, ...). Tensors, or ``LazyRows``, which read them when asked.
      members: None where every record is a unit of privacy. Else (units, records_per_unit), int64: the record numbers of each unit (for
        example a user), first the real ones, then -1 as padding. No record belongs to two units.
      is_random: whether the features of one record are others each time, drawn from torch's own generator.
    """

    network: nn.Module
    losses: Losses
    features: Tensor
    targets: Tensor
    members: Tensor | None
    is_random: bool = False

    @property
    def units(self) -> int:
        """The number of units of privacy, which sampling and sensitivity count."""
        return len(self.features) if self.members is None else len(self.members)

    @property
    def records_per_unit(self) -> int:
        """The number of records of the largest unit, padding included."""
        return 1 if self.members is None else self.members.shape[1]
