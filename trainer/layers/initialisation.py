r"""Initial complex weights, drawn as real pairs from a public stream (they carry no data). Trabelsi et al. 2018, section 3.6.

The fans of a weight (outputs, inputs / groups, *kernel) are fan_in = inputs / groups * kernel size and fan_out = outputs / groups * kernel
size; a transposed convolution's weight (inputs, outputs / groups, *kernel) has them the other way round, which Glorot's sum does not see.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream

Shape = tuple[int, ...]


def fans(shape: Shape, groups: int) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (outputs, inputs / groups, *kernel)."""
    if len(shape) < 2 or groups < 1 or shape[0] % groups:
        raise InvalidParameter("shape", f"(outputs, inputs / groups, ...), outputs a multiple of groups = {groups}", shape)
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] // groups * kernel


def glorot(shape: Shape, groups: int, stream: RandomStream) -> Tensor:
    """Complex64 weights with E|w|^2 = 2 / (fan_in + fan_out): each real component has half of it."""
    return _circular(shape, 2.0 / sum(fans(shape, groups)), stream)


def he(shape: Shape, groups: int, stream: RandomStream) -> Tensor:
    """Complex64 weights with E|w|^2 = 2 / fan_in: each real component has half of it."""
    return _circular(shape, 2.0 / fans(shape, groups)[0], stream)


def _circular(shape: Shape, power: float, stream: RandomStream) -> Tensor:
    # A complex normal of power E|w|^2 has std sqrt(power / 2) in each real component.
    pairs = math.sqrt(power / 2.0) * stream.normal(2 * math.prod(shape)).reshape(*shape, 2)
    return torch.view_as_complex(torch.from_numpy(pairs).to(torch.float32).contiguous())
