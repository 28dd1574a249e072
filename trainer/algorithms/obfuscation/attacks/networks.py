r"""The attackers' networks, small, for features and images of any size: their weights are drawn from a generator, never a global one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast, final

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

WIDTH = 32
HIDDEN = 64
_GRID = 4
"""Rows and columns that positions are pooled to before dense layers."""

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def convolution(inputs: int, outputs: int, generator: Generator, *, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    """3 x 3, of the same size at stride 1."""
    module = cast("nn.Conv2d", skip_init(nn.Conv2d, inputs, outputs, 3, stride=stride, padding=1, bias=bias))
    return _filled(module, inputs * 9, generator)


def dense(inputs: int, outputs: int, generator: Generator, *, bias: bool = True) -> nn.Linear:
    """A linear layer."""
    return _filled(cast("nn.Linear", skip_init(nn.Linear, inputs, outputs, bias=bias)), inputs, generator)


def channel_statistic(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and root mean square deviation of axis 1, shaped to divide one row; a deviation of 0 is 1, for there is nothing to scale."""
    axes = [axis for axis in range(rows.dim()) if axis != 1]
    mean = rows.mean(dim=axes, keepdim=True)
    deviation = (rows - mean).square().mean(dim=axes, keepdim=True).sqrt()
    return mean[0], torch.where(deviation > 0.0, deviation, 1.0)[0]


def train(module: nn.Module, loss_of: Callable[[], Tensor], *, steps: int, learning_rate: float, tick: Callable[[], None]) -> None:
    """Adam with a rate that falls to zero along a cosine; the module is left ready for use."""
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
    module.train()
    with torch.enable_grad():
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / steps))
            optimizer.zero_grad()
            loss_of().backward()
            optimizer.step()
            tick()
    module.eval()
    module.requires_grad_(False)


@final
class Quadratures(nn.Module):
    r"""Scores whether Re and Im of x e^(-i phi) are both genuine: a and b, not b and -a, nor anything between.

    The first layer is linear, so it is applied to the planes once and turned with them, for however many angles.

    Attributes:
      outputs: the number of numbers that it gives for one x.
    """

    def __init__(self, shape: tuple[int, ...], scale: Tensor, generator: Generator) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", scale)
        is_image = len(shape) == 3
        if is_image:
            # Halved at once if there are enough positions: everything after this is done for every angle.
            stride = 2 if min(shape[1:]) >= 8 else 1
            size = _strided(shape[1:], stride)
            again = 2 if min(size) >= 8 else 1
            self.of_real: nn.Module = convolution(shape[0], WIDTH, generator, stride=stride, bias=False)
            self.of_imaginary: nn.Module = convolution(shape[0], WIDTH, generator, stride=stride, bias=False)
            self.rest = nn.Sequential(
                nn.ReLU(), convolution(WIDTH, WIDTH, generator, stride=again), *_dense_end(WIDTH, _strided(size, again), 1, generator)
            )
            self.outputs = WIDTH * math.prod(size)
        else:
            inputs, self.outputs = math.prod(shape), 4 * WIDTH
            self.of_real = nn.Sequential(nn.Flatten(), dense(inputs, 4 * WIDTH, generator, bias=False))
            self.of_imaginary = nn.Sequential(nn.Flatten(), dense(inputs, 4 * WIDTH, generator, bias=False))
            self.rest = nn.Sequential(nn.ReLU(), dense(4 * WIDTH, HIDDEN, generator), nn.ReLU(), dense(HIDDEN, 1, generator))
        self.bias = nn.Parameter(torch.zeros((WIDTH, 1, 1) if is_image else (4 * WIDTH,)))

    def forward(self, sent: Tensor, angles: Tensor) -> Tensor:
        """Scores (records, angles) of angles (records, angles)."""
        real, imaginary = sent.real / self.scale, sent.imag / self.scale
        along = self.of_real(real) + self.of_imaginary(imaginary)
        across = self.of_real(imaginary) - self.of_imaginary(real)
        shape = (*angles.shape, *[1] * (along.dim() - 1))
        turned = angles.cos().view(shape) * along[:, None] + angles.sin().view(shape) * across[:, None] + self.bias
        return self.rest(turned.flatten(0, 1)).view(angles.shape)


