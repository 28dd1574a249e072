r"""Whitening of groups with the affine map behind it, as one function of planes with a backward pass by hand.

A group's numbers c = z - mean, as pairs, become M W c + bias, where W = (S + lifted I)^(-1/2) is the group's and M, the multiplication
by the complex weight, the channel's. So there is one 2 x 2 matrix A = M W for each channel of a record, and what applies it is the only
pass over memory beside those for mean and S. For a cotangent g of the output, with H = sum of g c^T over a channel's positions:

- the cotangent of M is H W, and that of W is D = sum of M^T H over the group's channels;
- with R = W^-1, dW = -W dR W and R dR + dR R = dS, so that the cotangent Z of S solves R Z + Z R = -V, where V = W sym(D) W:
  Z = -(V + det R W V W) / (2 trace R), which the eigenbasis of W shows;
- the cotangent of c is A^T g + (2 / values) Z c, and that of z is this less its mean over the group.

Nothing divides by a difference of eigenvalues, and of the large arrays only z is kept. Layouts of memory stay what they are.

2 x 2 matrices have their axes first, (2, 2, N, groups or channels): what is done to them are a few elementwise operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from zetadp.trainer.layers.whitening_passes import passes_over, statistics_type, working_type

ROUNDING = 2.0**-20
"""Part of a group's variance that is added too: a group on a line has rounding errors across it, which 1 / sqrt(eps) would blow up."""


@final
@dataclass(frozen=True)
class Groups:
    """How many groups of neighbouring channels there are, and eps > 0."""

    count: int
    floor: float

    def sums(self, of_channels: Tensor) -> Tensor:
        """(..., C) -> (..., groups)."""
        return of_channels.unflatten(-1, (self.count, -1)).sum(dim=-1)

    def spread(self, of_groups: Tensor, channels: int) -> Tensor:
        """(..., groups) -> (..., C)."""
        return of_groups.unsqueeze(-1).expand(*of_groups.shape, channels // self.count).flatten(-2)


def whitened(planes: Tensor, weight: Tensor | None, bias: Tensor | None, groups: Groups) -> Tensor:
    """``weight`` z + ``bias`` of whitened z: planes (N, 2C, *space); weight and bias complex (C,) or (N, C); None is 1, or 0."""
    result = _Whitening.apply(planes, weight, bias, groups)
    assert isinstance(result, tuple)
    return result[0]


@final
class _Whitening(torch.autograd.Function):
    """The output, and for the backward pass each record's means (N, 2, groups) and covariances (N, 2, 2, groups)."""

    @staticmethod
    def forward(planes: Tensor, weight: Tensor | None, bias: Tensor | None, groups: Groups) -> tuple[Tensor, Tensor, Tensor]:
        values = _flat(planes)
        records, parts, _ = values.shape
        kind, channels, size = statistics_type(values), parts // 2, _size(values, groups)
        out = torch.empty_like(values, dtype=working_type(values))
        means = torch.empty(records, 2, groups.count, dtype=kind, device=values.device)
        covariances = torch.empty(records, 2, 2, groups.count, dtype=kind, device=values.device)
        for rows, passes in passes_over(values):
            means[rows] = groups.sums(passes.sums()) / size
            passes.centre(groups.spread(means[rows], channels))
            p, q, r = (groups.sums(passes.products()) / size).unbind(1)
            covariance = torch.stack((p, q, q, r)).unflatten(0, (2, 2)).to(kind)
            covariances[rows] = covariance.movedim(2, 0)
            matrix = groups.spread(_Root.of(covariance, groups.floor).inverse, channels)
            if weight is not None:
                matrix = _product(_multiplication(weight, rows).to(kind), matrix)
            shift = out.new_zeros(2, channels) if bias is None else _of_rows(torch.stack((bias.real, bias.imag), dim=-2), 2, rows)
            passes.map(matrix, shift, out[rows])
        return out.view(planes.shape), means, covariances

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, Tensor | None, Groups], output: tuple[Tensor, Tensor, Tensor]) -> None:
        planes, weight, bias, ctx.groups = inputs
        ctx.axes = tuple(None if value is None else value.ndim for value in (weight, bias))
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(planes, weight, *output[1:])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        slopes, *affine = _Pullback.apply(cotangents[0], *ctx.saved_tensors, ctx.groups)  # pyright: ignore[reportGeneralTypeIssues]
        shaped = (value if axes == 2 else value.sum(dim=0) if axes else None for value, axes in zip(affine, ctx.axes, strict=True))
        return slopes, *shaped, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        planes, weight, bias, groups = inputs
        fold = _Fold.of(info.batch_size, planes, in_dims[0])
        affine = (fold.parameter(value, axis) for value, axis in zip((weight, bias), in_dims[1:3], strict=True))
        return fold.apart(_Whitening.apply(fold.records(planes, in_dims[0]), *affine, groups))


