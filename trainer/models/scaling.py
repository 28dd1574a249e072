r"""Initial weights scaled by the size of the outputs on public random records: they don't depend on any data set."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.layers import BlockCirculantLinear, ComplexLinear, PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d, PlanarLinear
from zetadp.trainer.layers.blocks.residual import ResidualBlock
from zetadp.trainer.layers.blocks.sequences import Recurrent, SelfAttention
from zetadp.trainer.layers.standardised import StandardisedConv1d, StandardisedConv2d, StandardisedLinear

RECORDS = 4
"""Their outputs' mean square is over all positions and channels too, so few records suffice."""

WEIGHTED = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.ConvTranspose2d,
    ComplexLinear,
    PlanarConv1d,
    PlanarConv2d,
    PlanarConvTranspose2d,
    BlockCirculantLinear,
    PlanarLinear,
)
STANDARDISED = (StandardisedConv1d, StandardisedConv2d, StandardisedLinear)
"""Of those, by inheritance."""
ON_PLANES = (PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d, PlanarLinear)


def scale_to_unit_outputs(network: nn.Sequential, facts: DataSetFacts, stream: RandomStream) -> None:
    r"""Divides each weight in turn by the root mean square of its layer's outputs |y|, on records of standard normal numbers.

    Biases are 0 at that time, so the outputs then have mean square 1 (of complex outputs E|y|^2 = 1; on planes each plane has a half).
    Standardised weights aren't scaled: their size changes nothing.
    Source: Mishkin and Matas 2016, arXiv:1511.06422, with public records in place of data.
    """
    x = _records(facts, stream)
    network.eval()  # dropout lets everything pass
    with torch.no_grad():
        _scaled(network, x)
    network.train()


def _scaled(module: nn.Module, x: Tensor) -> Tensor:
    """The outputs behind a module whose weights are then scaled."""
    if isinstance(module, nn.Sequential):
        for inner in module:
            x = _scaled(inner, x)
        return x
    if isinstance(module, SelfAttention | Recurrent):
        return module(x)  # Glorot's weights suit what softmax, tanh and sigmoid bound
    if isinstance(module, ResidualBlock):
        return _scaled(module.layers, x) + _scaled(module.shortcut, x)
    outputs = module(x)
    if isinstance(module, WEIGHTED) and not isinstance(module, STANDARDISED):
        size = _mean_square(outputs, is_planes=isinstance(module, ON_PLANES)) ** 0.5
        if size > 0.0:
            module.weight.div_(size)
            outputs = outputs / size
    return outputs


def _records(facts: DataSetFacts, stream: RandomStream) -> Tensor:
    shape = (RECORDS, *facts.shape)
    if not facts.is_complex:
        return torch.from_numpy(stream.normal(math.prod(shape)).reshape(shape)).to(torch.float32)
    # E|x|^2 = 1, as for real records.
    pairs = math.sqrt(0.5) * stream.normal(2 * math.prod(shape)).reshape(*shape, 2)
    return torch.view_as_complex(torch.from_numpy(pairs).to(torch.float32).contiguous())


def _mean_square(outputs: Tensor, *, is_planes: bool) -> float:
    squares = torch.view_as_real(outputs).square().sum(dim=-1) if outputs.is_complex() else outputs.square()
    return (2.0 if is_planes else 1.0) * float(squares.to(torch.float64).mean())
