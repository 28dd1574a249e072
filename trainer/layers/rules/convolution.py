r"""Convolutions and transposed convolutions, real and complex, native or on planes: from a module and its uses to ``patch_gradients``.

A transposed convolution's weight gradient is that of a convolution whose image is the gradient of the output and whose gradient is the
input, conjugated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast, final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.rules.analysis import Analysis
from zetadp.trainer.layers.rules.base import LayerGradients, SpectralGradients, UnsupportedLayer, Use, in_order, squared_rows, weighted_rows
from zetadp.trainer.layers.rules.patch_gradients import PatchGradients
from zetadp.trainer.layers.rules.patches import Geometry, correlated
from zetadp.trainer.layers.rules.standardised import StandardisedFilters


def convolution(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.Conv1d``, ``nn.Conv2d`` and the planar ones."""
    return _gradients(module, uses, units, _forward_geometry(module), transposed=False)


def standardised_convolution(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``StandardisedConv1d``, ``StandardisedConv2d`` and the planar ones."""
    geometry = _forward_geometry(module)
    of_filters = StandardisedFilters(cast("Tensor", module.weight), geometry)
    return _gradients(module, uses, units, geometry, transposed=False, of_filters=of_filters)


def transposed_convolution(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.ConvTranspose1d``, ``nn.ConvTranspose2d`` and the planar one."""
    return _gradients(module, uses, units, _geometry(module, cast("tuple[int, ...]", module.padding)), transposed=True)


def _forward_geometry(module: nn.Module) -> Geometry:
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise UnsupportedLayer(f"padding_mode {module.padding_mode}")
    return _geometry(module, _before(module))


def _geometry(module: nn.Module, before: tuple[int, ...]) -> Geometry:
    weight = cast("Tensor", module.weight)
    return Geometry(
        kernel=_two(tuple(weight.shape[2:]), 1),
        stride=_two(cast("tuple[int, ...]", module.stride), 1),
        dilation=_two(cast("tuple[int, ...]", module.dilation), 1),
        before=_two(before, 0),
        groups=cast("int", module.groups),
        parts=2 if weight.is_complex() else 1,
    )


def _two(sizes: tuple[int, ...], missing: int) -> tuple[int, int]:
    return (missing, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _before(module: nn.Module) -> tuple[int, ...]:
    padding, kernel = module.padding, cast("Tensor", module.weight).shape[2:]
    if padding == "valid":
        return tuple(0 for _ in kernel)
    if padding == "same":
        # If the number of zeros is odd, the extra one comes after.
        return tuple(dilation * (size - 1) // 2 for dilation, size in zip(cast("tuple[int, ...]", module.dilation), kernel, strict=True))
    return cast("tuple[int, ...]", padding)


def _gradients(
    module: nn.Module,
    uses: Sequence[Use],
    units: int,
    geometry: Geometry,
    *,
    transposed: bool,
    of_filters: StandardisedFilters | None = None,
) -> LayerGradients:
    dimensions = cast("Tensor", module.weight).ndim - 2
    if any(use.input.ndim != dimensions + 2 for use in uses):
        raise UnsupportedLayer("an input without an axis of records")
    pairs = [(_planes(use.input), _planes(use.gradient)) for use in uses]
    of_weight = pairs if of_filters is None else [(image, of_filters.scaled(gradient)) for image, gradient in pairs]
    ordered = [
        correlated(gradient, image, geometry, units) if transposed else correlated(image, gradient, geometry, units)
        for image, gradient in of_weight
    ]
    weight, kind = PatchGradients.of(ordered, geometry, of_filters), Kind(geometry, dimensions, transposed)
    if getattr(module, "bias", None) is None:
        return ConvolutionGradients(weight, None, kind)
    if weight.is_looped and of_filters is None and not transposed:
        return ConvolutionGradients(weight, PatchGradients.gradient_sums, kind)
    bias = _bias_gradients([gradient for _, gradient in pairs], units)
    return ConvolutionGradients(weight, lambda _: bias, kind)


def _planes(values: Tensor) -> Tensor:
    """(N, parts * channels, height, width), real; native complex numbers become two parts, in channels_last."""
    flat = values.unsqueeze(2) if values.ndim == 3 else values
    if not flat.is_complex():
        return flat
    records, channels, height, width = flat.shape
    planes = torch.empty(records, height, width, 2, channels, device=flat.device, dtype=flat.real.dtype)
    planes[..., 0, :] = flat.real.movedim(1, -1)
    planes[..., 1, :] = flat.imag.movedim(1, -1)
    return planes.flatten(3, 4).movedim(-1, 1)


def _bias_gradients(gradients: Sequence[Tensor], units: int) -> Tensor:
    """(units, parts * outputs)."""
    sums = [gradient.sum(dim=(2, 3)).reshape(units, -1, gradient.shape[1]).sum(dim=1) for gradient in gradients]
    return in_order(sums)


@final
@dataclass(frozen=True)
class Kind:
    """How the sum becomes the module's own parameter."""

    geometry: Geometry
    dimensions: int
    transposed: bool

    def weight(self, total: Tensor) -> Tensor:
        r"""The parameter (outputs, channels, *kernel).

        Args:
          total: (parts, groups, kernel_height, kernel_width, channels, outputs of a group).
        """
        ordered = total.permute(0, 1, 5, 4, 2, 3).flatten(1, 2)
        space = ordered.squeeze(3) if self.dimensions == 1 else ordered
        if self.geometry.parts == 1:
            return space[0]
        return torch.complex(space[0], -space[1] if self.transposed else space[1])


@final
class ConvolutionGradients(SpectralGradients):
    r"""Gradients of weight, or its coordinates if there is an ``analysis``, and bias.

    Args:
      bias: the bias's gradients, (units, parts * outputs), which may come with the weight's; None without a bias.
    """

    def __init__(
        self, weight: PatchGradients, bias: Callable[[PatchGradients], Tensor] | None, kind: Kind, analysis: Analysis | None = None
    ) -> None:
        self._weight, self._of_bias, self._kind, self._analysis = weight, bias, kind, analysis

    @cached_property
    def _bias(self) -> Tensor | None:
        # Before the weight's, which may let go of what both are found from.
        return None if self._of_bias is None else self._of_bias(self._weight)

    def squared_norms(self) -> Tensor:
        bias = self._bias
        norms = self._weight.squared_norms()
        return norms if bias is None else norms + squared_rows(bias)

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        bias = self._bias
        total = {"weight": self._weight_sum(factors, sample)}
        if bias is not None:
            of_bias = weighted_rows(bias, factors, sample)
            total["bias"] = torch.complex(*of_bias.chunk(2)) if self._kind.geometry.parts == 2 else of_bias
        return total

    def projected(self, analysis: Analysis) -> LayerGradients:
        return ConvolutionGradients(self._weight.projected(analysis), self._of_bias, self._kind, analysis)

    def _weight_sum(self, factors: Tensor, sample: int) -> Tensor:
        weight = self._kind.weight(self._weight.weighted_sum(factors, sample))
        return weight if self._analysis is None else weight.flatten(2)
