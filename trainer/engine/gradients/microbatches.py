r"""Microbatches of few sizes, filled up with a made-up record: in a product with another number of rows a row may get other bits.

A last bit on the wrong side of a kink means another gradient, so one more record could change the gradients of all others in its product.
Libraries take one way to multiply for few rows and other ways for more, so a row gets the same bits in some of the sizes, and others in the
rest. Only sizes that agree are used together (``Sizes.agreeing``); this is probed before training (``Probe``), not proved.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.inputs import mapped, parts_of
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows
from zetadp.trainer.engine.gradients.per_unit import Microbatch, squared_features
from zetadp.trainer.engine.gradients.probe import made_up_features, made_up_parameters, mode, uneven
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.rules import LayerGradients
from zetadp.trainer.layers.rules.base import in_order

ROWS, WHOLE_ROWS = 4, 16
"""Records that sizes are multiples of, in small lots and in others: a library processes so many rows, or more, at once."""

MOST_SIZES = 12
GRADES = 8
"""A lot is about this many steps, so that filling up costs a sixteenth of it on average."""

SMALLER, LARGER = 3.0, 2.0
"""Sizes are for samples from so many standard deviations below the lot to so many above it: each is probed, which takes time. What is
larger still takes a second microbatch."""

FEWEST_TURNS, MOST_TURNS, NUMBERS_TURNED = 2, 12, 2**16
"""How often units are moved to other places in a probe: more often where they are small, and few of their numbers could differ; and up to
how many numbers of a microbatch everything of all units is compared."""

AT_ONCE = 16
"""Complex numbers that are multiplied at once, or a divisor of these: what is left of a tensor is multiplied one by one, in another way."""

PASS = 8
"""Units that could be computed in the time that a microbatch takes by the way."""

Gradients = Callable[[Mapping[str, Tensor], Microbatch], Sequence[LayerGradients]]


@final
class Bits(NamedTuple):
    r"""What units get in microbatches of a size.

    Attributes:
      all: (numbers, units), of every unit.
      one: more of the first unit.
    """

    all: Tensor
    one: Sequence[Tensor]

    def agree(self, others: Bits) -> bool:
        """Whether units that are in both get the same."""
        units = min(self.all.shape[1], others.all.shape[1])
        return torch.equal(self.all[:, :units], others.all[:, :units]) and are_equal(self.one, others.one)


@final
@dataclass(frozen=True)
class Sizes:
    """Sizes in units, from the smallest to the largest."""

    each: tuple[int, ...]

    @staticmethod
    def of(most: int, lot: int, records: int = 1) -> Sizes:
        r"""Sizes of at most ``most`` units, for samples of about ``lot``, of ``records`` records each.

        >>> Sizes.of(1000, 64).each
        (40, 48, 56, 64, 72, 80)
        >>> Sizes.of(1000, 600).each, Sizes.of(3, 64).each, Sizes.of(32, 24, 8).each
        ((480, 560, 640, 720), (3,), (4, 8, 12, 16, 20, 24, 28, 32))
        """
        least, whole = (rows // math.gcd(rows, records) for rows in (ROWS, WHOLE_ROWS))
        step = least * -(-lot // (least * GRADES))
        if 2 * step > whole:
            step = whole * -(-step // whole)
        step = min(most, step)
        needed, count = math.ceil((lot + LARGER * lot**0.5) / step), min(most // step, MOST_SIZES)
        # What is left of a sample after a whole microbatch may be small.
        first = 1 if count < needed else max(1, math.floor((lot - SMALLER * lot**0.5) / step))
        return Sizes(tuple(range(step * first, step * min(count, needed) + 1, step)))

    @property
    def largest(self) -> int:
        return self.each[-1]

    def of_microbatch(self, units: int) -> int:
        """The smallest size that holds this many units; 0 for none."""
        return self.each[bisect_left(self.each, units)] if units else 0

    def agreeing(self, bits: Callable[[int], Bits | None], lot: int) -> Sizes | None:
        r"""Those of them in which units have the same bits; where several groups of sizes have, the one that costs samples of about ``lot``
        units least. None: there is no size in which a unit has bits of its own.

        Args:
          bits: of made-up units in a microbatch of the given size; None if they depend on places there, or on the other units.
        """
        groups: list[tuple[Bits, list[int]]] = []
        for size in self.each:
            found = bits(size)
            if found is None:
                continue
            known = next((sizes for first, sizes in groups if first.agree(found)), None)
            if known is None:
                groups.append((found, [size]))
            else:
                known.append(size)
        return min((Sizes(tuple(sizes)) for _, sizes in groups), key=lambda sizes: sizes.cost(lot), default=None)

    def cost(self, lot: int) -> int:
        r"""Units computed for samples from one standard deviation below ``lot`` to two above it, each microbatch counted as ``PASS`` more.

        >>> Sizes((8, 16)).cost(60), Sizes((24, 32, 40, 48, 56, 64, 72, 80)).cost(60)
        (416, 304)
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
        features = made_up_features(problem.features, 1)
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
        self.fill(filled, slice(len(units) * problem.records_per_unit, None))
        if replaced is not None:
            self.fill(filled, torch.nonzero(replaced.repeat_interleave(problem.records_per_unit)).squeeze(1))
        return filled

    def fill(self, batch: Microbatch, rows: slice | Tensor) -> None:
        """Puts the padding in the place of these rows, which were copied just now, with weight 0."""
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


