r"""How well an autoencoder does on held-out rows: 1 - mean squared error, next to baselines that need no network."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor

from zetadp.trainer.engine.autoencoders.network import Autoencoder
from zetadp.trainer.engine.metrics import row_metrics
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.specs.report import MetricValues

ROWS_AT_ONCE = 4096


@final
class HeldOutRows:
    """Rows that weren't trained on, dealt to the encoders in turn."""

    def __init__(self, network: Autoencoder, rows: Tensor) -> None:
        self._network = network
        self._rows = rows
        self._places = torch.arange(len(rows), device=rows.device) % network.shape.encoders

    def metrics(self, parameters: Tensor, step: int) -> MetricValues:
        """Scores of the outputs sigmoid(z). Raises TrainingDiverged if one isn't finite."""
        parts: list[Tensor] = []
        for rows, places in zip(self._rows.split(ROWS_AT_ONCE), self._places.split(ROWS_AT_ONCE), strict=True):
            parts.append(torch.sigmoid(self._network.forward(parameters, rows, self._network.masks_of(places)).logits))
        outputs = torch.cat(parts)
        if not bool(outputs.isfinite().all()):
            raise TrainingDiverged(step)
        return cast("MetricValues", row_metrics(outputs.cpu().numpy(), self._rows.cpu().numpy()))
