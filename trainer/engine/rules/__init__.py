r"""The rules: for each layer type, the cheapest way to its per-unit norms and to its clipped sum.

Looked up by the exact type: a subclass may compute something else.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from trainer.engine.rules.affine import group_norm, layer_norm
from trainer.engine.rules.base import ExplicitGradients, LayerGradients, Rule, UnsupportedLayer, Use
from trainer.engine.rules.linear import linear
from trainer.layers.linear import ComplexLinear

RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: linear,
    ComplexLinear: linear,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
}

__all__ = ["RULES", "ExplicitGradients", "LayerGradients", "Rule", "UnsupportedLayer", "Use"]
