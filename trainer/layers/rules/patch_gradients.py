r"""Per-unit gradients of a correlation's weight: their norms and their weighted sum, by the cheapest of three routes.

HELD: every unit's gradient, by loops in C (``correlation``) or batched matrix products (``patches``), folded to the complex weight's, is
held from the norm to the clipped sum, which is then one product of the factors with it. The others never hold them. GRAM: few positions
before a large weight; the norms come from Gram matrices over the positions. DROPPED: holding is dear; the gradients are built for the norm,
a few units at a time, and a second time, already summed, for the sum. The choice depends on shapes only, so a run that is repeated rounds
the same way.

Of a kernel's spectrum (``Analysis``) either the per-unit gradients are taken to coordinates, which are fewer to hold; or, where one
frequency is kept, what the kernel sees is summed before everything else, and what is left is a kernel of one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Self, final

import torch
from torch import Tensor

from zetadp.trainer.layers.rules.analysis import Analysis
from zetadp.trainer.layers.rules.base import (
    HIDDEN_BY_UNDERFLOW,
    adds_little,
    at_once_on,
    cancellation,
    gram_squared_norms,
    in_order,
    squared_rows,
)
from zetadp.trainer.layers.rules.correlation import Found, gradients_of, is_taken
from zetadp.trainer.layers.rules.patches import Correlated, Geometry, by_groups, strips, summed_windows, windows

HELD_NUMBERS = 2**24
"""The per-unit gradients of a layer are held up to this many numbers, 64 MiB."""

NUMBERS_AT_ONCE = 2**20
"""Of gradients before they are folded, or of windows, that are built at once: a few MiB, which a processor's cache holds."""

FOLDING = 15
"""Multiplications in the time that one number of a per-unit gradient takes to be written, folded and squared."""

HOLDING = 48
"""The same, for its way to memory and back for the sum."""

MERGED_RECORDS = 4
"""From this many records in a unit on, one product over all their positions beats one for each record."""

LONGEST_ROW = 4096
"""Squares that a norm's kernel adds one after another, in float32; norms of longer rows are made of shorter ones."""


PullBack = Callable[[Tensor], Tensor]
"""Linear, of one unit's gradient, never longer than it: (rows, units, parts, groups, columns, channels, outputs), as ``explicit`` gives."""


class Route(Enum):
    """Ways to compute the norms and the sum."""

    HELD = "per-unit gradients, held for the sum"
    DROPPED = "per-unit gradients, a few at a time"
    GRAM = "Gram matrices over the positions"


def route_of(uses: Sequence[Correlated], geometry: Geometry, analysis: Analysis | None = None, pull_back: PullBack | None = None) -> Route:
    """The cheapest one, in multiplications for one group of one unit; their relative speeds were measured on one core."""
    inputs, outputs, positions = _columns(uses[0], geometry), uses[0].gradients.shape[4], _positions(uses)
    numbers = inputs * outputs // geometry.parts
    product = positions * inputs * outputs
    held = numbers if analysis is None else numbers * math.prod(analysis.sizes) // geometry.places
    # Gram matrices, with their windows, run at half the speed of many small products, and the sum in float64 at a third.
    costs = {Route.DROPPED: product + FOLDING * numbers + 3 * product}
    if analysis is None and pull_back is None:
        costs[Route.GRAM] = 2 * geometry.parts * positions**2 * (inputs + outputs) + 3 * product
    if uses[0].images.shape[1] * geometry.groups * held <= at_once_on(uses[0].images.device, HELD_NUMBERS):
        costs[Route.HELD] = product + FOLDING * numbers + HOLDING * held
    return min(costs, key=lambda route: costs[route])