@final
class _Pullback(torch.autograd.Function):
    """The cotangents of planes, and of each record's weight and bias, (N, C) complex. It has no derivative of its own."""

    @staticmethod
    def forward(
        cotangents: Tensor, planes: Tensor, weight: Tensor | None, means: Tensor, covariances: Tensor, groups: Groups
    ) -> tuple[Tensor, Tensor, Tensor]:
        values, gradients = _flat(planes), _flat(cotangents)
        records, parts, _ = values.shape
        kind, channels, size = statistics_type(values), parts // 2, _size(values, groups)
        slopes = torch.empty_like(values, dtype=working_type(values))
        affine = torch.empty(2, 2, records, channels, dtype=slopes.dtype, device=values.device)
        for rows, passes in passes_over(values):
            passes.centre(groups.spread(means[rows], channels))
            moments, sums = (found.to(kind) for found in passes.moments(gradients[rows]))
            root = _Root.of(covariances[rows].movedim(0, 2), groups.floor)
            matrix = inverse = groups.spread(root.inverse, channels)
            of_inverse = moments
            if weight is not None:
                turn = _multiplication(weight, rows).to(kind)
                matrix, of_inverse = _product(turn, inverse), _product(_transposed(turn), moments)
            of_weight = _product(moments, inverse)
            affine[0, :, rows] = torch.stack((of_weight[0, 0] + of_weight[1, 1], of_weight[1, 0] - of_weight[0, 1]))
            affine[1, :, rows] = sums
            pulled = _transposed(matrix)
            mean = groups.sums((pulled * sums).sum(dim=1)) / size
            of_covariance = root.pullback(groups.sums(of_inverse)) * (2.0 / size)
            passes.pull(pulled, -groups.spread(mean, channels).movedim(0, 1), groups.spread(of_covariance, channels), slopes[rows])
        of_weight, of_bias = torch.complex(affine[:, 0], affine[:, 1]).unbind()
        return slopes.view(planes.shape).to(planes.dtype), of_weight, of_bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        cotangents, planes, weight, means, covariances, groups = inputs
        fold = _Fold.of(info.batch_size, planes, in_dims[1])
        large = [fold.records(value, axis) for value, axis in zip((cotangents, planes), in_dims[:2], strict=True)]
        statistics = [fold.records(value, axis) for value, axis in zip((means, covariances), in_dims[3:5], strict=True)]
        return fold.apart(_Pullback.apply(*large, fold.parameter(weight, in_dims[2]), *statistics, groups))


