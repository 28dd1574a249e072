"""Constructors and inputs for the layers of packages that aren't among ours: each is tried where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch

from tests.library.layers.torch_layers import normal, whole
from tests.library.layers.trying import Case


def _complex(*shape: int) -> Any:
    return torch.view_as_complex(normal(*shape, 2))


ROWS, SEQUENCE = _complex(6), _complex(5, 8)
SIGNAL, IMAGE, VOLUME = _complex(4, 8), _complex(4, 8, 8), _complex(4, 8, 8, 8)
BY_AXES = {1: SIGNAL, 2: IMAGE, 3: VOLUME}


def _of(package: str) -> Callable[..., Case]:
    def case(name: str, inputs: Any, *arguments: Any, **named: Any) -> Case:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        return Case(partial(getattr(import_module(package), name), *arguments, **named), given)

    return case


def torchcvnn() -> dict[str, Case]:
    """Of ``torchcvnn.nn``; losses aren't layers."""
    case = _of("torchcvnn.nn")
    pointwise = [
        "CCELU",
        "CELU",
        "CGELU",
        "CPReLU",
        "CReLU",
        "CSigmoid",
        "CTanh",
        "Cardioid",
        "Dropout",
        "Mod",
        "modReLU",
        "zAbsReLU",
        "zLeakyReLU",
        "zReLU",
    ]
    return {
        **{name: case(name, ROWS) for name in pointwise},
        "Dropout2d": case("Dropout2d", IMAGE),
        "AdaptiveAvgPool2d": case("AdaptiveAvgPool2d", IMAGE, 2),
        "AvgPool2d": case("AvgPool2d", IMAGE, 2),
        "MaxPool2d": case("MaxPool2d", IMAGE, 2),
        "Upsample": case("Upsample", IMAGE, scale_factor=2),
        "ConvTranspose2d": case("ConvTranspose2d", IMAGE, 4, 2, 3),
        "BatchNorm1d": case("BatchNorm1d", SIGNAL, 4),
        "BatchNorm2d": case("BatchNorm2d", IMAGE, 4),
        "LayerNorm": case("LayerNorm", ROWS, 6),
        "RMSNorm": case("RMSNorm", ROWS, 6),
        "MultiheadAttention": case("MultiheadAttention", (SEQUENCE,) * 3, 8, 2, batch_first=True),
        "TransformerEncoderLayer": case("TransformerEncoderLayer", SEQUENCE, 8, 2, 16, batch_first=True),
        "TransformerDecoderLayer": case("TransformerDecoderLayer", (SEQUENCE, SEQUENCE), 8, 2, 16, batch_first=True),
        "Transformer": case("Transformer", (SEQUENCE, SEQUENCE), 8, 2, 1, 1, 16, batch_first=True),
        "ViTLayer": case("ViTLayer", SEQUENCE, 2, 8, 16),
    }