@final
class Probe:
    r"""Whether made-up units have the same norms, to the bit, at every place of a microbatch, beside any others and beside padding.

    All units are compared, since most would keep their bits where one in thirty doesn't, and moved several times: what differs may be the
    last places alone, whose numbers a library takes one by one where it takes all others many at once. Of all units, or of three where they
    are large, every module's output and every slope are compared too: a last bit of theirs is lost in most norms. Units are moved most
    often where complex numbers are left over at the end, of which few differ. Not the gradients of single weights: only sums of these
    leave, and clipping's own margin covers the rounding of a sum. Dropout's masks are left out: drawn for a place in the microbatch, they
    are as good as independent of everything.

    Args:
      most: the most units of a microbatch.
    """

    def __init__(self, gradients: Gradients, problem: Problem, padding: Padding, most: int) -> None:
        self._gradients, self._problem, self._padding = gradients, problem, padding
        self._parameters = made_up_parameters(problem.network)
        self._most = most
        self._features = uneven(made_up_features(problem.features, (most + others_of(most)) * problem.records_per_unit))
        self._numbers = sum(part[: problem.records_per_unit].numel() for part in parts_of(self._features).values())

    def __call__(self, size: int) -> Bits | None:
        """What they have in microbatches of ``size`` units; None if it depends on places or companions."""
        units = torch.arange(size)
        watched = units if size * self._numbers <= NUMBERS_TURNED else torch.tensor(sorted({0, size // 2, size - 1}))
        with mode(self._problem.network, training=False):
            norms, seen = self._found(units, 0, watched)
            left_over = any(value.is_complex() and size * value[0].numel() % AT_ONCE for value in seen)
            turned = [(units.roll(places), size, 0) for places in turns(size, 0 if left_over else self._numbers * size)]
            # And the other way round, where the last places have other units, and padding.
            other, padding = others_of(size), size // 4
            left = size - other - padding
            mixed = torch.cat((units.flip(0)[:left], torch.arange(self._most, self._most + other), units[:padding]))
            for order, own, missing in (*turned, (mixed, left, padding)):
                is_there, places = torch.nonzero(watched[:, None] == order[:own]).unbind(1)
                others, seen_there = self._found(order, missing, places)
                if not torch.equal(others[:, :own], norms[:, order[:own]]):
                    return None
                if not are_equal([value[is_there] for value in seen], seen_there):
                    return None
        return Bits(norms, [value[0] for value in seen])

    def _found(self, order: Tensor, missing: int, places: Tensor) -> tuple[Tensor, list[Tensor]]:
        """All units' norms, (layers and the whole, units), and what is seen at these places; the last ``missing`` units are padding."""
        problem, each = self._problem, self._problem.records_per_unit
        rows = (order[:, None] * each + torch.arange(each)).reshape(-1).to(problem.targets.device)
        features = mapped(self._features, lambda part: part[rows])
        targets = torch.zeros_like(problem.targets[:1]).expand(len(rows), *problem.targets.shape[1:]).contiguous()
        weights = None if problem.members is None and not missing else torch.ones(len(rows), device=rows.device)
        batch = Microbatch(features, targets, weights, len(order), squared_features(features))
        if missing:
            self._padding.fill(batch, slice(len(rows) - missing * each, None))
        seen: list[Tensor] = []

        def see(value: Tensor) -> None:
            if len(value) == len(rows):
                seen.append(value.detach().unflatten(0, (len(order), each))[places.to(value.device)])

        def watch(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.dim():
                see(output)
                if output.requires_grad:
                    output.register_hook(see)

        hooks = [module.register_forward_hook(watch) for module in problem.network.modules()]
        try:
            squares = torch.stack([layer.squared_norms() for layer in self._gradients(self._parameters, batch)])
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat((squares, lengths(squares)[None])), seen


def others_of(size: int) -> int:
    """In how many places of a microbatch other units are put."""
    return max(1, size // 4) if size > 1 else 0


def turns(size: int, numbers: int) -> set[int]:
    r"""By how many places units of a microbatch are turned, which has so many ``numbers``.

    >>> sorted(turns(64, 2**20)), sorted(turns(16, 2**14)), turns(2, 10)
    ([1, 32], [1, 4, 8, 12], {1})
    """
    count = min(MOST_TURNS, max(FEWEST_TURNS, NUMBERS_TURNED // max(1, numbers)))
    return {max(1, size * turn // count) for turn in range(count)} - {size}


def lengths(squares: Tensor) -> Tensor:
    """Whole gradients' norms, (units,), of the squares (layers, units)."""
    return in_order(squares.unbind()).sqrt()


def are_equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether they are as many, of the same values."""
    return len(some) == len(others) and all(torch.equal(*pair) for pair in zip(some, others, strict=True))