@final
class Classifier(nn.Module):
    """Logits of images or features: two convolutions and two dense layers, or three dense ones where there are no positions."""

    def __init__(self, rows: Tensor, classes: int, generator: Generator) -> None:
        super().__init__()
        mean, deviation = channel_statistic(rows)
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        if rows.dim() == 4:
            first = convolution(rows.shape[1], WIDTH, generator)
            self.rest = nn.Sequential(
                first,
                nn.ReLU(),
                convolution(WIDTH, 2 * WIDTH, generator, stride=2),
                *_dense_end(2 * WIDTH, _strided(tuple(rows.shape[2:]), 2), classes, generator),
            )
        else:
            layers = (nn.Flatten(), dense(math.prod(rows.shape[1:]), 4 * WIDTH, generator), nn.ReLU())
            self.rest = nn.Sequential(*layers, dense(4 * WIDTH, HIDDEN, generator), nn.ReLU(), dense(HIDDEN, classes, generator))

    def forward(self, rows: Tensor) -> Tensor:
        """(records, classes)."""
        return self.rest((rows - self.mean) / self.deviation)


@final
class Reconstruction(nn.Module):
    r"""Planes to an image in [0, 1]: a U-net (Ronneberger et al. 2015) of two sizes.

    Planes of another size than the image are first brought to it; planes without positions get some by a dense layer.
    """

    def __init__(self, planes: Tensor, image: tuple[int, ...], generator: Generator) -> None:
        super().__init__()
        mean, deviation = channel_statistic(planes)
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.image = image
        self.placing: nn.Module | None = None
        channels = planes.shape[1]
        if planes.dim() != 4:
            channels = _GRID
            self.placing = nn.Sequential(nn.Flatten(), dense(math.prod(planes.shape[1:]), channels * math.prod(image[1:]), generator))
        self.fine = nn.Sequential(convolution(channels, WIDTH, generator), nn.ReLU(), convolution(WIDTH, WIDTH, generator), nn.ReLU())
        self.coarse = nn.Sequential(
            convolution(WIDTH, 2 * WIDTH, generator, stride=2), nn.ReLU(), convolution(2 * WIDTH, 2 * WIDTH, generator), nn.ReLU()
        )
        self.out = nn.Sequential(convolution(3 * WIDTH, WIDTH, generator), nn.ReLU(), convolution(WIDTH, image[0], generator))

    def forward(self, planes: Tensor) -> Tensor:
        """(records, channels, height, width), not yet cut to [0, 1]."""
        size = self.image[1:]
        rows = (planes - self.mean) / self.deviation
        if self.placing is not None:
            rows = self.placing(rows).view(len(rows), -1, *size)
        elif tuple(rows.shape[2:]) != tuple(size):
            rows = functional.interpolate(rows, size=size, mode="nearest")
        fine = self.fine(rows)
        coarse = functional.interpolate(self.coarse(fine), size=size, mode="nearest")
        return self.out(torch.cat([fine, coarse], dim=1))


def weights_of(module: nn.Module) -> int:
    """The number of weights of a network."""
    return sum(parameter.numel() for parameter in module.parameters())


def _strided(size: tuple[int, ...], stride: int) -> tuple[int, ...]:
    """The size of a 3 x 3 convolution's output."""
    return tuple(-(-extent // stride) for extent in size)


def _dense_end(channels: int, size: tuple[int, ...], outputs: int, generator: Generator) -> tuple[nn.Module, ...]:
    """Two dense layers, on averages over a grid of positions where there are more of them."""
    grid = tuple(min(extent, _GRID) for extent in size)
    pooling = () if grid == size else (nn.AdaptiveAvgPool2d((grid[0], grid[1])),)
    inputs = channels * math.prod(grid)
    return (nn.ReLU(), *pooling, nn.Flatten(), dense(inputs, HIDDEN, generator), nn.ReLU(), dense(HIDDEN, outputs, generator))


def _filled(module: Layer, fan_in: int, generator: Generator) -> Layer:
    """He et al. 2015: weights of variance 2 / inputs, biases of 0; drawn on the generator's device, and left there."""
    module = module.to(generator.device)
    with torch.no_grad():
        module.weight.normal_(0.0, math.sqrt(2.0 / fan_in), generator=generator)
        if module.bias is not None:
            module.bias.zero_()
    return module
