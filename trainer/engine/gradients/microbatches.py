r"""Microbatches of few sizes, filled up with a made-up record: in a product with another number of rows a row may get other bits.

A last bit on the wrong side of a kink means another gradient, so one more record could change the gradients of all others in its product.
Libraries take one way to multiply for few rows and other ways for more, so a row gets the same bits in some of the sizes, and others in the
rest. Only sizes that agree are used together (``Sizes.agreeing``); this is probed before training (``bits_of_a_unit``), not proved.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
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

ROWS, WHOLE_ROWS = 4, 16
"""Records that sizes are multiples of, in small lots and in others: a library processes so many rows, or more, at once."""

MOST_SIZES = 12
GRADES = 8
"""A lot is about this many steps, so that filling up costs a sixteenth of it on average."""

DEVIATIONS = 4.0
"""Sizes go up to samples so many standard deviations larger than the lot; what is larger still takes a second microbatch."""

PASS = 8
"""Units that could be computed in the time that a microbatch takes by the way."""

Gradients = Callable[[Mapping[str, Tensor], Microbatch], Sequence[LayerGradients]]
Bits = list[Tensor]


@final
@dataclass(frozen=True)
class Sizes:
    """Sizes in units, from the smallest to the largest."""

    each: tuple[int, ...]

    @staticmethod
    def of(most: int, lot: int, records: int = 1) -> Sizes:
        r"""Sizes of at most ``most`` units, for samples of about ``lot``, of ``records`` records each.

        >>> Sizes.of(1000, 64).each
        (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96)
        >>> Sizes.of(1000, 600).each, Sizes.of(3, 64).each, Sizes.of(32, 24, 8).each
        ((80, 160, 240, 320, 400, 480, 560, 640, 720), (3,), (4, 8, 12, 16, 20, 24, 28, 32))
        """
        least, whole = (rows // math.gcd(rows, records) for rows in (ROWS, WHOLE_ROWS))
        step = least * -(-lot // (least * GRADES))
        if 2 * step > whole:
            step = whole * -(-step // whole)
        step = min(most, step)
        needed = math.ceil((lot + DEVIATIONS * lot**0.5) / step)
        return Sizes(tuple(range(step, step * min(most // step, MOST_SIZES, needed) + 1, step)))

    @property
    def largest(self) -> int:
        return self.each[-1]

    def of_microbatch(self, units: int) -> int:
        """The smallest size that holds this many units; 0 for none."""
        return self.each[bisect_left(self.each, units)] if units else 0

    def agreeing(self, bits: Callable[[int], Bits | None], lot: int) -> Sizes | None:
        r"""Those of them in which a unit has the same bits; where several groups of sizes have, the one that costs samples of about ``lot``
        units least. None: a unit has no bits of its own in any size.

        Args:
          bits: of a unit in a microbatch of the given size; None if they depend on its place there, or on the other units.
        """
        groups: list[tuple[Bits, list[int]]] = []
        for size in self.each:
            found = bits(size)
            if found is None:
                continue
            known = next((sizes for first, sizes in groups if are_equal(first, found)), None)
            if known is None:
                groups.append((found, [size]))
            else:
                known.append(size)
        return min((Sizes(tuple(sizes)) for _, sizes in groups), key=lambda sizes: sizes.cost(lot), default=None)

    def cost(self, lot: int) -> int:
        r"""Units computed for samples from one standard deviation below ``lot`` to two above it, each microbatch counted as ``PASS`` more.

        >>> Sizes((8, 16)).cost(60), Sizes((24, 32, 40, 48, 56, 64, 72, 80)).cost(60)
        (432, 296)
        """
        total = 0
        for deviations in (-1, 0, 1, 2):
            whole, left = divmod(max(1, round(lot + deviations * lot**0.5)), self.largest)
            total += whole * (self.largest + PASS) + (self.of_microbatch(left) + PASS if left else 0)
        return total


ONE_BY_ONE = Sizes((1,))


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


def bits_of_a_unit(gradients: Gradients, problem: Problem, size: int) -> Bits | None:
    r"""A made-up unit's norms, activations and slopes in a microbatch of ``size`` units; None if they depend, in any bit, on its position or
    on the other units.

    Dropout's masks are left out: they are drawn for a place in the microbatch and are as good as independent of everything.
    """
    parameters = made_up_parameters(problem.network)
    with mode(problem.network, training=False):
        first, *others = (_unit(gradients, parameters, problem, size, place, seed) for seed, place in enumerate((0, size // 2, size - 1)))
    return first if all(are_equal(first, found) for found in others) else None


def are_equal(one: Bits, other: Bits) -> bool:
    """Whether they are as many, of the same values."""
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def _unit(gradients: Gradients, parameters: Mapping[str, Tensor], problem: Problem, size: int, place: int, seed: int) -> Bits:
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