@final
class PatchGradients:
    r"""The gradients of all uses of one weight together, or of their coordinates.

    Args:
      uses: with the same units, groups and channels; the images may differ in size.
      route: decides the cost, and nothing of the result beyond rounding.
      analysis: of the kernel's spectrum; None for the weight itself. Only of real numbers.
      pull_back: from the gradient of the filters that are applied to that of the trained ones; None where they are the same.
    """

    def __init__(
        self,
        uses: Sequence[Correlated],
        geometry: Geometry,
        route: Route,
        analysis: Analysis | None = None,
        pull_back: PullBack | None = None,
    ) -> None:
        if route is not Route.HELD:
            # Norms and sums over all numbers of a unit would copy them, a part at a time.
            uses = [replace(use, gradients=use.gradients.contiguous()) for use in uses]
        self._uses, self._geometry, self._route = list(uses), geometry, route
        self._analysis, self._pull_back = analysis, pull_back
        # By loops only what is held: norm and sum are then of the same numbers, however they were rounded.
        self.is_looped = route is Route.HELD and len(self._uses) == 1 and is_taken(self._uses[0], geometry)

    @classmethod
    def of(cls, uses: Sequence[Correlated], geometry: Geometry, pull_back: PullBack | None = None) -> Self:
        """The gradients by the cheapest route."""
        return cls(uses, geometry, route_of(uses, geometry, pull_back=pull_back), pull_back=pull_back)

    def projected(self, analysis: Analysis) -> PatchGradients:
        """The same with M g in place of g."""
        if analysis.is_constant and self._pull_back is None:
            return PatchGradients.of([summed_windows(use, self._geometry, analysis) for use in self._uses], self._geometry.of_one_place)
        route = route_of(self._uses, self._geometry, analysis, self._pull_back)
        return PatchGradients(self._uses, self._geometry, route, analysis, self._pull_back)

    def squared_norms(self) -> Tensor:
        """(units,)."""
        if self.is_looped:
            return self._found.squares
        if self._route is Route.HELD:
            return torch.cat([_squares(held) for held in self._held])
        if self._route is Route.GRAM:
            return torch.cat([_gram(part, self._geometry) for part in self._parts()])
        # What a filter takes away is no part of the norm, but of the sum's rounding: the slack is that of whole gradients.
        slacks = ((part, _slack(part, self._geometry)) for part in self._parts())
        return torch.cat([_squares(self._explicit(part)).to(slack.dtype) + slack for part, slack in slacks])

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> Tensor:
        """(parts, groups, kernel_height, kernel_width, channels, outputs of a group), or with coordinates along the kernel's axes."""
        if self._route is Route.HELD:
            total = self._sum_of_held(factors, sample)
        else:
            total = self._sum_of_products(factors.double())
            if self._pull_back is not None:
                total = self._pull_back(total[:, None])[:, 0]
            if self._analysis is not None:
                total = _projected(total, self._geometry, self._analysis)
        _, parts, groups, _, channels, outputs = total.shape
        axes = self._geometry.kernel if self._analysis is None else self._analysis.sizes
        return total.permute(1, 2, 0, 3, 4, 5).reshape(parts, groups, *(1, *axes)[-2:], channels, outputs)

    def gradient_sums(self) -> Tensor:
        """Sums over the positions of each unit's gradients, (units, parts * outputs), where there are no groups."""
        if self.is_looped:
            return self._found.sums
        return in_order([use.gradients.sum(dim=(0, 2, 3)) for use in self._uses])

    @cached_property
    def _found(self) -> Found:
        """By loops, as ``_held``, with the squared norms."""
        found = gradients_of(self._uses[0], self._geometry)
        self._uses.clear()
        if self._analysis is None and self._pull_back is None:
            return replace(found, squares=found.squares + found.weights[0, 0].numel() * HIDDEN_BY_UNDERFLOW)
        weights = self._fitted(found.weights)
        return replace(found, weights=weights, squares=_squares(weights))

    @cached_property
    def _held(self) -> list[Tensor]:
        if self.is_looped:
            return [self._found.weights]
        held = [self._explicit(part) for part in self._parts()]
        # The sum needs nothing else, and images beside what is held of every layer would be the most memory of a step.
        self._uses.clear()
        return held

    def _explicit(self, part: Sequence[Correlated]) -> Tensor:
        return self._fitted(explicit(part, self._geometry))

    def _fitted(self, gradients: Tensor) -> Tensor:
        """Of the trained filters, or their coordinates."""
        if self._pull_back is not None:
            # What is taken away may be much longer than what is left, which the sum computes again, in float64.
            gradients = self._pull_back(gradients if self._route is Route.HELD else gradients.double())
        return gradients if self._analysis is None else _projected(gradients, self._geometry, self._analysis)

    def _sum_of_held(self, factors: Tensor, sample: int) -> Tensor:
        """(rows, parts, groups, columns, channels, outputs)."""
        is_exact = not adds_little(len(factors), sample)
        of_parts = (factors.double() if is_exact else factors).split([held.shape[1] for held in self._held])
        rows = ((held.double() if is_exact else held).flatten(2) for held in self._held)
        sums = [torch.matmul(weights.to(own.dtype), own) for weights, own in zip(of_parts, rows, strict=True)]
        return in_order(sums).unflatten(1, self._held[0].shape[2:])

    def _sum_of_products(self, factors: Tensor) -> Tensor:
        """(1, parts, groups, places, channels, outputs): one matrix product of what the kernel sees, in the factors' float64."""
        total = torch.zeros((), dtype=factors.dtype, device=factors.device)
        for part, weights in zip(self._parts(), factors.split(self._together), strict=True):
            for inputs, gradients in (windows(use, self._geometry) for use in part):
                weighted = gradients * weights[:, None, None, None]
                by_group = (values.to(factors.dtype).transpose(0, 1).flatten(1, 2) for values in (inputs, weighted))
                total = total + torch.bmm(next(by_group).mT, next(by_group))
        return folded(total[None], self._geometry)[:, 0]

    @cached_property
    def _together(self) -> int:
        """The number of units in one part."""
        numbers = _columns(self._uses[0], self._geometry) * max(self._uses[0].gradients.shape[4], _positions(self._uses))
        return max(1, at_once_on(self._uses[0].images.device, NUMBERS_AT_ONCE) // (self._geometry.groups * numbers))

    def _parts(self) -> Iterator[list[Correlated]]:
        """The uses' parts, a few units at a time."""
        for first in range(0, self._uses[0].images.shape[1], self._together):
            yield [use.of_units(first, first + self._together) for use in self._uses]


def explicit(uses: Sequence[Correlated], geometry: Geometry) -> Tensor:
    """(rows, units, parts, groups, columns, channels, outputs): ``columns`` of the kernel in each of its ``rows``, or all in one."""
    if geometry.groups > 1:
        return folded(in_order([by_groups(use, geometry) for use in uses]), geometry)
    if geometry.stride[0] == 1 and geometry.kernel[0] > 1 and uses[0].images.shape[0] < MERGED_RECORDS:
        return folded(strips(uses, geometry), geometry)
    pairs = [windows(use, geometry) for use in uses]
    return folded(in_order([torch.bmm(inputs.flatten(0, 1).mT, gradients.flatten(0, 1)) for inputs, gradients in pairs])[None], geometry)


def _projected(gradients: Tensor, geometry: Geometry, analysis: Analysis) -> Tensor:
    """M over the places: (rows, ..., columns, channels, outputs) -> (rows' coordinates, ..., columns' coordinates, channels, outputs)."""
    rows, *outer, columns, channels, outputs = gradients.shape
    flat = gradients.reshape(rows, -1, columns, channels * outputs)
    if rows != geometry.kernel[0]:
        return (analysis.matrix(flat.dtype) @ flat).reshape(1, *outer, -1, channels, outputs)
    across = analysis.axis_matrix(-1, flat.dtype) @ flat
    if rows > 1:
        across = (analysis.axis_matrix(0, flat.dtype) @ across.flatten(1)).unflatten(1, across.shape[1:])
    return across.reshape(len(across), *outer, -1, channels, outputs)


def folded(products: Tensor, geometry: Geometry) -> Tensor:
    r"""g conj(a) out of the four real products of parts: real a_r g_r + a_i g_i, imaginary a_r g_i - a_i g_r.

    Args:
      products: (rows, units * groups, columns * parts * channels, parts * outputs).
    """
    rows, batch, inputs, outputs = products.shape
    columns, parts = geometry.places // rows, geometry.parts
    split = products.view(
        rows, batch // geometry.groups, geometry.groups, columns, parts, inputs // (columns * parts), parts, outputs // parts
    )
    if parts == 1:
        return split.movedim(6, 2).squeeze(5)
    result = split.new_empty(rows, split.shape[1], 2, geometry.groups, columns, split.shape[5], split.shape[7])
    torch.add(split[:, :, :, :, 0, :, 0], split[:, :, :, :, 1, :, 1], out=result[:, :, 0])
    torch.sub(split[:, :, :, :, 0, :, 1], split[:, :, :, :, 1, :, 0], out=result[:, :, 1])
    return result


def _squares(gradients: Tensor) -> Tensor:
    """Of each unit, (rows, units, ...) -> (units,)."""
    units, rest = gradients.shape[1], gradients.shape[2:]
    numbers = gradients[:, 0].numel()
    last = 2 if rest[-1] * rest[-2] <= LONGEST_ROW else 1
    lengths = torch.linalg.vector_norm(gradients.flatten(-last), dim=-1)
    return lengths.square().transpose(0, 1).reshape(units, -1).sum(dim=1) + numbers * HIDDEN_BY_UNDERFLOW


def _slack(uses: Sequence[Correlated], geometry: Geometry) -> Tensor:
    """Every place of the kernel sees the image at most once."""
    images, gradients = (
        in_order([_lengths(values) for values in of_uses]) for of_uses in zip(*((u.images, u.gradients) for u in uses), strict=True)
    )
    return cancellation(geometry.places * images, gradients).reshape(-1, geometry.groups).sum(dim=1)


def _lengths(values: Tensor) -> Tensor:
    """Squared norms over everything but units and groups, (records, units, groups, ...) -> (units * groups,)."""
    return squared_rows(values.flatten(1, 2).transpose(0, 1))


def _gram(uses: Sequence[Correlated], geometry: Geometry) -> Tensor:
    pairs = [windows(use, geometry) for use in uses]
    inputs = _as_numbers(torch.cat([a for a, _ in pairs], dim=2), geometry.places, geometry.parts)
    gradients = _as_numbers(torch.cat([g for _, g in pairs], dim=2), 1, geometry.parts)
    return gram_squared_norms(inputs.flatten(0, 1), gradients.flatten(0, 1)).reshape(-1, geometry.groups).sum(dim=1)


def _as_numbers(values: Tensor, places: int, parts: int) -> Tensor:
    """(..., places * parts * channels) -> (..., places * channels), complex where there are two parts."""
    if parts == 1:
        return values
    split = values.unflatten(-1, (places, parts, -1))
    return torch.complex(split[..., 0, :].contiguous(), split[..., 1, :].contiguous()).flatten(-2)


def _columns(use: Correlated, geometry: Geometry) -> int:
    return geometry.places * use.images.shape[5]


def _positions(uses: Sequence[Correlated]) -> int:
    return sum(use.gradients.shape[0] * use.gradients.shape[3] for use in uses)
