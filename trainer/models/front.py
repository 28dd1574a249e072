r"""What stands before everything that learns: computed once for all records instead of in every step."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from trainer.layers.filter_bank import GaborModulus
from trainer.layers.planes import FromPlanes, ToPlanes
from trainer.models.complex_layers import UnitaryFourier
from trainer.models.sequential import ZeroImaginary

FIXED = (ZeroImaginary, ToPlanes, FromPlanes, UnitaryFourier, GaborModulus, nn.Flatten, nn.Unflatten)
"""Public functions of one record: no parameters, no randomness, the same in every step."""

RECORDS_AT_ONCE = 512


def split_front(network: nn.Module) -> tuple[nn.Sequential, nn.Module]:
    r"""The fixed modules that a row begins with, and the rest under its own names; together they are the network.

    >>> front, rest = split_front(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
    >>> [name for name, _ in rest.named_parameters()]
    ['1.weight', '1.bias']
    """
    if type(network) is not nn.Sequential:
        return nn.Sequential(), network
    named = list(network.named_children())
    fixed = next((place for place, (_, module) in enumerate(named) if type(module) not in FIXED), len(named))
    return nn.Sequential(OrderedDict(named[:fixed])), nn.Sequential(OrderedDict(named[fixed:]))


def passed_through(front: nn.Sequential, features: Tensor) -> Tensor:
    """(records, ...) -> (records, ...), some records at a time; ``features`` itself where nothing is done."""
    if not len(front) or not len(features):
        return features
    with torch.no_grad():
        return torch.cat([front(chunk) for chunk in features.split(RECORDS_AT_ONCE)])
