r"""The training rows in memory: which ones are used, whose they are, and which encoder each one goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.data.base import DataSet
from zetadp.trainer.data.splits import dealt, record_keys
from zetadp.trainer.engine.membership import members_of
from zetadp.trainer.specs.autoencoder import AutoencoderSpec


@final
@dataclass(frozen=True)
class TrainingRows:
    r"""The rows that are used: all of them, or each user's first ``records_per_user``.

    Attributes:
      features: (rows, n) float32, in [0, 1].
      places: which encoder each row goes to, (rows,) int64.
      members: None where every row is a unit of privacy; else the rows of each user, (users, rows of the largest), int64, padded with -1.
    """

    features: Tensor
    places: Tensor
    members: Tensor | None

    @property
    def units(self) -> int:
        """The number of units of privacy: rows, or the users whose rows they are."""
        return len(self.features if self.members is None else self.members)

    @staticmethod
    def of(spec: AutoencoderSpec, facts: DataSetFacts, data: DataSet, device: torch.device) -> TrainingRows:
        """Raises InvalidParameter where ``records_per_user`` doesn't fit the unit."""
        users, members = data.training_users, None
        rows = torch.from_numpy(np.ascontiguousarray(data.training_features))
        if users is not None:
            keys = users
        elif spec.adjacency is Adjacency.REPLACE_ONE:
            # Nothing about a row that can be replaced may be revealed except its noisy release.
            keys = np.arange(len(rows))
        else:
            keys = record_keys(data.training_features)
        places = torch.from_numpy(dealt(keys, spec.encoders, 0, "encoders of rows"))
        if spec.protects_users(facts):
            assert users is not None  # the facts name a user unit
            assert spec.records_per_user is not None  # checked with the unit
            kept = members_of(users, spec.records_per_user)
            used = kept[kept >= 0].sort().values
            rows, places = rows[used], places[used]
            # The same rows by their new numbers.
            members = torch.where(kept < 0, kept, torch.searchsorted(used, kept)).to(device)
        return TrainingRows(rows.to(device), places.to(device), members)
