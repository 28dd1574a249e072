r"""The fixed front of a network, before everything that learns: computed once for all records instead of in every step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.activations import Elementwise
from zetadp.trainer.layers.filter_bank import GaborModulus
from zetadp.trainer.layers.planes import FromPlanes, ToPlanes
from zetadp.trainer.layers.pooling import RectifiedMeans
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
    RectifiedMeans,
    nn.Identity,
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

RECORDS_AT_ONCE = (64, 16, 4, 1)
"""The most that keep a record's bits. Padding costs little of it."""

OTHERS = (100.0, -100.0)
"""By what others are larger, where records are compared beside them."""


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
    r"""(records, ...) -> (records, ...), in which no bit of a record depends on the others; ``features`` itself if there is nothing to do.

    One record more would otherwise change the last bits of others: a row of a product depends on the number of rows, and a kink behind the
    front makes a bit of a feature a different gradient. So always as many are passed at once, made-up ones among them at the end, and only
    as many as leave a made-up record's bits what they are at other places, beside others.
    """
    if not len(front) or not len(features):
        return features
    with torch.no_grad():
        size = steady_size(front, lambda size: partial(mixed, _made_up(features, size)))
        start = front(_filled(features[:size], size))
        # Filled in place: a list of chunks and their concatenation would hold everything twice.
        passed = start.new_empty((len(features), *start.shape[1:]))
        for place in range(0, len(features), size):
            found = start if place == 0 else front(_filled(features[place:][:size], size))
            passed[place:][:size] = found[: len(features) - place]
    return passed


def _filled(records: Tensor, size: int) -> Tensor:
    """These records, and zeros up to ``size`` of them."""
    return torch.cat([records, records.new_zeros((size - len(records), *records.shape[1:]))]) if len(records) < size else records


def steady_size(network: Callable[[Tensor], Tensor], made_up: Callable[[int], Callable[[Tensor, float], Tensor]]) -> int:
    r"""How many records may be passed at once: the first of ``RECORDS_AT_ONCE`` in which no bit of a made-up record's output depends on its
    place or on the others.

    Args:
      made_up: a number of records -> a function that gives these of them, (count,), the last quarter times a factor.
    """
    return next(size for size in RECORDS_AT_ONCE if size == 1 or _keeps_its_bits(network, made_up(size), size))


def _keeps_its_bits(network: Callable[[Tensor], Tensor], records: Callable[[Tensor, float], Tensor], size: int) -> bool:
    """Whether all come out the same at other places, and beside others that are much larger."""
    rows, own = torch.arange(size), size - size // 4
    found = network(records(rows, 1.0))
    if not all(torch.equal(network(records(order, 1.0)), found[order]) for order in (rows.roll(1), rows.roll(size // 2), rows.flip(0))):
        return False
    order = rows.flip(0)
    return all(torch.equal(network(records(order, factor))[:own], found[order[:own]]) for factor in OTHERS)


def mixed(records: Tensor, order: Tensor, factor: float) -> Tensor:
    """These of the records, the last quarter times the factor where they are numbers: whole ones name something."""
    own, rest = records[order].split((len(order) - len(order) // 4, len(order) // 4))
    return torch.cat((own, factor * rest if rest.is_floating_point() or rest.is_complex() else rest))


def _made_up(features: Tensor, count: int) -> Tensor:
    """Of the data only the shape and type: standard normal real components, and zeros for whole numbers."""
    shape, generator = (count, *features.shape[1:]), torch.Generator().manual_seed(0)
    if features.is_complex():
        drawn = torch.view_as_complex(torch.randn(*shape, 2, generator=generator))
    elif features.is_floating_point():
        drawn = torch.randn(shape, generator=generator)
    else:
        drawn = torch.zeros(shape)
    return drawn.to(features.device, features.dtype)
