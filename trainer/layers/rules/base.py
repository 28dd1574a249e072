r"""The inputs and outputs of every layer rule, and the small sums that the rules share.

Gradients follow torch's convention: for a complex number 2 dL/d(conj theta), the full gradient of the real pair. Norms are of real pairs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Protocol, final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.rules.analysis import Analysis

HIDDEN_BY_UNDERFLOW = 2.0**-126
r"""Added for every square that a norm sums: the smallest normal float32, more than any square that was flushed to 0 or rounded below it.

So a norm that is a product (of activations and gradients) can't be 0 while the gradient isn't. It is negligible beside a bound of 1e-10.
"""

ROUNDINGS = 59 * 2**10
"""Of 2^-24 of the bound, that adding a sample's units in float32 may come to, with and without one of them: 59/64 of clipping's margin."""

REAL, COMPLEX, COMBINED = 1, 3, 12
"""What a unit more in one product adds to these, a unit: of real products, of complex ones, of sums and differences of three real ones."""

SMALLEST_PRODUCT = 16
"""Units: products of fewer, added up, take as long as one in float64."""

CONVERTED_AT_ONCE, SUMMED_AT_ONCE = 2**20, 2**15
"""How many numbers are converted to float64 at once, for a product: 8 MiB; and to be added up, in a processor's nearer caches."""

AT_ONCE_THERE = 2**25
"""Numbers that an accelerator has at once where a processor has fewer, 128 MiB of float32: many short operations take it longer than one
long one."""

NORM_CHUNK = 4096
"""Squares are added one after another over this many numbers at most, an error below 2^-12 in any order, and in a cascade beyond."""

GRAM_SLACK = 2.0**-22
r"""Relative to (sum_p |a_p| |g_p|)^2, added to a norm that comes from a Gram matrix.

A Gram norm is a sum with cancellation: positions that point against each other leave a small norm with the rounding error of the large
terms. The slack is 4 units of float32 rounding of these; it pushes the norm up, which is the safe side, and stays below 1e-5 of the norm
unless nine tenths of the length cancel.
"""

EXPLICIT_SLACK = 2.0**-24
r"""The same for norms of gradients that are built in float32 (``cancellation``): without the squares' rounding.

A unit's terms, clipped, are then at most 2^12 bounds long together, no longer than what a lot of 2048 other units adds.
"""


class UnsupportedLayer(Exception):
    """A rule has no formula for this configuration of its layer: the general route is used instead. Raised by the first call, or never."""


@final
@dataclass(frozen=True)
class Use:
    r"""One call of a module in one microbatch; a shared module has several.

    Attributes:
      input: detached, (units * records_per_unit, ...), unit-major.
      gradient: of the summed loss with respect to the module's output, of the output's shape. Rows of padding are exactly 0.
      squared_input: the result of ``squared_rows(input)`` where it is already known: for the data themselves.
    """

    input: Tensor
    gradient: Tensor
    squared_input: Tensor | None = None


class LayerGradients(Protocol):
    """The per-unit gradients of ALL of a module's own parameters, in whatever form is cheapest."""

    def squared_norms(self) -> Tensor:
        """(units,), float32 or float64: never below the truth by more than rounding."""
        ...

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        r"""sum_u factors[u] gradient_u by own parameter name, of the parameter's shape and kind, in float32 or float64.

        Args:
          factors: (units,), float32.
          sample: units of the whole step, whose sums are rounded together; at least these.
        """
        ...


class WritableGradients(ABC):
    """Layer gradients whose clipped sum can be computed in place, without a copy: worth it if there are many parameters."""

    @abstractmethod
    def write_weighted_sum(self, factors: Tensor, into: Mapping[str, Tensor], sample: int = 0) -> None:
        """Writes the result of ``weighted_sum`` into contiguous tensors by own parameter name."""


class SpectralGradients(ABC):
    """Layer gradients whose weight is made of real signals."""

    @abstractmethod
    def projected(self, analysis: Analysis) -> LayerGradients:
        """The same with the weight's coordinates M g, (*leading axes, r), in place of the weight."""


