r"""Microbatches of few sizes, filled up with a made-up record: in a product with another number of rows a row may get other bits.

A last bit on the wrong side of a kink means another gradient, so one more record could change the gradients of all others in its product.
Within these sizes rows keep their bits; this is probed before training (``keeps_its_bits``), not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.inputs import is_numeric, mapped
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.per_unit import Microbatch, squared_features
from zetadp.trainer.engine.gradients.probe import made_up_features, made_up_parameters, mode
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.rules import LayerGradients

STEPS = (4, 16)
"""Sizes are multiples of the first if rows then keep their bits, else of the second: a library processes so many rows, or more, at once."""

MOST_SIZES = 12
GRADES = 8
"""A lot is about this many steps, so that filling up costs a sixteenth of it on average, and few samples need a second microbatch."""

Gradients = Callable[[Mapping[str, Tensor], Microbatch], Sequence[LayerGradients]]


@final
@dataclass(frozen=True)
class Sizes:
    """Sizes in units: multiples of ``step`` up to ``largest``, which is one of them."""

    step: int
    largest: int

    @staticmethod
    def of(most: int, lot: int, step: int = STEPS[0]) -> Sizes:
        r"""At most ``most`` units at once, for samples of about ``lot``, in multiples of ``step``.

        >>> Sizes.of(1000, 64), Sizes.of(1000, 600), Sizes.of(3, 64)
        (Sizes(step=8, largest=96), Sizes(step=76, largest=912), Sizes(step=3, largest=3))
        """
        step = min(most, step * -(-lot // (step * GRADES)))
        return Sizes(step, min(most // step, MOST_SIZES) * step)

    def of_microbatch(self, units: int) -> int:
        """The smallest size that holds this many units."""
        return -(-units // self.step) * self.step

    def all(self) -> Iterator[int]:
        """All sizes, from the smallest to the largest."""
        return iter(range(self.step, self.largest + 1, self.step))


@final
@dataclass(frozen=True)
class Padding:
    """One made-up record, (1, ...), with a target and its features' squared norm, to fill microbatches up."""

    features: Tensor
    target: Tensor
    square: Tensor | None

    @staticmethod
    def of(problem: Problem) -> Padding:
        """Padding with the data's shape, type and device."""
        features = made_up_features(problem, 1)
        return Padding(features, torch.zeros_like(problem.targets[:1]), squared_features(features))

    def gathered(self, problem: Problem, units: Tensor, squares: Tensor | None, size: int, replaced: Tensor | None = None) -> Microbatch:
        r"""The records of some units, filled up to ``size`` units; see ``gather``. No gradient flows into the padding.

        Args:
          replaced: which of the units have padding in their places: their gradients aren't finite, (units,), bool.
        """
        missing = size - units.shape[0]
        if not missing and replaced is None:
            return gather(problem, units, squares)
        batch = gather(problem, torch.cat((units, units.new_zeros(missing))), squares)
        weights = torch.ones(len(batch.features), device=units.device) if batch.weights is None else batch.weights
        filled = Microbatch(batch.features, batch.targets, weights, size, batch.squares)
        self._fill(filled, slice(len(units) * problem.records_per_unit, None))
        if replaced is not None:
            self._fill(filled, torch.nonzero(replaced.repeat_interleave(problem.records_per_unit)).squeeze(1))
        return filled

    def _fill(self, batch: Microbatch, rows: slice | Tensor) -> None:
        # In place: the rows were copied just now.
        batch.features[rows] = self.features
        batch.targets[rows] = self.target
        if batch.squares is not None and self.square is not None:
            batch.squares[rows] = self.square
        assert batch.weights is not None
        batch.weights[rows] = 0.0


def gather(problem: Problem, units: Tensor, squares: Tensor | None) -> Microbatch:
    """The records of some units; ``squares``: squared norms of all records' features.

    Padding repeats the unit's own first record: whatever it gives stays within the unit.
    """
    rows, weights = units, None
    if problem.members is not None:
        members = problem.members[units]
        rows = torch.where(members < 0, members[:, :1], members).reshape(-1)
        weights = (members >= 0).reshape(-1).float()
    # Twice as fast as an index.
    features, targets = problem.features.index_select(0, rows), problem.targets.index_select(0, rows)
    if isinstance(problem.features, LazyRows):
        # By the same function as all records' squares, for the same bits.
        return Microbatch(features, targets, weights, len(units), squared_features(features))
    return Microbatch(features, targets, weights, units.shape[0], None if squares is None else squares.index_select(0, rows))


def keeps_its_bits(gradients: Gradients, problem: Problem, size: int, smallest: int) -> bool:
    r"""Whether a made-up unit has the same norm, activations and slopes, to the bit, in microbatches of ``size`` and of ``smallest`` units,
    at every position and beside any other units.

    Dropout's masks are left out: they are drawn for a place in the microbatch and are as good as independent of everything.
    """
    parameters = made_up_parameters(problem.network)
    with mode(problem.network, training=False):
        expected = _unit(gradients, parameters, problem, smallest, 0, 0)
        for place, seed in ((size // 2, 1), (size - 1, 2)):
            found = _unit(gradients, parameters, problem, size, place, seed)
            if len(found) != len(expected) or not all(torch.equal(one, other) for one, other in zip(expected, found, strict=True)):
                return False
    return True


def _unit(gradients: Gradients, parameters: Mapping[str, Tensor], problem: Problem, size: int, place: int, seed: int) -> list[Tensor]:
    """Squared norms of the one unit's gradient, every module's output for it and every slope there, at ``place`` among others that the
    seed decides.

    Not the gradients of single weights: only sums of these leave, and clipping's own margin covers the rounding of a sum.
    """
    each = problem.records_per_unit
    own = made_up_features(problem, each)
    features = mapped(
        made_up_features(problem, size * each),
        lambda part: part.roll(seed, 0) * (1.0 + 0.5 * seed) if is_numeric(part) else part.roll(seed, 0),
    )
    mine = slice(place * each, (place + 1) * each)
    features[mine] = own
    targets = torch.zeros_like(problem.targets[:1]).expand(size * each, *problem.targets.shape[1:]).contiguous()
    weights = None if problem.members is None else torch.ones(size * each, device=features.device)
    seen: list[Tensor] = []

    def see(value: Tensor) -> None:
        if len(value) == len(features):
            seen.append(value[mine].detach().clone())

    def watch(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim():
            see(output)
            if output.requires_grad:
                output.register_hook(see)

    hooks = [module.register_forward_hook(watch) for module in problem.network.modules()]
    try:
        found = gradients(parameters, Microbatch(features, targets, weights, size, squared_features(features)))
    finally:
        for hook in hooks:
            hook.remove()
    return [*(layer.squared_norms()[place] for layer in found), *seen]
