r"""A release as the integers that noise is drawn on, and the same release from these integers somewhere else, to the bit."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.grid import FEW, STEP
from zetadp.mechanisms.sampling.source import FAIR, NoiseSource, RandomOrigin, RandomStream
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.randomness import Randomness
from zetadp.trainer.engine.noise.torch_source import TorchSource


@final
class RecordingRandomness:
    """A site's randomness, which keeps the integers of its last release."""

    def __init__(self, inner: Randomness) -> None:
        self._inner = inner
        self._released: list[NDArray[np.int64]] = []

    @property
    def origin(self) -> RandomOrigin:
        return self._inner.origin

    @property
    def repeats(self) -> bool:
        return self._inner.repeats

    def sampling(self, step: int, /) -> RandomStream:
        return self._inner.sampling(step)

    def allocation(self, epoch: int, /) -> RandomStream:
        return self._inner.allocation(epoch)

    @property
    def binds_noise(self) -> bool:
        return self._inner.binds_noise

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        return self._inner.noise(step, vector)

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        if self._released:
            raise AssertionError("a round releases once")
        return _Integers(TorchSource(self._inner.noise(step, vector), vector.device), self)

    def keep(self, integers: NDArray[np.int64]) -> None:
        """Called by the source, with what it has released: the whole, or each part in its order."""
        self._released.append(integers)

    def taken(self) -> NDArray[np.int64]:
        """The integers of the last release, once."""
        found, self._released = self._released, []
        if not found:
            raise AssertionError("the release was on no grid")
        return np.concatenate(found)

    def forget(self) -> None:
        """Drops integers that nobody took."""
        self._released = []


class _OneGrid:
    """What a source of one release on the grid of normal noise needs besides ``released_normal``: how tensors are taken apart."""

    def __init__(self, shapes: TorchSource) -> None:
        self._shapes = shapes

    @property
    def origin(self) -> RandomOrigin:
        return self._shapes.origin

    def pairs(self, value: Tensor) -> Tensor:
        return self._shapes.pairs(value)

    def complex(self, pairs: Tensor) -> Tensor:
        return self._shapes.complex(pairs)

    def wide(self, value: Tensor) -> Tensor:
        return self._shapes.wide(value)

    def is_complex(self, value: Tensor) -> bool:
        return self._shapes.is_complex(value)

    def all_finite(self, value: Tensor) -> bool:
        return self._shapes.all_finite(value)

    def hides(self, value: Tensor) -> bool:
        return self._shapes.hides(value)

    def all_within(self, value: Tensor, lower: float, upper: float) -> bool:
        return self._shapes.all_within(value, lower, upper)

    def standard_normal(self, shape: tuple[int, ...]) -> Tensor:
        raise _other(shape)

    def standard_laplace(self, shape: tuple[int, ...]) -> Tensor:
        raise _other(shape)

    def released(self, value: Tensor, noise: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        del noise, factor, largest, scale
        raise _other(tuple(value.shape))

    def shortened(self, first: Tensor, second: Tensor, largest: float) -> tuple[Tensor, Tensor]:
        del second, largest
        raise _other(tuple(first.shape))

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        raise _other(shape)

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> Tensor:
        del negative
        raise _other(shape)

    def low_pass(self, value: Tensor, kept: tuple[int, ...]) -> Tensor:
        del kept
        raise _other(tuple(value.shape))


@final
class _Integers(_OneGrid):
    """Draws as ``TorchSource`` does, and keeps the integers."""

    def __init__(self, inner: TorchSource, record: RecordingRandomness) -> None:
        super().__init__(inner)
        self._inner, self._record = inner, record

    def released_normal(self, value: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        if value.numel() <= FEW:
            raise InvalidParameter("model", f"one with more than {FEW} parameters where nodes are sites", value.numel())
        # In float64 and without the scale it is (integer + 1/2) * STEP, exactly; the value itself was exact in its own type.
        whole = self._inner.released_normal(value.double(), factor, largest, 1.0)
        self._record.keep((whole / STEP - 0.5).to(torch.int64).cpu().reshape(-1).numpy())
        return whole.mul_(scale).to(value.dtype)


@final
class _Given(_OneGrid):
    """Gives the release that these integers are."""

    def __init__(self, integers: Tensor, shapes: TorchSource) -> None:
        super().__init__(shapes)
        self._integers = integers

    def released_normal(self, value: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        del factor, largest
        if self._integers.numel() != value.numel():
            raise InvalidParameter("integers", f"{value.numel()} in number", self._integers.numel())
        return self._integers.reshape(value.shape).double().add_(0.5).mul_(STEP).mul_(scale).to(value.dtype)


def _other(shape: tuple[int, ...]) -> AssertionError:
    return AssertionError(f"a federation's noise is normal and independent, not drawn otherwise for shape {shape}")


def released_from(mechanism: ComplexGaussian | Gaussian | Laplace, integers: NDArray[np.int64], like: Tensor) -> Tensor:
    r"""The released vector that a site's integers are.

    Args:
      integers: (numbers,), of ``RecordingRandomness``, below 2^52 in size; one more where the vector's length is
        odd and the noise complex.
      like: zeros of the vector's length, type and device.
    Raises:
      InvalidParameter: there are more or fewer of them.
    """
    there = torch.from_numpy(integers).to(like.device)
    shapes = TorchSource(RandomStream.from_seed(0, "draws nothing"), like.device)
    return releasing.release(mechanism, like, _Given(there, shapes))
