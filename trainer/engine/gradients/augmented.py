r"""Random variants of records, drawn when they are asked for."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.checks import check_finite
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows, passed_alone
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.specs.augmentation import Augmentation


def with_variants(problem: Problem, augmentation: Augmentation, front: nn.Sequential) -> Problem:
    r"""The problem in which each record is ``copies`` records of its unit, each of them another variant whenever it is asked for.

    A unit's gradient is its records' sum of the means over their variants. Variants are drawn from torch's own generator, as masks are.

    Args:
      front: what each variant passes before the network.
    Raises:
      InvalidParameter: the records, which nobody looks at behind their variants, have NaN or infinity.
    """
    check_finite(problem.features, problem.targets)
    copies, losses = augmentation.copies, problem.losses
    own = torch.arange(problem.units, device=problem.features.device)[:, None] if problem.members is None else problem.members
    numbers = copies * own[..., None] + torch.arange(copies, device=own.device)
    # Padding of users with few records stays behind their records.
    members = torch.where(own[..., None] < 0, -1, numbers).reshape(len(own), -1)
    return Problem(
        network=problem.network,
        losses=lambda outputs, targets: losses(outputs, targets) / copies,
        features=cast("Tensor", LazyRows(Variants(problem.features, augmentation, front), 0)),
        targets=problem.targets.repeat_interleave(copies, dim=0),
        members=members,
        is_random=True,
    )


@final
class Variants:
    """``Rows`` in which record r's variants have the numbers from copies r on. Targets aren't asked of them."""

    def __init__(self, features: Tensor, augmentation: Augmentation, front: nn.Sequential) -> None:
        self._features, self._augmentation, self._front = features, augmentation, front

    def __len__(self) -> int:
        return len(self._features) * self._augmentation.copies

    def rows(self, numbers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """New variants of these numbers, and nothing."""
        records = torch.tensor(numbers, dtype=torch.int64, device=self._features.device) // self._augmentation.copies
        return passed_alone(self._front, varied(self._features.index_select(0, records), self._augmentation)), records


def varied(records: Tensor, augmentation: Augmentation) -> Tensor:
    """One variant of each record, (records, ...), drawn from torch's own generator."""
    found, count = records, len(records)
    if augmentation.shift or augmentation.flip:
        down, right = (_moved(found.shape[axis], count, augmentation.shift, found.device) for axis in (2, 3))
        if augmentation.flip:
            mirrored = torch.rand(count, 1, device=found.device) < 0.5
            right = torch.where(mirrored, right.flip(1), right)
        each, channels = torch.arange(count, device=found.device), torch.arange(found.shape[1], device=found.device)
        found = found[each[:, None, None, None], channels[:, None, None], down[:, None, :, None], right[:, None, None, :]]
    if augmentation.phase:
        angles = 2.0 * torch.pi * torch.rand(count, *(1,) * (found.dim() - 1), device=found.device)
        found = found * torch.polar(torch.ones_like(angles), angles)
    return found


def _moved(length: int, count: int, most: int, device: torch.device) -> Tensor:
    """Where each position of an axis is read, (count, length), after a shift by up to ``most``, reflected at both ends."""
    shifts = torch.randint(-most, most + 1, (count, 1), device=device)
    places = (torch.arange(length, device=device) + shifts).abs()
    return (length - 1) - ((length - 1) - places).abs()
