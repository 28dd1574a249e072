r"""Noise as torch tensors, over the same cryptographic stream as NumPy's."""

from __future__ import annotations

import math
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.numerics.spectrum import dropped_slices
from zetadp.mechanisms.sampling import kernel
from zetadp.mechanisms.sampling.grid import FEW
from zetadp.mechanisms.sampling.source import FAIR, RandomOrigin, RandomStream
from zetadp.trainer.engine.finite import all_finite
from zetadp.trainer.engine.noise import torch_kernel

GENERATOR: Final = "AES-256-CTR"
"""What makes the noise, for certificates."""


@final
class TorchSource:
    r"""A ``NoiseSource`` over tensors. Noise is always real; a complex mechanism draws real pairs.

    torch's own generators aren't cryptographic, and its complex draws have half the variance per real component: neither is used. Noise
    is drawn by the processor; an accelerator adds it, with the same bits (``torch_kernel``).

    Args:
      refuses: whether an accelerator refuses a value that isn't finite, which waits for it; else it releases NaN everywhere in its place.

    >>> TorchSource(RandomStream.from_seed(1, "doctest"), torch.device("cpu")).standard_normal((2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, stream: RandomStream, device: torch.device, *, refuses: bool = True) -> None:
        self._stream = stream
        self._device = device
        self._refuses = refuses
        self._by_torch = device.type != "cpu"

    @property
    def origin(self) -> RandomOrigin:
        return self._stream.origin

    def standard_normal(self, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape)
        if self._device.type != "cuda":
            return self._there(self._stream.grid_normal(count), shape)
        numbers = torch.empty(count, dtype=torch.float64, pin_memory=True)
        self._stream.grid_normal(count, into=numbers.numpy())
        return numbers.reshape(shape).to(self._device, non_blocking=True)

    def standard_laplace(self, shape: tuple[int, ...]) -> Tensor:
        return self._there(self._stream.grid_laplace(math.prod(shape)), shape)

    def _there(self, numbers: NDArray[np.float64], shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(numbers).reshape(shape).to(self._device)

    def released(self, value: Tensor, noise: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        if self._by_torch and value.numel() > FEW:
            return self._observed(torch_kernel.released(value, noise, factor, largest, scale, refuses=self._refuses))
        there = kernel.released(value.cpu().contiguous().numpy(), noise.cpu().numpy(), factor, largest, scale)
        return self._observed(torch.from_numpy(there).to(value.device))

    def released_normal(self, value: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        if self._by_torch:
            return self.released(value, self.standard_normal(tuple(value.shape)), factor, largest, scale)
        there = self._stream.released_normal(value.cpu().contiguous().numpy(), factor, largest, scale)
        return self._observed(torch.from_numpy(there).to(value.device))

    def released_over(
        self,
        value: Tensor,
        by: tuple[float, float, float],
        watched: kernel.Watched | None,
        recursion: kernel.Recursion | None = None,
    ) -> int:
        """``RandomStream.released_over`` for a vector, (count,), float32 or float64; 0 on an accelerator."""
        return 0 if self._by_torch else self._stream.released_over(value.detach().numpy(), by, watched, recursion)

    def _observed(self, released: Tensor) -> Tensor:
        """The same, which whoever observes the stream has seen."""
        if self._stream.observed is not None:
            self._stream.observed(released.detach().cpu().contiguous().numpy().tobytes())
        return released

    def shortened(self, first: Tensor, second: Tensor, largest: float) -> tuple[Tensor, Tensor]:
        shorter = (largest / torch.hypot(first, second).clamp_min_(1.0)).clamp_max_(1.0)
        return first * shorter, second * shorter

    def wide(self, value: Tensor) -> Tensor:
        return value.to(torch.float64)

    def pairs(self, value: Tensor) -> Tensor:
        return torch.view_as_real(value.resolve_conj())

    def complex(self, pairs: Tensor) -> Tensor:
        return torch.view_as_complex(pairs)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        return self._there(self._stream.uniform(math.prod(shape)), shape)

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> Tensor:
        return self._there(self._stream.signs(math.prod(shape), negative), shape)

    def is_complex(self, value: Tensor) -> bool:
        return value.is_complex()

    def all_finite(self, value: Tensor) -> bool:
        return all_finite(value)

    def hides(self, value: Tensor) -> bool:
        return value.is_quantized  # torch has no wider numbers than float64

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