def complextorch() -> dict[str, Case]:
    """Of ``complextorch.nn``; losses, metrics and changes of the form of data aren't layers."""
    case = _of("complextorch.nn")
    pointwise = [
        "CCELU",
        "CELU",
        "CGELU",
        "CPReLU",
        "CReLU",
        "CSigmoid",
        "CTanh",
        "CVCardiod",
        "CVPolarLog",
        "CVPolarSquash",
        "CVPolarTanh",
        "CVSigLog",
        "CVSigmoid",
        "CVSplitAbs",
        "CVSplitCELU",
        "CVSplitELU",
        "CVSplitGELU",
        "CVSplitReLU",
        "CVSplitSigmoid",
        "CVSplitTanh",
        "Dropout",
        "Mod",
        "PhaseSigmoid",
        "modReLU",
        "tReLU",
        "zAbsReLU",
        "zLeakyReLU",
        "zReLU",
        "ComplexScaling",
        "PhaseShift",
        "FFTBlock",
        "IFFTBlock",
        "MagMinMaxNorm",
    ]
    found = {name: case(name, ROWS) for name in pointwise}
    for axes, given in BY_AXES.items():
        sizes: dict[str, tuple[Any, ...]] = {
            "Conv": (4, 2, 3),
            "ConvTranspose": (4, 2, 3),
            "PhaseConjConv": (4, 3),
            "PhaseDivConv": (4, 3),
            "BatchNorm": (4,),
            "MagBatchNorm": (4,),
            "NaiveBatchNorm": (4,),
            "AdaptiveAvgPool": (2,),
            "AvgPool": (2,),
            "MagMaxPool": (2,),
            "SpectralPool": ((2,) * axes,),
            "Dropout": (),
            "EfficientChannelAttention": (4,),
            "MaskedChannelAttention": (4,),
        }
        found |= {f"{name}{axes}d": case(f"{name}{axes}d", given, *arguments) for name, arguments in sizes.items()}
    return found | {
        "Linear": case("Linear", ROWS, 6, 3),
        "Bilinear": case("Bilinear", (ROWS, ROWS), 6, 6, 3),
        "LayerNorm": case("LayerNorm", ROWS, 6),
        "RMSNorm": case("RMSNorm", ROWS, 6),
        "GroupNorm": case("GroupNorm", IMAGE, 2, 4),
        "CVSoftMax": case("CVSoftMax", ROWS, 1),
        "MagSoftMax": case("MagSoftMax", ROWS, 1),
        "PhaseSoftMax": case("PhaseSoftMax", ROWS, 1),
        "AdaptiveModReLU": case("AdaptiveModReLU", ROWS, 6),
        "EquivariantPhaseReLU": case("EquivariantPhaseReLU", SIGNAL, 4),
        "GTReLU": case("GTReLU", SIGNAL, 4),
        "CVKANLayer": case("CVKANLayer", ROWS, 6, 3),
        "ComplexGaborConv1d": case("ComplexGaborConv1d", SIGNAL, 4, 2, 3),
        "MorletConv1d": case("MorletConv1d", SIGNAL, 4, 2, 3),
        "GRUCell": case("GRUCell", ROWS, 6, 4),
        "LSTMCell": case("LSTMCell", ROWS, 6, 4),
        "UnitaryRNNCell": case("UnitaryRNNCell", ROWS, 6, 4),
        "GRU": case("GRU", SEQUENCE, 8, 4, batch_first=True),
        "LSTM": case("LSTM", SEQUENCE, 8, 4, batch_first=True),
        "UnitaryRNN": case("UnitaryRNN", SEQUENCE, 8, 4, batch_first=True),
        "MultiheadAttention": case("MultiheadAttention", (SEQUENCE,) * 3, 2, 8, 4, 4),
        "TransformerEncoderLayer": case("TransformerEncoderLayer", SEQUENCE, 8, 2),
        "TransformerDecoderLayer": case("TransformerDecoderLayer", (SEQUENCE, SEQUENCE), 8, 2),
        "S4D": case("S4D", SEQUENCE, 8),
        "DSS": case("DSS", SEQUENCE, 8),
        "SinusoidalPositionalEncoding": case("SinusoidalPositionalEncoding", SEQUENCE, 8),
        "Upsample": case("Upsample", IMAGE, scale_factor=2),
        "PolarUpsample": case("PolarUpsample", IMAGE, scale_factor=2),
    }


def torchvision() -> dict[str, Case]:
    """Small models of ``torchvision.models``, and its layers that have a state."""
    models, ops = _of("torchvision.models"), _of("torchvision.ops")
    small: dict[str, Any] = {"num_classes": 3, "weights": None}
    return {
        "resnet18": models("resnet18", normal(3, 32, 32), **small),
        "squeezenet1_1": models("squeezenet1_1", normal(3, 32, 32), **small),
        "VisionTransformer": models("VisionTransformer", normal(3, 16, 16), 16, 8, 1, 2, 8, 16, num_classes=3),
        "MLP": ops("MLP", normal(6), 6, [4, 3]),
        "Conv2dNormActivation": ops("Conv2dNormActivation", normal(3, 8, 8), 3, 4),
        "FrozenBatchNorm2d": ops("FrozenBatchNorm2d", normal(3, 8, 8), 3),
        "SqueezeExcitation": ops("SqueezeExcitation", normal(4, 8, 8), 4, 2),
        "StochasticDepth": ops("StochasticDepth", normal(6), 0.5, "row"),
    }


def _model(name: str, config: dict[str, Any]) -> Any:
    transformers = import_module("transformers")
    config_class = name.split("For", maxsplit=1)[0].removesuffix("Model").removesuffix("LMHead") + "Config"
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config_class)(**config))


def transformers() -> dict[str, Case]:
    """Small transformers of random weights."""
    usual = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10}
    wide = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 10}
    narrow = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 10, "pad_token_id": 0}
    image = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 8, "patch_size": 4}
    return {
        "BertForSequenceClassification": Case(partial(_model, "BertForSequenceClassification", usual), (whole(5),)),
        "RobertaForSequenceClassification": Case(partial(_model, "RobertaForSequenceClassification", usual), (whole(5),)),
        "DistilBertForSequenceClassification": Case(partial(_model, "DistilBertForSequenceClassification", wide), (whole(5),)),
        "GPT2ForSequenceClassification": Case(partial(_model, "GPT2ForSequenceClassification", narrow), (whole(5),)),
        "ViTForImageClassification": Case(partial(_model, "ViTForImageClassification", image), (normal(3, 8, 8),)),
    }


PACKAGES: dict[str, Callable[[], dict[str, Case]]] = {
    "torchcvnn": torchcvnn,
    "complextorch": complextorch,
    "torchvision": torchvision,
    "transformers": transformers,
}
"""By the package's name in Python and at the index."""
