r"""The vector that spectral training releases: for some layers' weights the kept coordinates of their spectra, for all else everything.

Noise is added to exactly these coordinates, so the vector is shorter than the parameters; ``gradient`` maps the released vector back to
the parameters, which is post-processing. Proof: mechanisms/proofs/spectral_training.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.per_unit import Layer
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.layers.rules import LayerGradients
from zetadp.trainer.layers.rules.analysis import Analysis
from zetadp.trainer.layers.rules.base import SpectralGradients
from zetadp.trainer.layers.rules.circulant import BlockCirculantGradients
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection


@final
class Spectra:
    r"""The part of a network's gradient that is released.

    A layer that keeps its whole spectrum is released as it is, so a projection that filters nothing is ordinary training to the bit.

    Args:
      parameters: layout of the network's parameters.
      device: where they are.
    Attributes:
      layout: the released vector's layout: the parameters, some of them as (*leading axes, coordinates).
    Raises:
      InvalidParameter: a layer of the projection isn't in the network, or its weight has another shape or is complex.
    """

    def __init__(self, projection: SpectralProjection, parameters: ParameterLayout, device: torch.device) -> None:
        self._order: Literal["project_then_clip", "clip_then_filter"] = projection.order
        self._parameters = parameters
        shapes = dict(zip(parameters.names, parameters.shapes, strict=True))
        for spectrum in projection.layers:
            _check(spectrum, parameters)
        self._analyses = {f"{spectrum.layer}.weight": Analysis(spectrum, device) for spectrum in projection.layers if not spectrum.is_whole}
        for name, analysis in self._analyses.items():
            shapes[name] = (*shapes[name][: -len(analysis.shape)], len(analysis.matrix(torch.float32)))
        self.layout = ParameterLayout(parameters.names, tuple(shapes.values()), parameters.complex_kinds)

    def released(self, layers: Sequence[Layer], gradients: Sequence[LayerGradients]) -> list[LayerGradients]:
        """The gradients of each layer's released coordinates, with the norms that the order of the projection clips by."""
        return [self._released(layer, of_layer) for layer, of_layer in zip(layers, gradients, strict=True)]

    def gradient(self, released: Tensor) -> Tensor:
        """The released vector as a gradient of the parameters: (released coordinates,) -> (parameters' coordinates,)."""
        if not self._analyses:
            return released
        total = released.new_empty(self._parameters.coordinates)
        of_parameters = self._parameters.unflatten(total)
        for name, values in self.layout.unflatten(released).items():
            analysis = self._analyses.get(name)
            of_parameters[name].copy_(values if analysis is None else analysis.signals(values))
        return total

    def _released(self, layer: Layer, gradients: LayerGradients) -> LayerGradients:
        full = layer.names.get("weight")
        analysis = None if full is None else self._analyses.get(full)
        if analysis is None:
            return gradients
        if self._order == "clip_then_filter":
            return Filtered(gradients, analysis)
        if isinstance(gradients, BlockCirculantGradients):
            return Filtered(gradients.low_passed(analysis.kept[0]), analysis)
        if isinstance(gradients, SpectralGradients):
            return gradients.projected(analysis)
        raise InvalidParameter(f"network.{layer.name}", "a convolution or a block-circulant layer", type(layer.module).__name__)


@final
class Filtered:
    """Gradients whose clipped sum is transformed to its coordinates once; their norms don't change."""

    def __init__(self, gradients: LayerGradients, analysis: Analysis) -> None:
        self._gradients, self._analysis = gradients, analysis

    def squared_norms(self) -> Tensor:
        return self._gradients.squared_norms()

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        total = self._gradients.weighted_sum(factors, sample)
        # In float64: a rounded product would move the sum by more than its own rounding does, whatever the units' own norms.
        return total | {"weight": self._analysis.coordinates(total["weight"].double())}


def _check(spectrum: LayerSpectrum, parameters: ParameterLayout) -> None:
    name = f"{spectrum.layer}.weight"
    if name not in parameters.names:
        raise InvalidParameter("plan.projection.layers", f"layers of the network with a weight: {list(parameters.names)}", spectrum.layer)
    place = parameters.names.index(name)
    shape = parameters.shapes[place]
    if parameters.complex_kinds[place]:
        raise InvalidParameter("plan.projection.layers", f"layers with real weights, unlike {spectrum.layer}", "complex weights")
    signals, axes = shape[: -len(spectrum.shape)], shape[-len(spectrum.shape) :]
    count = torch.Size(signals).numel()
    if axes != spectrum.shape or count != spectrum.signals:
        expected = f"{count} signals of shape {list(axes)}, as the weight of {spectrum.layer} has"
        raise InvalidParameter("plan.projection.layers", expected, f"{spectrum.signals} of shape {list(spectrum.shape)}")
