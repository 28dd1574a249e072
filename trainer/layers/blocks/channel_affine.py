r"""A factor and a shift for each channel: a batch norm whose statistics are public constants is nothing else, and mixes no records."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.planes import join, split
from zetadp.trainer.layers.trainable_activations import align


@final
class ChannelAffine(nn.Module):
    r"""weight z + bias: of real tensors (N, C, *space) with real weights, of planes (N, 2C, *space) or native tensors with complex ones.

    ``weight`` (C,), initially 1, and ``bias`` (C,), initially 0, are float32 or complex64 and may come with a leading axis of records,
    (N, C). Native complex tensors are (N, ..., C), as activations take them.
    """

    batched_parameters: ClassVar[bool] = True

    def __init__(self, channels: int, *, is_complex: bool) -> None:
        super().__init__()
        kind = torch.complex64 if is_complex else torch.float32
        self.weight = nn.Parameter(torch.ones(channels, dtype=kind))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=kind))

    def forward(self, z: Tensor) -> Tensor:
        if z.is_complex() or not self.weight.is_complex():
            return align(self.weight, z) * z + align(self.bias, z)
        re, im = split(z)
        factor_re, factor_im = align(self.weight.real, z), align(self.weight.imag, z)
        return join(factor_re * re - factor_im * im + align(self.bias.real, z), factor_re * im + factor_im * re + align(self.bias.imag, z))
