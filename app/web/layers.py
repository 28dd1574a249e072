r"""What each kind of layer starts as when it is added to a model in the form of a training."""

from __future__ import annotations

from typing import Any

LAYERS: tuple[dict[str, Any], ...] = (
    {"kind": "linear", "outputs": 32, "bias": True},
    {"kind": "block_circulant_linear", "outputs": 32, "block": 8, "bias": True},
    {"kind": "convolution", "outputs": 16, "kernel": 3, "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "bias": True},
    {"kind": "transposed_convolution", "outputs": 16, "kernel": 2, "stride": 2, "padding": 0, "bias": True},
    {"kind": "activation", "name": "relu"},
    {"kind": "activation", "name": "cardioid"},
    {"kind": "average_pool", "kernel": 2, "stride": 2},
    {"kind": "max_pool", "kernel": 2, "stride": 2, "padding": 0},
    {"kind": "adaptive_average_pool", "size": 1},
    {"kind": "adaptive_max_pool", "size": 1},
    {"kind": "group_norm", "groups": 4},
    {"kind": "layer_norm"},
    {"kind": "instance_norm"},
    {"kind": "dropout", "probability": 0.1},
    {"kind": "flatten"},
    {"kind": "columns"},
    {"kind": "unflatten", "channels": 1, "height": 8, "width": 8},
)
"""As JSON has them. Residual blocks, filter banks and scattering are for the JSON."""
