r"""The fixed front of a network, before everything that learns: computed once for all records instead of in every step."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.activations import Elementwise
from zetadp.trainer.layers.filter_bank import GaborModulus
from zetadp.trainer.layers.planes import FromPlanes, ToPlanes
from zetadp.trainer.layers.scattering import Scattering
from zetadp.trainer.models.complex_layers import Applied, UnitaryFourier
from zetadp.trainer.models.sequential import ZeroImaginary

FIXED = (
    ZeroImaginary,
    ToPlanes,
    FromPlanes,
    UnitaryFourier,
    GaborModulus,
    Scattering,
    nn.Flatten,
    nn.Unflatten,
    Elementwise,
    Applied,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
)
"""Public functions of one record: no parameters, no randomness, the same in every step. The last ones make up frozen networks."""

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
    fixed = next((place for place, (_, module) in enumerate(named) if not _is_fixed(module)), len(named))
    return nn.Sequential(OrderedDict(named[:fixed])).eval(), nn.Sequential(OrderedDict(named[fixed:]))


def _is_fixed(module: nn.Module) -> bool:
    """A layer with parameters is fixed if they are frozen: public constants, like a filter bank's."""
    parameters = list(module.parameters())
    return not any(parameter.requires_grad for parameter in parameters) if parameters else type(module) in FIXED


def passed_through(front: nn.Sequential, features: Tensor) -> Tensor:
    """(records, ...) -> (records, ...), some records at a time; ``features`` itself if there is nothing to do."""
    if not len(front) or not len(features):
        return features
    with torch.no_grad():
        first, *others = features.split(RECORDS_AT_ONCE)
        start = front(first)
        # Filled in place: a list of chunks and their concatenation would hold everything twice.
        passed = start.new_empty((len(features), *start.shape[1:]))
        passed[: len(first)] = start
        for place, chunk in enumerate(others, start=1):
            passed[place * RECORDS_AT_ONCE :][: len(chunk)] = front(chunk)
    return passed
