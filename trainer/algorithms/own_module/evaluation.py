r"""Records that a caller's module is measured on: declared public by their owner, or private and paid for from the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.specs.network_training import NoEvaluation, PrivateAccuracy, PublicHeldOut
from zetadp.trainer.specs.report import HeldOut


@final
@dataclass(frozen=True)
class PublicRecords:
    r"""Records that you declare public: exact metrics on them cost nothing, and no guarantee covers them.

    Attributes:
      features: (records, ...), as for training.
      targets: class labels, int64 (records,); or what outputs are compared with: complex images (records, channels, height, width), or
        real rows (records, features).
    """

    features: Any
    targets: Any

    @property
    def asked(self) -> PublicHeldOut:
        """What a spec says of it."""
        return PublicHeldOut()


@final
@dataclass(frozen=True)
class PrivateRecords:
    r"""Records as private as the training records: the number that the module classifies correctly is released with Gaussian noise.

    Attributes:
      features: (records, ...), as for training. Their number is public.
      targets: class labels, int64 (records,).
      noise_std: standard deviation of the noise on a count, in records; > 0. One record changes a count by at most 1.
      every_steps: a count is released after so many steps each, and after the last one. All of them are part of the epsilon asked for.
    """

    features: Any
    targets: Any
    noise_std: float
    every_steps: int

    @property
    def asked(self) -> PrivateAccuracy:
        """What a spec says of it."""
        return PrivateAccuracy(noise_std=float(self.noise_std), every_steps=self.every_steps)


Held = PublicRecords | PrivateRecords | None


def asked_evaluation(held: Held) -> NoEvaluation | PublicHeldOut | PrivateAccuracy:
    """What a spec says of these records."""
    return NoEvaluation() if held is None else held.asked


def held_tensors(held: Held, device: torch.device) -> tuple[Tensor, Tensor]:
    r"""Features and targets on the device; empty ones where nothing is held out.

    Raises:
      InvalidParameter: they aren't as many, or none.
    """
    if held is None:
        return torch.zeros(0, device=device), torch.zeros(0, device=device)
    features, targets = (
        one.detach() if isinstance(one, Tensor) else torch.as_tensor(np.asarray(one)) for one in (held.features, held.targets)
    )
    if not features.dim() or not len(features) or targets.shape[:1] != features.shape[:1]:
        expected = "(records, ...) features and as many targets, of at least one record"
        raise InvalidParameter("evaluation", expected, f"{tuple(features.shape)} and {tuple(targets.shape)}")
    return features.to(device), targets.to(device)


def are_labels(targets: Tensor) -> bool:
    """Whether they are one class number for each record."""
    return targets.dim() == 1 and targets.dtype == torch.int64


def check_evaluation(held_out: HeldOutRecords, state: TrainingState, kind: HeldOut, targets: Tensor) -> None:
    r"""Before training: tries the evaluation with the initial parameters, and lets nothing of private records out.

    Raises:
      InvalidParameter: it can't be measured.
    """
    if kind == "none":
        return
    if kind == "private" and not are_labels(targets):
        raise InvalidParameter("evaluation", "class labels, int64 (records,), where the records are private", f"{targets.dtype}")
    try:
        if kind == "public":
            held_out.check_measurable()
            held_out.metrics(state, classifies=are_labels(targets))
        else:
            held_out.check_scores(state)
    except (RuntimeError, IndexError, TypeError) as error:
        raise InvalidParameter("evaluation", "records that the module takes", str(error).splitlines()[0]) from error
