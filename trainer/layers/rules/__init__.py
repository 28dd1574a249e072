r"""The rules: for each layer type, the cheapest way to compute its per-unit norms and its clipped sum.

Rules are looked up by the exact type, since a subclass may compute something else.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from zetadp.trainer.layers.blocks.sequences import TokenEmbedding
from zetadp.trainer.layers.circulant import BlockCirculantLinear
from zetadp.trainer.layers.convolution import PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d
from zetadp.trainer.layers.linear import ComplexLinear, PlanarLinear
from zetadp.trainer.layers.rules.affine import group_norm, layer_norm
from zetadp.trainer.layers.rules.base import ExplicitGradients, LayerGradients, Rule, UnsupportedLayer, Use, WritableGradients
from zetadp.trainer.layers.rules.circulant import block_circulant
from zetadp.trainer.layers.rules.convolution import convolution, standardised_convolution, transposed_convolution
from zetadp.trainer.layers.rules.embedding import embedding, token_embedding
from zetadp.trainer.layers.rules.linear import linear
from zetadp.trainer.layers.rules.planar_linear import planar_linear
from zetadp.trainer.layers.rules.standardised_linear import standardised_linear
from zetadp.trainer.layers.standardised import (
    StandardisedComplexLinear,
    StandardisedConv1d,
    StandardisedConv2d,
    StandardisedLinear,
    StandardisedPlanarConv1d,
    StandardisedPlanarConv2d,
)

RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: linear,
    ComplexLinear: linear,
    PlanarLinear: planar_linear,
    BlockCirculantLinear: block_circulant,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    PlanarConv1d: convolution,
    PlanarConv2d: convolution,
    StandardisedConv1d: standardised_convolution,
    StandardisedConv2d: standardised_convolution,
    StandardisedPlanarConv1d: standardised_convolution,
    StandardisedPlanarConv2d: standardised_convolution,
    StandardisedLinear: standardised_linear,
    StandardisedComplexLinear: standardised_linear,
    nn.ConvTranspose1d: transposed_convolution,
    nn.ConvTranspose2d: transposed_convolution,
    PlanarConvTranspose2d: transposed_convolution,
    nn.Embedding: embedding,
    TokenEmbedding: token_embedding,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
}

__all__ = ["RULES", "ExplicitGradients", "LayerGradients", "Rule", "UnsupportedLayer", "Use", "WritableGradients"]