Rule = Callable[[nn.Module, Sequence[Use], int], LayerGradients]
"""A module with this step's parameters, its uses (at least one), the number of units -> its gradients."""


@final
class ExplicitGradients(SpectralGradients):
    """Per-unit gradients held explicitly: (units, *shape of the parameter) by own parameter name."""

    def __init__(self, gradients: Mapping[str, Tensor]) -> None:
        self._gradients = gradients

    def squared_norms(self) -> Tensor:
        squares = [squared_rows(gradient) for gradient in self._gradients.values()]
        return in_order(squares)

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        return {name: weighted_rows(gradient, factors, sample) for name, gradient in self._gradients.items()}

    def projected(self, analysis: Analysis) -> LayerGradients:
        return ExplicitGradients({**self._gradients, "weight": analysis.coordinates(self._gradients["weight"])})


def squared_rows(values: Tensor, plus: float = 0.0) -> Tensor:
    """Sum of squares of everything in each row, real pairs of complex numbers, and a constant: (rows, ...) -> (rows,)."""
    flat = as_real(values)
    flat = flat if flat.dim() == 2 else flat.reshape(len(flat), -1)
    columns = flat.shape[1]
    hidden = plus + columns * HIDDEN_BY_UNDERFLOW
    if columns <= NORM_CHUNK:
        norms = torch.linalg.vector_norm(flat, dim=1)
        return torch.addcmul(_constant(hidden, norms.dtype, norms.device), norms, norms)
    whole = columns // NORM_CHUNK * NORM_CHUNK
    chunks = torch.linalg.vector_norm(flat[:, :whole].unflatten(1, (-1, NORM_CHUNK)), dim=2).square_().sum(dim=1)
    return torch.linalg.vector_norm(flat[:, whole:], dim=1).square_().add_(chunks).add_(hidden)


@cache
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


def weighted_rows(values: Tensor, factors: Tensor, sample: int = 0) -> Tensor:
    """sum over rows of factors[row] * values[row], one row a unit: (rows, ...) -> (...), of the same kind, perhaps in float64."""
    real = as_real(values)
    rows = real.reshape(len(values), -1)
    if adds_little(len(rows), sample):
        total = factors.to(rows.dtype) @ rows
    else:
        exact = factors.double()
        total = added(converted_parts(len(rows), rows.shape[1], rows.device), lambda part: exact[part] @ rows[part].double())
    total = total.reshape(real.shape[1:])
    return torch.view_as_complex(total) if values.is_complex() else total


def added_at_once(units: int, sample: int, each: int = REAL) -> int:
    r"""How many of these units float32 may add in one product, if the products are then added one by one, in whatever order a library
    chooses within a product. 0 where they are too few to be worth it.

    One unit more or less changes how the others' sum is rounded. With products of n units, m of them, and a sample of s units it moves by
    at most s (each n + m + 5) 2^-24 of the bound. No library adds worse, and some add as badly: of numbers that are alike, rounding errors
    are too. Proof: mechanisms/proofs/clipped_sum.md.

    A unit's products at several positions may be long and cancel, so nothing like that holds for them: they are always added in float64.

    >>> added_at_once(100, 100, COMPLEX), added_at_once(512, 512, COMPLEX), added_at_once(2048, 2048, COMPLEX)
    (100, 32, 0)
    """
    room = ROUNDINGS / max(units, sample, 1) - 6.0
    if each * units <= room:
        return units
    # each n + units / n + 1 <= room + 1, the largest n
    rest = room * room - 4.0 * each * units
    at_once = int((room + math.sqrt(rest)) / (2.0 * each)) // 4 * 4 if rest >= 0.0 else 0
    return at_once if at_once >= SMALLEST_PRODUCT else 0


def adds_little(units: int, sample: int, each: int = REAL) -> bool:
    """Whether float32 may add all of these units in one product: ``added_at_once``."""
    return added_at_once(units, sample, each) == units


