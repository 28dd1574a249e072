r"""Residual networks as values: none of them has a batch norm, which mixes records. Without torch.

He, Zhang, Ren and Sun 2016 (arXiv:1512.03385); wide ones before the activation (Zagoruyko and Komodakis 2016, arXiv:1605.07146); with
grouped convolutions (Xie, Girshick, Dollar, Tu and He 2017, arXiv:1611.05431). Complex ones have the same layers on complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    ChannelAffine,
    Convolution,
    Flatten,
    GroupNorm,
    LayerSpec,
    Linear,
    MaxPool,
    PlainLayer,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential

GROUPS = 16
"""As De et al. 2022 have them."""

Numbers = Literal["complex", "real", "real_pairs"]
Norm = Literal["group", "affine"]
"""After (or before) every convolution: group norm of ``GROUPS`` groups, or what a published network's batch norm is with its statistics
fixed: a factor and a shift for each channel."""


def resnet_18(
    classes: int,
    numbers: Numbers = "real",
    width: int = 64,
    *,
    norm: Norm = "group",
    for_large_images: bool = False,
    normalises_sums: bool = False,
) -> Sequential:
    r"""Eight blocks of two convolutions.

    Args:
      width: channels of the first ones, for group norm a multiple of ``GROUPS``.
      for_large_images: begins with a 7 x 7 convolution of stride 2 and a max pool, as torchvision's; else with a 3 x 3 convolution.
      normalises_sums: a norm after each block's sum too (ScaleNorm: Klause, Ziller, Rueckert, Hammernik and Kaissis 2022,
        arXiv:2203.00324).
    """
    first = (*_convolved(norm, width, 7, 2), _active(numbers), MaxPool(kernel=3, stride=2, padding=1))
    layers: list[LayerSpec] = [*(first if for_large_images else (*_convolved(norm, width), _active(numbers)))]
    before = width
    for stage in range(4):
        for opens in (True, False):
            channels, stride = width * 2**stage, 2 if stage and opens else 1
            inner = (*_convolved(norm, channels, stride=stride), _active(numbers), *_convolved(norm, channels))
            fits = stride == 1 and channels == before
            layers.append(Residual(layers=inner, shortcut=() if fits else _convolved(norm, channels, 1, stride)))
            layers += [*((_norm(norm),) if normalises_sums else ()), _active(numbers)]
            before = channels
    return _classified(layers, classes, numbers)


def resnext_29(
    classes: int, cardinality: int, width: int, numbers: Numbers = "real", *, after: int = 256, norm: Norm = "group"
) -> Sequential:
    r"""Three stages of three blocks 1 x 1, grouped 3 x 3, 1 x 1, for images of 32 x 32: 8 x 64 is the one of the paper's Table 7.

    Args:
      cardinality: groups of each block's middle convolution.
      width: channels of each group in the first stage; the later ones have twice and four times as many.
      after: channels behind each block of the first stage, of which the later ones have as many times more; a quarter of them before.
    """
    before = after // 4
    layers: list[LayerSpec] = [*_convolved(norm, before), _active(numbers)]
    for stage in range(3):
        for opens in (True, False, False):
            inner, behind, stride = cardinality * width * 2**stage, after * 2**stage, 2 if stage and opens else 1
            block: tuple[PlainLayer, ...] = (
                *(*_convolved(norm, inner, 1), _active(numbers)),
                *(*_convolved(norm, inner, 3, stride, groups=cardinality), _active(numbers)),
                *_convolved(norm, behind, 1),
            )
            fits = stride == 1 and behind == before
            layers += [Residual(layers=block, shortcut=() if fits else _convolved(norm, behind, 1, stride)), _active(numbers)]
            before = behind
    return _classified(layers, classes, numbers)


def wide_resnet(
    classes: int, depth: int, widening: int, numbers: Numbers = "real", *, norm: Norm = "group", standardises: bool = False
) -> Sequential:
    r"""Three stages of blocks that norm and activation begin, as many times wider: 28 and 10, or 16 and 4.

    Args:
      standardises: every convolution's filters are standardised, as De et al. 2022 do in private training.
    Raises:
      InvalidParameter: the depth isn't 6 n + 4.
    """
    if depth < 10 or (depth - 4) % 6:
        raise InvalidParameter("depth", "10, 16, 22, ...", depth)
    layers: list[LayerSpec] = [_filters(16, 3, standardises=standardises)]
    before = 16
    for stage in range(3):
        for block in range((depth - 4) // 6):
            channels, stride = 16 * 2**stage * widening, 2 if stage and not block else 1
            inner: tuple[PlainLayer, ...] = (
                *(_filters(channels, 3, stride, standardises=standardises), _norm(norm), _active(numbers)),
                _filters(channels, 3, standardises=standardises),
            )
            begin: tuple[PlainLayer, ...] = (_norm(norm), _active(numbers))
            if channels == before and stride == 1:
                layers.append(Residual(layers=(*begin, *inner)))
            else:
                # Where the shape changes the shortcut begins behind norm and activation.
                shortcut = (_filters(channels, 1, stride, standardises=standardises),)
                layers += [*begin, Residual(layers=inner, shortcut=shortcut)]
            before = channels
    return _classified([*layers, _norm(norm), _active(numbers)], classes, numbers)


def _convolved(norm: Norm, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> tuple[PlainLayer, ...]:
    return _filters(channels, kernel, stride, groups), _norm(norm)


def _filters(channels: int, kernel: int, stride: int = 1, groups: int = 1, *, standardises: bool = False) -> Convolution:
    padding = kernel // 2
    return Convolution(
        outputs=channels, kernel=kernel, stride=stride, padding=padding, groups=groups, bias=False, standardised=standardises
    )


def _norm(norm: Norm) -> GroupNorm | ChannelAffine:
    return GroupNorm(groups=GROUPS) if norm == "group" else ChannelAffine()


def _active(numbers: Numbers) -> Activation:
    return Activation(name="crelu" if numbers == "complex" else "relu")


def _classified(layers: Sequence[LayerSpec], classes: int, numbers: Numbers) -> Sequential:
    end = (AdaptiveAveragePool(size=1), Flatten(), Linear(outputs=classes))
    return Sequential(numbers=numbers, layers=(*layers, *end), head="real_part" if numbers == "complex" else "none")
