r"""The small residual network whose weights come with the package, as what stands before the layers that a transfer trains.

It stands in for published ones: ``trainer.models.conversion`` makes models of these in the same form. ``benchmarks.backbones`` trained it
on drawn shapes, so nobody's record is in it, and no photograph either: far less than ImageNet teaches.
"""

from __future__ import annotations

from zetadp.trainer.specs.models.layer_spec import Adapted, AveragePool, ChannelAffine, Convolution, LayerSpec, Linear, PlainLayer, Residual
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.residual_networks import resnet_18
from zetadp.trainer.specs.models.weights import PACKAGED, GivenWeights

SHAPES = 12
"""Kinds of shapes that it tells apart; of new ones it named .774."""
FILE = f"{PACKAGED}cifar_resnet_18_shapes.safetensors"
SHA256 = "f42e8b6c4cb67ad1a6730417026c480918a79d3845581f1ada257ba4b6d7b2e1"


def shapes_resnet_18() -> Sequential:
    """ResNet-18 of 8 channels, with a layer for its colours in front and its own last layer; weights aren't given yet."""
    return Sequential(numbers="real", layers=(ChannelAffine(), *resnet_18(SHAPES, width=8, norm="affine").layers), head="none")


def transferred(head: tuple[LayerSpec, ...], trained_blocks: int = 0) -> Sequential:
    r"""The network without its last layer, then ``head``.

    Args:
      trained_blocks: residual blocks, from the end, that are trained from where they are; all before them is frozen.
    """
    *trunk, last = shapes_resnet_18().layers
    assert isinstance(last, Linear)
    blocks = [place for place, layer in enumerate(trunk) if isinstance(layer, Residual)]
    frozen = blocks[-trained_blocks] if trained_blocks else len(trunk)
    given = GivenWeights(file=FILE, sha256=SHA256, frozen_layers=frozen, given_layers=len(trunk))
    return Sequential(numbers="real", layers=(*trunk, *head), head="none", initial_weights=given)


def early(head: tuple[LayerSpec, ...], blocks: int, pool: int) -> Sequential:
    r"""The network's first residual blocks, frozen, their outputs averaged over squares, and ``head`` behind them.

    What late blocks tell apart is drawn shapes; edges and colours, which the early ones see, are in photographs too.

    Args:
      blocks: residual blocks that stay, from the first.
      pool: pixels along the side of a square.
    """
    trunk = shapes_resnet_18().layers
    kept = trunk[: [place for place, layer in enumerate(trunk) if isinstance(layer, Residual)][blocks - 1] + 2]
    given = GivenWeights(file=FILE, sha256=SHA256, frozen_layers=len(kept), given_layers=len(kept))
    row = (*kept, AveragePool(kernel=pool, stride=pool), *head)
    return Sequential(numbers="real", layers=row, head="none", initial_weights=given)


def adapted(head: tuple[LayerSpec, ...], adapted_blocks: int, rank: int) -> Sequential:
    r"""The network without its last layer, then ``head``; what it was given is kept, and 3 x 3 convolutions have trained ones beside them.

    Args:
      adapted_blocks: residual blocks, from the end, whose two convolutions have an adapter; all before them is frozen.
      rank: channels between an adapter's 3 x 3 convolution and its 1 x 1 convolution: LoRA of convolutions.
    """
    found = transferred(head, adapted_blocks)
    assert isinstance(found.initial_weights, GivenWeights)
    frozen, given = found.initial_weights.frozen_layers, found.initial_weights.given_layers
    layers = [_adapted(layer, rank) if isinstance(layer, Residual) else layer for layer in found.layers[frozen:given]]
    # A factor and a shift between adapted layers are trained, as what is small in a fine-tuning usually is.
    row = (*found.layers[:frozen], *layers, *head)
    return Sequential(numbers="real", layers=row, head="none", initial_weights=found.initial_weights)


def _adapted(block: Residual, rank: int) -> Residual:
    return Residual(layers=tuple(_beside(layer, rank) for layer in block.layers), shortcut=block.shortcut)


def _beside(layer: PlainLayer, rank: int) -> PlainLayer:
    if not isinstance(layer, Convolution):
        return layer
    narrow = Convolution(outputs=rank, kernel=layer.kernel, stride=layer.stride, padding=layer.padding, bias=False)
    return Adapted(base=layer, adapter=(narrow, Convolution(outputs=layer.outputs, kernel=1, bias=False)))