def doubled(values: Tensor) -> Tensor:
    """The values in float64, or complex128."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def at_once_on(device: torch.device, here: int) -> int:
    """How many numbers to have at once on a device: ``here`` on a processor."""
    return here if device.type == "cpu" else max(here, AT_ONCE_THERE)


def converted_parts(units: int, numbers: int, device: torch.device, here: int = CONVERTED_AT_ONCE) -> list[slice]:
    """Parts of a few units each, for units of ``numbers`` numbers; at least one part, perhaps empty."""
    together = max(1, at_once_on(device, here) // max(1, numbers))
    return [slice(first, first + together) for first in range(0, max(units, 1), together)]


def in_order(values: Sequence[Tensor]) -> Tensor:
    r"""The sum, added one after the other: numbers at the end as all others.

    A sum over the first axis of a tensor of them, as torch has it, adds the last numbers in another order: where they are units' numbers, a
    unit's bits would depend on its place.
    """
    return reduce(torch.add, values)


def exact_sum(rows: Tensor) -> Tensor:
    """(rows, columns) -> (columns,), in float64 or complex128."""
    parts = converted_parts(len(rows), rows.shape[1], rows.device, SUMMED_AT_ONCE)
    return added(parts, lambda part: doubled(rows[part]).sum(dim=0))


def added(parts: Sequence[slice], sum_of: Callable[[slice], Tensor]) -> Tensor:
    """The sum over the parts, in the precision of each."""
    total = sum_of(parts[0])
    for part in parts[1:]:
        total += sum_of(part)
    return total


def scaled_rows(values: Tensor, factors: Tensor) -> Tensor:
    """factors[row] * values[row], of values' shape and kind. A complex product with a real number would cost twice as much."""
    real = as_real(values)
    scaled = real * factors.view(-1, *[1] * (real.dim() - 1))
    return torch.view_as_complex(scaled) if values.is_complex() else scaled


def gram_squared_norms(inputs: Tensor, gradients: Tensor) -> Tensor:
    r"""||sum_p g_p^T conj(a_p)||^2 of each unit by Gram matrices over its positions, without the sum itself.

    It is sum_pq <a_p, a_q> <g_q, g_p>, in positions^2 (inputs + outputs) multiplications.

    Args:
      inputs: a, (units, positions, inputs).
      gradients: g, (units, positions, outputs), of the same kind (real or complex).
    Returns:
      (units,), with ``GRAM_SLACK`` on top.
    """
    of_inputs = inputs @ inputs.mH
    of_gradients = gradients @ gradients.mH
    product = as_real(of_inputs) * as_real(of_gradients)
    total = product.reshape(len(inputs), -1).sum(dim=1)
    lengths = (_diagonal(of_inputs) + inputs.shape[2] * HIDDEN_BY_UNDERFLOW) * (
        _diagonal(of_gradients) + gradients.shape[2] * HIDDEN_BY_UNDERFLOW
    )
    return total.clamp(min=0.0) + GRAM_SLACK * lengths.sqrt().sum(dim=1).square()


def cancellation(inputs: Tensor, gradients: Tensor) -> Tensor:
    r"""``EXPLICIT_SLACK`` for squared norms whose gradient is built once for the norm and another time, rounded otherwise, for the sum.

    Where positions cancel, both are rounding errors of the long terms and needn't have anything to do with each other: without a slack
    a unit's share of the sum may be longer than its norm, or its terms, not clipped at all, wipe out digits of everybody's sum. By Cauchy
    and Schwarz (sum_p |a_p| |g_p|)^2 is at most the product of both squared norms, which is the length that a sum can lose digits of.

    Args:
      inputs, gradients: the squared norms over all positions, (units,).
    """
    return EXPLICIT_SLACK * inputs * gradients


def _diagonal(gram: Tensor) -> Tensor:
    """The squared lengths (units, positions) from a Gram matrix's diagonal."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    return diagonal.real if gram.is_complex() else diagonal
