r"""Activations with a trainable bias, one for all features or one per feature, and the table of all activations by name.

Features are the last axis of native complex tensors and the channels of planes. A bias is (1,) or (features,); the same modules accept
it with a leading axis of records, (N, 1) or (N, features), one row for each record: its gradient is then each record's own
(``batched_parameters``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers import activations
from zetadp.trainer.layers.activations import Elementwise


def align(parameter: Tensor, z: Tensor) -> Tensor:
    """A parameter (..., features or 1), with or without a leading axis of records, shaped so that it broadcasts against Re z."""
    if parameter.ndim == 1:
        return parameter if z.is_complex() else parameter.reshape(-1, *(1,) * (z.ndim - 2))
    if parameter.ndim != 2 or z.ndim < 2 or parameter.shape[0] != z.shape[0]:
        raise InvalidParameter("parameter", f"(features,) or ({z.shape[0]}, features)", tuple(parameter.shape))
    records, features = parameter.shape
    ones = (1,) * (z.ndim - 2)
    return parameter.reshape(records, *ones, features) if z.is_complex() else parameter.reshape(records, features, *ones)


@final
class TrainableCardioid(nn.Module):
    r"""(1 + cos(arg z + bias)) z / 2 with a trainable bias, initially 0: the plain cardioid.

    Args:
      features: the number of biases, one per feature; 1 for a single common bias.
    Sources: Virtue, Yu and Lustig 2017; zeta-DP paper, Table 4.
    """

    batched_parameters: ClassVar[bool] = True

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, z: Tensor) -> Tensor:
        return activations.cardioid(z, align(self.bias, z))


@final
class TrainableModRelu(nn.Module):
    r"""max(|z| + bias, 0) z / |z| with a trainable bias, initially 0: the identity.

    Args:
      features: the number of biases, one per feature; 1 for a single common bias.
    Source: Arjovsky, Shah and Bengio 2016, eq. (8).
    """

    batched_parameters: ClassVar[bool] = True

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, z: Tensor) -> Tensor:
        return activations.modrelu(z, align(self.bias, z))


def _plain(function: Callable[[Tensor], Tensor]) -> Callable[[int], nn.Module]:
    return lambda _: Elementwise(function)


COMPLEX_ACTIVATIONS: MappingProxyType[str, Callable[[int], nn.Module]] = MappingProxyType(
    {
        "cardioid": _plain(activations.cardioid),
        "trainable_cardioid": lambda _: TrainableCardioid(1),
        "trainable_cardioid_per_feature": TrainableCardioid,
        "conj_mish": _plain(activations.conj_mish),
        "crelu": _plain(activations.crelu),
        "igaussian": _plain(activations.igaussian),
        "modrelu": lambda _: TrainableModRelu(1),
        "modrelu_per_feature": TrainableModRelu,
        "separable_sigmoid": _plain(activations.separable_sigmoid),
        "separable_tanh": _plain(activations.separable_tanh),
        "siglog": _plain(activations.siglog),
        "zrelu": _plain(activations.zrelu),
    }
)
"""Name -> factory(features) -> module, on native complex tensors and on planes."""

REAL_ACTIVATIONS: MappingProxyType[str, Callable[[int], nn.Module]] = MappingProxyType(
    {
        "relu": _plain(torch.relu),
        "tanh": _plain(torch.tanh),
        "sigmoid": _plain(torch.sigmoid),
        "mish": _plain(activations.mish),
    }
)
"""Name -> factory(features) -> module, of networks of real numbers."""

ACTIVATIONS: MappingProxyType[str, Callable[[int], nn.Module]] = MappingProxyType({**COMPLEX_ACTIVATIONS, **REAL_ACTIVATIONS})
"""All of both."""
