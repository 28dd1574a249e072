r"""Which layers of a network learn, and under which names: known from the spec, before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.specs.models.layer_spec import BlockCirculantLinear, Convolution, LayerSpec, TransposedConvolution
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Shape, module_name
from zetadp.trainer.specs.models.shapes import each_layer


@final
@dataclass(frozen=True)
class WeightedLayer:
    r"""One layer that is trained.

    Attributes:
      name: its parameters in the built network are ``name.weight`` and ``name.bias``, where it has them.
      kind: as in the spec.
      spectrum_shape: sizes of the last axes of its weight that a Fourier transform runs over: the kernel's spatial ones of a convolution,
        the block of a block-circulant layer; None where the weight has no such axes.
    """

    name: str
    kind: str
    spectrum_shape: Shape | None


def weighted_layers(model: Sequential, facts: DataSetFacts) -> tuple[WeightedLayer, ...]:
    """Every trained layer, in the network's order; frozen ones, and those without any parameter, as most activations, aren't among them.

    Raises:
      InvalidParameter: the network doesn't fit the data set.
    """
    frozen = tuple(f"{module_name(place, layer)}." for place, layer in enumerate(model.layers[: model.frozen_layers]))
    return tuple(
        WeightedLayer(stage.name, stage.layer.kind, _spectrum_shape(stage.layer, stage.inputs))
        for stage in each_layer(model, facts)
        if stage.own and not stage.is_kept and not f"{stage.name}.".startswith(frozen)
    )


def _spectrum_shape(layer: LayerSpec, inputs: Shape) -> Shape | None:
    match layer:
        case BlockCirculantLinear():
            return (layer.block,)
        case Convolution() | TransposedConvolution():
            return (layer.kernel,) * (len(inputs) - 1)
        case _:
            return None