@final
@dataclass(frozen=True)
class _Fold:
    """The axis of ``vmap`` as more records, and back."""

    batch: int
    rows: int

    @staticmethod
    def of(batch: int, planes: Tensor, axis: int | None) -> _Fold:
        return _Fold(batch, len(planes) if axis is None else planes.movedim(axis, 0).shape[1])

    def records(self, value: Tensor, axis: int | None) -> Tensor:
        moved = value.expand(self.batch, *value.shape) if axis is None else value.movedim(axis, 0)
        return moved.flatten(0, 1)

    def parameter(self, value: Tensor | None, axis: int | None) -> Tensor | None:
        if value is None or (axis is None and value.ndim == 1):
            return value
        if axis is not None and value.ndim == 2:
            return value.movedim(axis, 0).repeat_interleave(self.rows, dim=0)
        return self.records(value, axis)

    def apart(self, outputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return tuple(value.unflatten(0, (self.batch, self.rows)) for value in outputs), (0,) * len(outputs)


@final
@dataclass(frozen=True)
class _Root:
    r"""Of S' = S + (floor + ROUNDING trace S) I.

    Attributes:
      inverse: W = S'^(-1/2), (2, 2, ...).
      determinant: of S'^(1/2); ``trace``: likewise, (...).
    """

    inverse: Tensor
    determinant: Tensor
    trace: Tensor

    @staticmethod
    def of(covariance: Tensor, floor: float) -> _Root:
        """Of symmetric positive semi-definite S (2, 2, ...). With d = det S'^(1/2), W = (adj S' + d I) / (d sqrt(trace S' + 2 d))."""
        size = covariance[0, 0] + covariance[1, 1]
        lifted = floor + ROUNDING * size
        total = size + 2.0 * lifted
        # In units of the trace, where no product overflows.
        p, q, r = (covariance[0, 0] + lifted) / total, covariance[0, 1] / total, (covariance[1, 1] + lifted) / total
        least = lifted / total
        # Eigenvalues of at least ``least`` that add to 1 make det >= least (1 - least); where p r and q^2 cancel, rounding may leave less.
        root = torch.maximum(p * r - q * q, least * (1.0 - least)).sqrt()
        trace = (total * (1.0 + 2.0 * root)).sqrt()
        scale = (root * trace).reciprocal()
        off = -q * scale
        inverse = torch.stack(((r + root) * scale, off, off, (p + root) * scale)).unflatten(0, (2, 2))
        return _Root(inverse, root * total, trace)

    def pullback(self, of_inverse: Tensor) -> Tensor:
        """The cotangent of S, (2, 2, ...), from any one of W."""
        symmetric = 0.5 * (of_inverse + _transposed(of_inverse))
        inner = _product(_product(self.inverse, symmetric), self.inverse)
        # W is divided by the root of its determinant first: the product of four W alone would underflow.
        unit = self.inverse * self.determinant.sqrt()
        of_lifted = (inner + _product(_product(unit, inner), unit)) / (-2.0 * self.trace)
        trace = of_lifted[0, 0] + of_lifted[1, 1]
        return of_lifted + torch.eye(2, dtype=trace.dtype, device=trace.device).reshape(2, 2, *(1,) * trace.ndim) * (ROUNDING * trace)


def _flat(planes: Tensor) -> Tensor:
    """(N, 2C, positions), a view of either layout."""
    return planes.reshape(*planes.shape[:2], math.prod(planes.shape[2:]))


def _size(values: Tensor, groups: Groups) -> int:
    """Numbers in a group."""
    return values.shape[1] // 2 * values.shape[2] // groups.count


def _of_rows(parameter: Tensor, axes: int, rows: slice) -> Tensor:
    """A parameter of ``axes`` axes, or the rows of one that has an axis of records before them."""
    return parameter if parameter.ndim == axes else parameter[rows]


def _multiplication(weight: Tensor, rows: slice) -> Tensor:
    """By the complex weight, (2, 2, C) or (2, 2, N, C)."""
    of_rows = _of_rows(weight, 1, rows)
    re, im = of_rows.real, of_rows.imag
    return torch.stack((re, -im, im, re)).unflatten(0, (2, 2))


def _transposed(matrix: Tensor) -> Tensor:
    return matrix.transpose(0, 1)


def _product(first: Tensor, second: Tensor) -> Tensor:
    """Of matrices (2, 2, ...)."""
    if first.ndim < second.ndim:
        first = first.unsqueeze(2)
    return torch.addcmul(first[:, :1] * second[:1], first[:, 1:], second[1:])
