r"""Noise as torch tensors, over the same cryptographic stream as NumPy's."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from mechanisms.source import FAIR, RandomOrigin, RandomStream
from mechanisms.spectrum import dropped_slices
from trainer.engine.chacha import NAME, ChaChaStream
from trainer.engine.finite import all_finite


def generator(device: torch.device) -> str:
    """What makes the noise there, for certificates."""
    return "AES-256-CTR" if device.type == "cpu" else NAME


@final
class TorchSource:
    r"""A ``NoiseSource`` over tensors. Noise is always real; a complex mechanism draws real pairs.

    torch's own generators aren't cryptographic, and its complex draws have half the variance per real component: neither is used.
    Normal numbers for an accelerator are made there, from a ChaCha20 stream whose key the given stream gives.

    Attributes:
      dtype: of the noise, float32 or float64. In float32 the value must be of that type already, with a sensitivity that holds for
        the rounded value: the engine's clipped sums aim below their bound by more than rounding moves them.

    >>> TorchSource(RandomStream.from_seed(1, "doctest"), torch.device("cpu"), torch.float64).standard_normal((2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, stream: RandomStream, device: torch.device, dtype: torch.dtype) -> None:
        self._stream = stream
        self._device = device
        self._dtype = dtype
        self._cipher = None if device.type == "cpu" else ChaChaStream(stream.key(), device)

    @property
    def origin(self) -> RandomOrigin:
        return self._stream.origin

    def standard_normal(self, shape: tuple[int, ...]) -> Tensor:
        return self._normal(math.prod(shape), 1.0).reshape(shape)

    def circular_normal(self, shape: tuple[int, ...], std: float) -> Tensor:
        return torch.view_as_complex(self._normal(2 * math.prod(shape), std).reshape(*shape, 2))

    def _normal(self, count: int, std: float) -> Tensor:
        if self._cipher is not None:
            return self._cipher.normal(count, std, self._dtype)
        if self._dtype == torch.float32:
            return torch.from_numpy(self._stream.normal32(count, std))
        numbers = self._stream.normal(count)
        numbers *= std
        return torch.from_numpy(numbers).to(self._dtype)

    def standard_laplace(self, shape: tuple[int, ...]) -> Tensor:
        numbers = torch.from_numpy(self._stream.laplace(math.prod(shape)))
        return numbers.reshape(shape).to(self._device, self._dtype)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        numbers = torch.from_numpy(self._stream.uniform(math.prod(shape)))
        return numbers.reshape(shape).to(self._device, self._dtype)

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> Tensor:
        numbers = torch.from_numpy(self._stream.signs(math.prod(shape), negative))
        return numbers.reshape(shape).to(self._device, self._dtype)

    def is_complex(self, value: Tensor) -> bool:
        return value.is_complex()

    def all_finite(self, value: Tensor) -> bool:
        return all_finite(value)

    def is_finer(self, value: Tensor) -> bool:
        kind = value.dtype
        return (kind.is_floating_point or kind.is_complex) and torch.finfo(kind).eps < torch.finfo(self._dtype).eps

    def low_pass(self, value: Tensor, kept: tuple[int, ...]) -> Tensor:
        axes = tuple(range(-len(kept), 0))
        shape = tuple(value.shape)[-len(kept) :]
        # In float64 whatever the value's type: a narrower transform would round away more than the noise can hide.
        spectrum = torch.fft.rfftn(value.to(torch.float64), dim=axes, norm="ortho")
        for part in dropped_slices(shape, kept):
            spectrum[part] = 0.0
        return torch.fft.irfftn(spectrum, s=shape, dim=axes, norm="ortho")

    def all_within(self, value: Tensor, lower: float, upper: float) -> bool:
        # In float64: a narrower type would round the bounds to its own numbers first.
        wide = value.to(torch.float64)
        return bool(((wide >= lower) & (wide <= upper)).all())
