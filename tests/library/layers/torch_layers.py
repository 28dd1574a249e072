"""One constructor and one input for each public layer of ``torch.nn``; losses and containers aren't layers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tests.library.layers.trying import RECORDS, Case


def normal(*shape: int) -> Any:
    """(records, *shape) standard normal numbers."""
    return torch.randn(RECORDS, *shape, generator=torch.Generator().manual_seed(2))


def whole(*shape: int) -> Any:
    """(records, *shape) whole numbers below 10."""
    return torch.randint(10, (RECORDS, *shape), generator=torch.Generator().manual_seed(2))


def case(name: str, inputs: tuple[Any, ...] | Any, *arguments: Any, **named: Any) -> Case:
    """A layer of torch with these arguments."""
    return Case(partial(getattr(nn, name), *arguments, **named), inputs if isinstance(inputs, tuple) else (inputs,))


IMAGE = {1: normal(3, 8), 2: normal(3, 8, 8), 3: normal(3, 8, 8, 8)}
CHANNELS = {1: normal(4, 8), 2: normal(4, 8, 8), 3: normal(4, 4, 4, 4)}
ROWS, SEQUENCE = normal(6), normal(5, 8)
POINTWISE = [
    "CELU",
    "ELU",
    "GELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "LeakyReLU",
    "LogSigmoid",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Dropout",
    "AlphaDropout",
]


def _by_axes() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for axes, image in IMAGE.items():
        channels = CHANNELS[axes]
        own: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "Conv": (image, (3, 4, 3)),
            "LazyConv": (image, (4, 3)),
            "ConvTranspose": (image, (3, 4, 3)),
            "LazyConvTranspose": (image, (4, 3)),
            "BatchNorm": (image, (3,)),
            "LazyBatchNorm": (image, ()),
            "InstanceNorm": (image, (3,)),
            "LazyInstanceNorm": (image, ()),
            "MaxPool": (image, (2,)),
            "AvgPool": (image, (2,)),
            "LPPool": (image.abs(), (2, 2)),
            "AdaptiveMaxPool": (image, (2,)),
            "AdaptiveAvgPool": (image, (2,)),
            "Dropout": (image, ()),
            "ConstantPad": (channels, (1, 0.5)),
            "ZeroPad": (channels, (1,)),
            "CircularPad": (channels, (1,)),
            "ReflectionPad": (channels, (1,)),
            "ReplicationPad": (channels, (1,)),
        }
        found |= {f"{name}{axes}d": case(f"{name}{axes}d", given, *arguments) for name, (given, arguments) in own.items()}
        pool, unpool = getattr(nn, f"MaxPool{axes}d")(2, return_indices=True), f"MaxUnpool{axes}d"
        found[unpool] = case(unpool, pool(channels), 2)
    return found


def _encoder() -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)


def _decoder() -> Any:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2)


CASES: dict[str, Case] = {
    **{name: case(name, ROWS) for name in POINTWISE},
    **_by_axes(),
    "Linear": case("Linear", ROWS, 6, 3),
    "LazyLinear": case("LazyLinear", ROWS, 3),
    "Bilinear": case("Bilinear", (ROWS, normal(4)), 6, 4, 3),
    "Embedding": case("Embedding", whole(5), 10, 4),
    "Embedding(max_norm=1)": case("Embedding", whole(5), 10, 4, max_norm=1.0),
    "EmbeddingBag": case("EmbeddingBag", whole(5), 10, 4),
    "RNN": case("RNN", SEQUENCE, 8, 4, batch_first=True),
    "RNN(batch_first=False)": case("RNN", SEQUENCE, 8, 4),
    "LSTM": case("LSTM", SEQUENCE, 8, 4, batch_first=True),
    "LSTM(bidirectional, 2 layers)": case("LSTM", SEQUENCE, 8, 4, num_layers=2, bidirectional=True, batch_first=True),
    "LSTM(proj_size=2)": case("LSTM", SEQUENCE, 8, 4, proj_size=2, batch_first=True),
    "GRU": case("GRU", SEQUENCE, 8, 4, batch_first=True),
    "RNNCell": case("RNNCell", ROWS, 6, 4),
    "LSTMCell": case("LSTMCell", ROWS, 6, 4),
    "GRUCell": case("GRUCell", ROWS, 6, 4),
    "MultiheadAttention": case("MultiheadAttention", (SEQUENCE,) * 3, 8, 2, batch_first=True),
    "MultiheadAttention(batch_first=False)": case("MultiheadAttention", (SEQUENCE,) * 3, 8, 2),
    "TransformerEncoderLayer": case("TransformerEncoderLayer", SEQUENCE, 8, 2, 16, batch_first=True),
    "TransformerDecoderLayer": case("TransformerDecoderLayer", (SEQUENCE, SEQUENCE), 8, 2, 16, batch_first=True),
    "TransformerEncoder": Case(_encoder, (SEQUENCE,)),
    "TransformerDecoder": Case(_decoder, (SEQUENCE, SEQUENCE)),
    "Transformer": case("Transformer", (SEQUENCE, SEQUENCE), 8, 2, 1, 1, 16, batch_first=True),
    "LayerNorm": case("LayerNorm", ROWS, 6),
    "RMSNorm": case("RMSNorm", ROWS, 6),
    "GroupNorm": case("GroupNorm", CHANNELS[2], 2, 4),
    "SyncBatchNorm": case("SyncBatchNorm", IMAGE[2], 3),
    "LocalResponseNorm": case("LocalResponseNorm", IMAGE[2], 2),
    "CrossMapLRN2d": case("CrossMapLRN2d", IMAGE[2], 2),
    "Flatten": case("Flatten", IMAGE[2]),
    "Unflatten": case("Unflatten", ROWS, 1, (2, 3)),
    "Fold": case("Fold", normal(12, 9), (4, 4), 2),
    "Unfold": case("Unfold", IMAGE[2], 3),
    "FeatureAlphaDropout": case("FeatureAlphaDropout", IMAGE[2]),
    "FractionalMaxPool2d": case("FractionalMaxPool2d", IMAGE[2], 2, 4),
    "FractionalMaxPool3d": case("FractionalMaxPool3d", IMAGE[3], 2, 4),
    "ChannelShuffle": case("ChannelShuffle", CHANNELS[2], 2),
    "PixelShuffle": case("PixelShuffle", CHANNELS[2], 2),
    "PixelUnshuffle": case("PixelUnshuffle", CHANNELS[2], 2),
    "Upsample": case("Upsample", IMAGE[2], scale_factor=2),
    "UpsamplingBilinear2d": case("UpsamplingBilinear2d", IMAGE[2], scale_factor=2),
    "UpsamplingNearest2d": case("UpsamplingNearest2d", IMAGE[2], scale_factor=2),
    "CosineSimilarity": case("CosineSimilarity", (ROWS, normal(6).flip(0))),
    "PairwiseDistance": case("PairwiseDistance", (ROWS, normal(6).flip(0))),
    "GLU": case("GLU", ROWS),
    "Threshold": case("Threshold", ROWS, 0.1, 0.0),
    "Softmax": case("Softmax", ROWS, 1),
    "Softmax(dim=0)": case("Softmax", ROWS, 0),
    "LogSoftmax": case("LogSoftmax", ROWS, 1),
    "Softmin": case("Softmin", ROWS, 1),
    "Softmax2d": case("Softmax2d", IMAGE[2]),
}
