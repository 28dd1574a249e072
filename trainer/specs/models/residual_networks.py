r"""Residual networks for small images as values, with group norms in place of batch norms, which mix records. Without torch.

He, Zhang, Ren and Sun 2016 (arXiv:1512.03385), in the form for images of 32 x 32 with a first convolution of 3 x 3; wide ones before the
activation (Zagoruyko and Komodakis 2016, arXiv:1605.07146). Complex ones have the same layers on complex numbers.
"""

from __future__ import annotations

from typing import Literal

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    Convolution,
    Flatten,
    GroupNorm,
    LayerSpec,
    Linear,
    PlainLayer,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential

GROUPS = 16
"""As De et al. 2022 have them."""

Numbers = Literal["complex", "real", "real_pairs"]


def resnet_18(classes: int, numbers: Numbers = "real", width: int = 64) -> Sequential:
    """Eight blocks of two convolutions; ``width``: channels of the first ones, a multiple of ``GROUPS``."""
    layers: list[LayerSpec] = [*_convolved(width), _active(numbers)]
    before = width
    for stage in range(4):
        for first in (True, False):
            channels, stride = width * 2**stage, 2 if stage and first else 1
            inner: tuple[PlainLayer, ...] = (*_convolved(channels, stride=stride), _active(numbers), *_convolved(channels))
            fits = stride == 1 and channels == before
            layers += [Residual(layers=inner, shortcut=() if fits else _convolved(channels, 1, stride)), _active(numbers)]
            before = channels
    return _classified(layers, classes, numbers)


def wide_resnet(classes: int, depth: int, widening: int, numbers: Numbers = "real") -> Sequential:
    r"""Three stages of blocks that norm and activation begin, as many times wider: 28 and 10, or 16 and 4.

    Raises:
      InvalidParameter: the depth isn't 6 n + 4.
    """
    if depth < 10 or (depth - 4) % 6:
        raise InvalidParameter("depth", "10, 16, 22, ...", depth)
    layers: list[LayerSpec] = [Convolution(outputs=16, kernel=3, padding=1, bias=False)]
    before = 16
    for stage in range(3):
        for block in range((depth - 4) // 6):
            channels, stride = 16 * 2**stage * widening, 2 if stage and not block else 1
            inner: tuple[PlainLayer, ...] = (
                *(Convolution(outputs=channels, kernel=3, stride=stride, padding=1, bias=False), GroupNorm(groups=GROUPS)),
                *(_active(numbers), Convolution(outputs=channels, kernel=3, padding=1, bias=False)),
            )
            begin: tuple[PlainLayer, ...] = (GroupNorm(groups=GROUPS), _active(numbers))
            if channels == before and stride == 1:
                layers.append(Residual(layers=(*begin, *inner)))
            else:
                # Where the shape changes the shortcut begins behind norm and activation.
                layers += [*begin, Residual(layers=inner, shortcut=(Convolution(outputs=channels, kernel=1, stride=stride, bias=False),))]
            before = channels
    return _classified([*layers, GroupNorm(groups=GROUPS), _active(numbers)], classes, numbers)


def _convolved(channels: int, kernel: int = 3, stride: int = 1) -> tuple[PlainLayer, ...]:
    return Convolution(outputs=channels, kernel=kernel, stride=stride, padding=kernel // 2, bias=False), GroupNorm(groups=GROUPS)


def _active(numbers: Numbers) -> Activation:
    return Activation(name="crelu" if numbers == "complex" else "relu")


def _classified(layers: list[LayerSpec], classes: int, numbers: Numbers) -> Sequential:
    end = (AdaptiveAveragePool(size=1), Flatten(), Linear(outputs=classes))
    return Sequential(numbers=numbers, layers=(*layers, *end), head="real_part" if numbers == "complex" else "none")
