r"""How a state does on held-out records: in public, through budgeted noise, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.metrics import classification_metrics, reconstruction_metrics, row_metrics
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.specs.execution_plan import PrivateEvaluation
from zetadp.trainer.specs.report import MetricValues

RECORDS_AT_ONCE = 512


@final
class HeldOutRecords:
    """Features and targets, (records, ...), of records that weren't trained on, and the network that is evaluated on them."""

    def __init__(self, network: nn.Module, layout: ParameterLayout, features: Tensor, targets: Tensor) -> None:
        self._network = network
        self._layout = layout
        self._features = features
        self._targets = targets

    def check_measurable(self) -> None:
        """Before training: raises InvalidParameter if every image to be reconstructed is empty."""
        if not bool(self._measurable.any()):
            raise InvalidParameter(
                "evaluation", "none where every held-out image is zero (the relative error isn't defined)", "public_held_out"
            )

    def check_scores(self, state: TrainingState) -> None:
        """Before training: raises InvalidParameter if outputs aren't the scores of classes; looks at one record's shape alone."""
        shape = tuple(next(self._outputs(state)).shape[1:])
        if len(shape) != 1:
            raise InvalidParameter("evaluation", "of a module whose outputs are (records, classes)", f"(records, {str(shape)[1:]}")

    @property
    def _measurable(self) -> Tensor:
        """(records,): all but empty images to be reconstructed (slices beyond the head, say), whose relative error isn't defined."""
        if not self._targets.is_complex():
            return torch.ones(len(self._targets), dtype=torch.bool, device=self._targets.device)
        return (torch.view_as_real(self._targets).flatten(1) != 0.0).any(dim=1)

    def metrics(self, state: TrainingState, *, classifies: bool) -> MetricValues:
        r"""The metrics on public records; reconstructions of empty images are left out.

        Raises:
          TrainingDiverged: an output isn't finite.
        """
        outputs = torch.cat(list(self._outputs(state))).cpu()
        real = torch.view_as_real(outputs) if outputs.is_complex() else outputs
        if not bool(real.isfinite().all()):
            raise TrainingDiverged(state.step)
        reconstructs = reconstruction_metrics if self._targets.is_complex() else row_metrics
        measure = classification_metrics if classifies else reconstructs
        kept = self._measurable.cpu()
        return cast("MetricValues", measure(outputs[kept].numpy(), self._targets.cpu()[kept].numpy()))

    def noisy_accuracy(self, state: TrainingState, evaluation: PrivateEvaluation, stream: RandomStream) -> MetricValues:
        r"""The accuracy on private records: the noisy number of correct answers over the public number of records, within [0, 1].

        An output that isn't finite counts as a wrong answer: refusing it would reveal that the record is there.
        """
        right = 0
        for outputs, targets in zip(self._outputs(state), self._targets.split(RECORDS_AT_ONCE), strict=True):
            right += int(((outputs.argmax(dim=1) == targets) & outputs.isfinite().all(dim=1)).sum())
        count = torch.tensor([float(right)], dtype=torch.float64)
        noisy = evaluation.mechanism.release(count, TorchSource(stream, count.device)).item()
        return {"accuracy": float(np.clip(noisy / evaluation.units, 0.0, 1.0))}

    def _outputs(self, state: TrainingState) -> Iterator[Tensor]:
        parameters = self._layout.unflatten(state.parameters)
        before = self._network.training
        self._network.eval()
        try:
            with torch.no_grad():
                for features in self._features.split(RECORDS_AT_ONCE):
                    yield functional_call(self._network, parameters, (features,))
        finally:
            self._network.train(before)
