r"""How a state does on held-out records: in public, through budgeted noise, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.gradients.inputs import mapped
from zetadp.trainer.engine.gradients.probe import made_up_features, uneven
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.metrics import classification_metrics, mean_metrics, reconstruction_rows, row_metrics
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.products import WholeProducts
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.layers.flat_parameters import ParameterLayout, as_real
from zetadp.trainer.models.front import mixed, steady_size
from zetadp.trainer.specs.execution_plan import PrivateEvaluation
from zetadp.trainer.specs.report import MetricValues

RECORDS_AT_ONCE = 512
BYTES_AT_ONCE = 2**22
"""Of their features, where so many records would be more."""


@final
class HeldOutRecords:
    """Features and targets, (records, ...), of records that weren't trained on, and the network that is evaluated on them.

    Tensors, or ``LazyRows``, which are read some at a time.
    """

    def __init__(self, network: nn.Module, layout: ParameterLayout, features: Tensor, targets: Tensor) -> None:
        self._network = network
        self._layout = layout
        self._features = features
        self._targets = targets
        self._steady: int | None = None

    def check_measurable(self) -> None:
        """Before training: raises InvalidParameter if every image to be reconstructed is empty."""
        if not any(bool(_measurable(targets).any()) for _, targets in self._pieces(self._at_once)):
            raise InvalidParameter(
                "evaluation", "none where every held-out image is zero (the relative error isn't defined)", "public_held_out"
            )

    def check_scores(self, state: TrainingState) -> None:
        """Before training: raises InvalidParameter if outputs aren't the scores of classes; looks at one record's shape alone."""
        shape = tuple(next(self._outputs(state))[1].shape[1:])
        if len(shape) != 1:
            raise InvalidParameter("evaluation", "of a module whose outputs are (records, classes)", f"(records, {str(shape)[1:]}")

    def metrics(self, state: TrainingState, *, classifies: bool) -> MetricValues:
        r"""The metrics on public records; reconstructions of empty images are left out.

        Beside a reconstruction's stand those of the image that the network was given: training that stays below them is of no use.
        Images are compared some at a time; of other records all outputs are held at once.

        Raises:
          TrainingDiverged: an output isn't finite.
        """
        found: list[dict[str, float]] = []
        given: list[dict[str, float]] = []
        outputs: list[Tensor] = []
        wanted: list[Tensor] = []
        for features, some, targets in self._outputs(state):
            if not bool(as_real(some).isfinite().all()):
                raise TrainingDiverged(state.step)
            if targets.is_complex() and not classifies:
                kept = _measurable(targets)
                if bool(kept.any()):
                    truth = targets[kept].cpu().numpy()
                    found += reconstruction_rows(some[kept].cpu().numpy(), truth)
                    given += reconstruction_rows(features[kept].cpu().numpy(), truth) if features.shape == targets.shape else []
            else:
                outputs.append(some.cpu())
                wanted.append(targets.cpu())
        if found:
            of_input = {f"{name}_of_input": value for name, value in mean_metrics(given).items()} if given else {}
            return cast("MetricValues", mean_metrics(found) | of_input)
        measure = classification_metrics if classifies else row_metrics
        return cast("MetricValues", measure(torch.cat(outputs).numpy(), torch.cat(wanted).numpy()))

    def noisy_accuracy(self, state: TrainingState, evaluation: PrivateEvaluation, stream: Callable[[Tensor], RandomStream]) -> MetricValues:
        r"""The accuracy on private records: the noisy number of correct answers over the public number of records, within [0, 1].

        An output that isn't finite counts as a wrong answer: refusing it would reveal that the record is there. One record more changes no
        other's output in any bit: where two classes' scores are equal but for the last bit, it would change what many records count.

        Args:
          stream: gives the one for the noise on this number.
        """
        right = 0
        for outputs, targets in self._steady_outputs(state):
            right += int(((outputs.argmax(dim=1) == targets) & outputs.isfinite().all(dim=1)).sum())
        count = torch.tensor([float(right)], dtype=torch.float64)
        noisy = evaluation.mechanism.release(count, TorchSource(stream(count), count.device)).item()
        return {"accuracy": float(np.clip(noisy / evaluation.units, 0.0, 1.0))}

    def _outputs(self, state: TrainingState) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The features, the outputs and the targets of some records at a time."""
        with self._evaluated(state) as network:
            for features, targets in self._pieces(self._at_once):
                yield features, network(features), targets

    def _steady_outputs(self, state: TrainingState) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets, in which no bit depends on other records: always as many at once, filled up at the end."""
        with self._evaluated(state) as network, WholeProducts():
            if self._steady is None:
                self._steady = steady_size(network, self._made_up)
            for features, targets in self._pieces(self._steady):
                yield network(_filled(features, self._steady))[: len(targets)], targets

    def _made_up(self, size: int) -> Callable[[Tensor, float], Tensor]:
        records = uneven(made_up_features(self._features, size))
        return lambda order, factor: mapped(records, lambda part: mixed(part, order, factor))

    @contextmanager
    def _evaluated(self, state: TrainingState) -> Iterator[Callable[[Tensor], Tensor]]:
        """The network with this state's parameters."""
        parameters = self._layout.unflatten(state.parameters)
        before = self._network.training
        self._network.eval()
        try:
            with torch.no_grad():
                yield lambda features: functional_call(self._network, parameters, (features,))
        finally:
            self._network.train(before)

    @property
    def _at_once(self) -> int:
        each = self._features.dtype.itemsize * math.prod(self._features.shape[1:])
        return max(1, min(RECORDS_AT_ONCE, BYTES_AT_ONCE // max(1, each)))

    def _pieces(self, some: int) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(0, len(self._features), some):
            rows = slice(first, min(first + some, len(self._features)))
            yield self._features[rows], self._targets[rows]


def _filled(records: Tensor, count: int) -> Tensor:
    """These records, and zeros up to ``count`` of them."""
    return mapped(records, lambda part: torch.cat((part, part.new_zeros(count - len(part), *part.shape[1:]))))


def _measurable(targets: Tensor) -> Tensor:
    """(records,): all but empty images to be reconstructed (slices beyond the head, say), whose relative error isn't defined."""
    if not targets.is_complex():
        return torch.ones(len(targets), dtype=torch.bool, device=targets.device)
    return (torch.view_as_real(targets).flatten(1) != 0.0).any(dim=1)
