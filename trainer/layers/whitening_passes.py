r"""What whitening does with all numbers: sums over positions and affine maps, by torch or, on a CPU in single precision, by loops in C.

Matrices of channels are (2, 2, N, C), planes (N, 2C, positions), in either layout of memory: the channels-last one is that of
convolutions, and pools are several times faster in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, final

import torch
from torch import Tensor

from zetadp.trainer.layers.gates import WORTH_THREADS, compiled, is_plain

COMPILED: Any = compiled("_whitening")
"""The C module; None if there was no compiler."""

BLOCK = 2**18
"""Numbers that torch's operations work on at once on a CPU, so that intermediate results stay in its cache and need no new memory."""


def working_type(values: Tensor) -> torch.dtype:
    """What planes are computed in: at least single precision."""
    return torch.promote_types(values.dtype, torch.float32)


def statistics_type(values: Tensor) -> torch.dtype:
    """Of means, covariances and matrices, where subtractions cancel: double precision, which costs a CPU little for these few numbers."""
    return torch.float64 if values.device.type == "cpu" else working_type(values)


class Passes(Protocol):
    """What goes over all numbers of some records' planes. Matrices are (2, 2, N, C); ``moments`` keeps the gradient for ``pull``."""

    def sums(self) -> Tensor:
        """(N, 2, C): of either part over the positions."""
        ...

    def centre(self, means: Tensor) -> None:
        """What follows is of the numbers less these (N, 2, C)."""
        ...

    def products(self) -> Tensor:
        """(N, 3, C): sums of Re c Re c, Re c Im c and Im c Im c."""
        ...

    def moments(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """H[i, j] = sum of g_i c_j over the positions, and that of g_i, (2, N, C)."""
        ...

    def map(self, matrix: Tensor, shift: Tensor, out: Tensor) -> None:
        """``matrix`` c + ``shift``, which is (N, 2, C) or (2, C)."""
        ...

    def pull(self, of_gradient: Tensor, shift: Tensor, matrix: Tensor, out: Tensor) -> None:
        """``of_gradient`` g + ``matrix`` c + ``shift``."""
        ...


def passes_over(values: Tensor) -> Iterator[tuple[slice, Passes]]:
    """For some records at a time."""
    kind = working_type(values)
    single = values.to(kind) if COMPILED is not None and kind == torch.float32 else None
    if single is not None and is_plain(single, kind) and (memory := _as_it_lies(single)) is not None:
        yield slice(None), _Loops(single, memory)
    else:
        for rows in _blocks(values):
            yield rows, _Operations(values[rows].to(kind))


def _as_it_lies(values: Tensor) -> Tensor | None:
    """(N, 2C, positions), or (N, positions, 2C), whichever has no gaps in memory."""
    return next((order for order in (values, values.transpose(1, 2)) if order.is_contiguous()), None)


@final
class _Operations:
    """By torch's own."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def sums(self) -> Tensor:
        return self._values.sum(dim=2).unflatten(1, (2, -1))

    def centre(self, means: Tensor) -> None:
        self._values = self._values - _column(means).to(self._values.dtype)

    def products(self) -> Tensor:
        re, im = self._values.unflatten(1, (2, -1)).unbind(1)
        p, r = self._values.square().sum(dim=2).unflatten(1, (2, -1)).unbind(1)
        return torch.stack((p, (re * im).sum(dim=2), r), dim=1)

    def moments(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        self._gradient = _laid_out_as(self._values, gradient)
        (g, h), (re, im) = (values.unflatten(1, (2, -1)).unbind(1) for values in (self._gradient, self._values))
        p, r = (self._gradient * self._values).sum(dim=2).unflatten(1, (2, -1)).unbind(1)
        moments = torch.stack((p, (g * im).sum(dim=2), (h * re).sum(dim=2), r)).unflatten(0, (2, 2))
        return moments, self._gradient.sum(dim=2).unflatten(1, (2, -1)).movedim(1, 0)

    def map(self, matrix: Tensor, shift: Tensor, out: Tensor) -> None:
        _add_mapped(_column(shift), matrix, self._values, out)

    def pull(self, of_gradient: Tensor, shift: Tensor, matrix: Tensor, out: Tensor) -> None:
        _add_mapped(_column(shift), of_gradient, self._gradient, out)
        _add_mapped(out, matrix, self._values, out)


@final
class _Loops:
    """In C, on memory without gaps; its sums may differ from torch's in the last bits."""

    def __init__(self, values: Tensor, memory: Tensor) -> None:
        records, parts, positions = values.shape
        threads = torch.get_num_threads() if values.numel() >= WORTH_THREADS else 1
        self._sizes = records, parts // 2, positions, memory is not values, threads
        self._values, self._memory = values, memory.detach().numpy()

    def sums(self) -> Tensor:
        return self._summed(2, None, None)

    def centre(self, means: Tensor) -> None:
        self._means = means.float().contiguous().numpy()

    def products(self) -> Tensor:
        return self._summed(3, None, self._means)

    def moments(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        self._gradient = self._like_values(_laid_out_as(self._values, gradient))
        sums = self._summed(6, self._gradient, self._means).movedim(1, 0)
        return sums[:4].unflatten(0, (2, 2)), sums[4:]

    def map(self, matrix: Tensor, shift: Tensor, out: Tensor) -> None:
        self._add(matrix, None, None, shift, out)

    def pull(self, of_gradient: Tensor, shift: Tensor, matrix: Tensor, out: Tensor) -> None:
        self._add(matrix, self._gradient, of_gradient, shift, out)

    def _summed(self, kinds: int, others: Any, means: Any) -> Tensor:
        records, channels, *_ = self._sizes
        out = torch.empty(records, kinds, channels, dtype=torch.float64)
        COMPILED.sums(self._memory, others, means, out.numpy(), *self._sizes)
        return out

    def _add(self, matrix: Tensor, others: Any, other_matrix: Tensor | None, shift: Tensor, out: Tensor) -> None:
        records, channels, *_ = self._sizes
        shifts = shift.float().expand(records, 2, channels).contiguous().numpy()
        of_others = None if other_matrix is None else _of_records(other_matrix)
        COMPILED.mapped(self._memory, self._means, _of_records(matrix), others, of_others, shifts, self._like_values(out), *self._sizes)

    def _like_values(self, others: Tensor) -> Any:
        """Memory of what is laid out as the values are."""
        return (others.transpose(1, 2) if self._sizes[3] else others).detach().numpy()


def _of_records(matrix: Tensor) -> Any:
    """(2, 2, N, C) as the loops take it, (N, 4, C)."""
    return matrix.float().permute(2, 0, 1, 3).contiguous().numpy()


def _blocks(values: Tensor) -> Iterator[slice]:
    """Of records."""
    records = len(values)
    step = max(1, BLOCK // max(1, values[:1].numel())) if values.device.type == "cpu" else max(1, records)
    return (slice(start, start + step) for start in range(0, records, step))


def _laid_out_as(values: Tensor, others: Tensor) -> Tensor:
    """``others`` with the type and the strides of ``values``."""
    if others.dtype == values.dtype and others.stride() == values.stride():
        return others.resolve_neg()
    return torch.empty_like(values).copy_(others)


def _column(of_channels: Tensor) -> Tensor:
    """(N, 2, C), or (2, C), as (N, 2C, 1), or (2C, 1)."""
    return of_channels.flatten(-2).unsqueeze(-1)


def _add_mapped(base: Tensor, matrix: Tensor, values: Tensor, out: Tensor) -> None:
    """``out`` = base + matrix values, for matrices (2, 2, N, C) and values (N, 2C, positions)."""
    channels, base, matrix = matrix.shape[-1], base.to(values.dtype), matrix.to(values.dtype)
    torch.addcmul(base, torch.cat((matrix[0, 0], matrix[1, 1]), dim=-1).unsqueeze(-1), values, out=out)
    out[:, :channels].addcmul_(matrix[0, 1].unsqueeze(-1), values[:, channels:])
    out[:, channels:].addcmul_(matrix[1, 0].unsqueeze(-1), values[:, :channels])
