r"""fastMRI's U-Net with complex weights, on planes from its first convolution to its last."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.layers.convolution import PlanarConv2d, PlanarConvTranspose2d
from zetadp.trainer.layers.planes import FromPlanes, ToPlanes, split
from zetadp.trainer.models import complex_layers
from zetadp.trainer.specs.models.layer_spec import Activation, GroupNorm, InstanceNorm
from zetadp.trainer.specs.models.model_spec import ComplexUnet
from zetadp.trainer.specs.models.shapes import check_model


@final
class ComplexUnetNetwork(nn.Module):
    """Complex images (n, channels, height, width) to complex images of the same shape."""

    def __init__(self, spec: ComplexUnet, image_channels: int, stream: RandomStream) -> None:
        super().__init__()
        widths = [spec.channels * 2**level for level in range(spec.pools + 1)]
        self.to_planes, self.from_planes = ToPlanes(), FromPlanes()
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        self.merged = nn.ModuleList()
        before = image_channels
        for width in widths:
            self.down.append(_block(spec, before, width, stream))
            before = width
        for width in reversed(widths[:-1]):
            self.up.append(_upward(spec, 2 * width, width, stream))
            self.merged.append(_block(spec, 2 * width, width, stream))
        self.last = PlanarConv2d(spec.channels, image_channels, 1, stream)
        self._residual = spec.residual

    def forward(self, images: Tensor) -> Tensor:
        start = x = self.to_planes(images)
        skipped: list[Tensor] = []
        *levels, bottom = self.down
        for block in levels:
            x = block(x)
            skipped.append(x)
            # The same for real and imaginary parts: a mean of complex numbers.
            x = nn.functional.avg_pool2d(x, 2)
        x = bottom(x)
        for upward, merged in zip(self.up, self.merged, strict=True):
            x = merged(_side_by_side(skipped.pop(), upward(x)))
        x = self.last(x)
        return self.from_planes(x + start if self._residual else x)


def build_complex_unet(spec: ComplexUnet, facts: DataSetFacts, stream: RandomStream) -> ComplexUnetNetwork:
    """The network with fresh weights from ``stream``. Raises InvalidParameter if it doesn't fit the data set."""
    check_model(spec, facts)
    return ComplexUnetNetwork(spec, facts.shape[0], stream)


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    """Planes with the complex channels of both, first those of ``first``."""
    (first_re, first_im), (second_re, second_im) = split(first), split(second)
    return torch.cat((first_re, second_re, first_im, second_im), dim=1)


def _block(spec: ComplexUnet, before: int, width: int, stream: RandomStream) -> nn.Sequential:
    """Two 3 x 3 convolutions, each with norm, activation and dropout; the norm removes what a bias would add (as in fastMRI)."""
    layers: list[nn.Module] = []
    for inputs in (before, width):
        layers += [PlanarConv2d(inputs, width, 3, stream, padding=1, bias=False), *_normalised(spec, width)]
        if spec.dropout > 0.0:
            layers.append(complex_layers.dropout(spec.dropout))
    return nn.Sequential(*layers)


def _upward(spec: ComplexUnet, before: int, width: int, stream: RandomStream) -> nn.Sequential:
    """A 2 x 2 transposed convolution of stride 2: half the channels on twice the height and width."""
    return nn.Sequential(PlanarConvTranspose2d(before, width, 2, stream, stride=2, bias=False), *_normalised(spec, width))


def _normalised(spec: ComplexUnet, width: int) -> tuple[nn.Module, nn.Module]:
    norm = InstanceNorm() if spec.norm_groups is None else GroupNorm(groups=spec.norm_groups)
    return complex_layers.complex_norm(norm, width), complex_layers.complex_activation(Activation(name=spec.activation), width)
